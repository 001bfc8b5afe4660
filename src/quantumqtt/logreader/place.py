"""Where a log service is, and with what one enters it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from quantumqtt.errors import ConfigError

DEFAULT_PORT: Final = 8815
SCHEMES: Final = ("grpc", "grpc+tcp", "grpc+tls")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Address, token and certificates; small, hashable and picklable, so that it can travel.

    `tls_roots` are PEM certificates that the service's own must lead to; None means the system's.
    """

    endpoint: str
    token: str | None = None
    tls_roots: bytes | None = None

    def __post_init__(self) -> None:
        """Refuse an address nothing could listen at."""
        parts = urlsplit(self.endpoint)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or parts.path.strip("/"):
            raise ConfigError(
                f"endpoint {self.endpoint!r} is no address of a log service",
                hint=f"write grpc://host:{DEFAULT_PORT} or grpc+tls://host:{DEFAULT_PORT}",
            )
        if self.tls_roots is not None and parts.scheme != "grpc+tls":
            raise ConfigError(
                f"certificates are given for {self.endpoint!r}, which is not encrypted",
                hint="write grpc+tls:// or leave the certificates out",
            )

    @property
    def location(self) -> str:
        """The address as Flight wants it, port included."""
        parts = urlsplit(self.endpoint)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}:{parts.port or DEFAULT_PORT}"

    def __repr__(self) -> str:
        """Show everything but the token."""
        token = None if self.token is None else "…"
        return f"LogPlace(endpoint={self.endpoint!r}, token={token!r})"


def read_roots(file: str | None) -> bytes | None:
    """Read certificates from a file named by an option.

    Raises:
        ConfigError: The file cannot be read.
    """
    if file is None:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"certificates {file}: {error.strerror or error}", hint="name a readable PEM file"
        ) from error
