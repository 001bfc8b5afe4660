"""Listeners with settings of their own, and what all encrypted ones share.

Rules of this room:

- `listen` is a list of URLs; `[[listener]]` tables stand beside it and say more about one each.
- A table that names any certificate, key or authority stands alone in these matters. One that
  names none, and every URL of `listen`, uses the table `[tls]`. Nothing is ever mixed of both, so
  what was meant for one listener cannot open or close another.
- What makes no sense on a listener is refused there, not ignored.
"""

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from quantumqtt.config.limits import KIB, PACKET_BYTES_CEILING, Count
from quantumqtt.config.listen import Address, parse_listen
from quantumqtt.config.marks import Flag
from quantumqtt.config.problems import Relation, refuse
from quantumqtt.errors import ConfigError

CertificateUser = Literal["cn", "san", "dn", "off"]
TlsVersion = Literal["1.2", "1.3"]
ProxyProtocol = Literal["off", "v1", "v2", "any"]

SOCKET_MODE_DEFAULT: Final = 0o660
NAMES_MAX: Final = 1_024

_TLS_KEYS: Final = (
    "certificate",
    "key",
    "client_ca",
    "crl",
    "require_client_certificate",
    "certificate_user",
    "tls_min_version",
)


def listen_address(value: object) -> Address:
    """Judge one listen URL."""
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise refuse("is not a listen URL", 'write "tcp://127.0.0.1:1883"')
    try:
        return parse_listen(value)
    except ConfigError as error:
        raise refuse(str(error), error.hint or "") from error


def comma_separated(value: object) -> object:
    """Take one string as one entry, or several with commas: a variable has no lists."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def file_name(value: object) -> object:
    """Refuse what no file can be called."""
    if isinstance(value, str) and (not value or "\0" in value):
        raise refuse("is not a file name", "write a path, or remove the key")
    return value


def lower_case(value: object) -> object:
    """Take words in any case."""
    return value.lower() if isinstance(value, str) else value


def _network(value: object) -> str:
    try:
        return str(ipaddress.ip_network(str(value)))
    except ValueError as error:
        raise refuse(
            f"{value} is no network ({error})", "write 10.0.0.0/8, fd00::/8, or one address"
        ) from error


def _socket_mode(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"0?[0-7]{3}", value):
        return int(value, 8)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777:
        return value
    raise refuse("is no file mode", 'write it in octal digits and quotes: "0660"')


def _origin(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"https?://[^/\s?#]+", value):
        return value
    raise refuse(f"{value} is no origin", "write https://HOST or https://HOST:PORT, no path")


_File = Annotated[Path | None, BeforeValidator(file_name)]
_User = Annotated[CertificateUser, BeforeValidator(lower_case)]

_USER_MEANING: Final = (
    "Which part of a client's certificate is its user name: `cn` (the subject's common name), "
    "`san` (the first DNS name, mail address or URI), `dn` (the whole subject), or `off`. "
    "A client named so needs no password."
)


class TlsSettings(BaseModel):
    """Certificates of every encrypted listener that names none itself."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    certificate: Annotated[_File, Flag("--cert")] = Field(
        default=None,
        description="The server's certificate and the chain behind it, PEM. Read again on SIGHUP.",
    )
    key: Annotated[_File, Flag("--key")] = Field(
        default=None, description="The private key of the certificate, PEM. Read again on SIGHUP."
    )
    client_ca: Annotated[_File, Flag("--cafile")] = Field(
        default=None,
        description="Authorities whose certificates clients may show, PEM. Read again on SIGHUP.",
    )
    crl: _File = Field(
        default=None,
        description="Revoked client certificates, PEM. Without a current list of their authority "
        "no certificate is accepted. Read again on SIGHUP.",
    )
    require_client_certificate: Annotated[bool, Flag("--require-certificate")] = Field(
        default=False, description="Whether a client without a certificate is turned away."
    )
    certificate_user: _User = Field(default="cn", description=_USER_MEANING)
    min_version: TlsVersion = Field(
        default="1.3", description="The oldest TLS that is spoken: `1.3`, or `1.2` for old clients."
    )


class ListenerSettings(BaseModel):
    """One listener, with settings that are nobody else's."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[Address, PlainValidator(listen_address)] = Field(
        description="Where it listens, as in `listen`."
    )
    allow_anonymous: bool | None = Field(
        default=None, description="As the key of the same name, for this listener."
    )
    allow_plaintext_passwords: bool | None = Field(
        default=None, description="As the key of the same name, for this listener."
    )
    connections_max: Count | None = Field(
        default=None, ge=1, le=4_194_304, description="Connections through this listener."
    )
    packet_bytes_max: Count | None = Field(
        default=None,
        ge=KIB,
        le=PACKET_BYTES_CEILING,
        description="Largest packet accepted through this listener.",
    )
    certificate: _File = Field(default=None, description="As in `[tls]`, for this listener.")
    key: _File = Field(default=None, description="As in `[tls]`, for this listener.")
    client_ca: _File = Field(default=None, description="As in `[tls]`, for this listener.")
    crl: _File = Field(default=None, description="As in `[tls]`, for this listener.")
    require_client_certificate: bool = Field(
        default=False, description="As in `[tls]`, for this listener."
    )
    certificate_user: _User = Field(default="cn", description="As in `[tls]`, for this listener.")
    tls_min_version: TlsVersion = Field(
        default="1.3", description="As `min_version` in `[tls]`, for this listener."
    )
    proxy_protocol: Annotated[ProxyProtocol, BeforeValidator(lower_case)] = Field(
        default="off",
        description="Whether a PROXY header that names the client comes first, and which.",
    )
    proxy_trusted: Annotated[
        tuple[Annotated[str, BeforeValidator(_network)], ...], BeforeValidator(comma_separated)
    ] = Field(
        default=(),
        max_length=NAMES_MAX,
        description="Networks of the proxies: others are turned away. Unix sockets need none.",
    )
    origins: Annotated[
        tuple[Annotated[str, BeforeValidator(_origin)], ...], BeforeValidator(comma_separated)
    ] = Field(
        default=(),
        max_length=NAMES_MAX,
        description="Origins of pages that may connect by WebSocket; empty lets all connect.",
    )
    socket_mode: Annotated[int, BeforeValidator(_socket_mode)] = Field(
        default=SOCKET_MODE_DEFAULT,
        description='Who may connect to a Unix socket, as octal digits: `"0660"`.',
    )

    @property
    def has_own_tls(self) -> bool:
        """Whether it says anything about certificates itself."""
        return not self.model_fields_set.isdisjoint(_TLS_KEYS)

    def own_tls(self) -> TlsSettings:
        """What it says about certificates."""
        return TlsSettings(
            certificate=self.certificate,
            key=self.key,
            client_ca=self.client_ca,
            crl=self.crl,
            require_client_certificate=self.require_client_certificate,
            certificate_user=self.certificate_user,
            min_version=self.tls_min_version,
        )

    def without_certificates(self) -> dict[str, object]:
        """What it says about everything else, which a running broker cannot change."""
        names = [name for name in type(self).model_fields if name not in _TLS_KEYS]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of(cls, address: Address) -> Self:
        """Make the listener of a bare URL."""
        return cls(url=address)

    def broken_relations(self, place: str) -> Iterator[Relation]:
        """Name what contradicts the kind of the listener; `place` is its path."""
        url, scheme = self.url.url, self.url.scheme
        wrote = self.model_fields_set
        if not self.url.is_encrypted:
            for key in wrote.intersection(_TLS_KEYS):
                yield Relation(
                    (f"{place}.{key}",),
                    f"{url} is not encrypted",
                    f"write {'wss' if scheme == 'ws' else 'tls'}://, or remove the key",
                )
        if self.origins and scheme not in {"ws", "wss"}:
            yield Relation(
                (f"{place}.origins",), f"{url} is no WebSocket", "write ws:// or remove the key"
            )
        if "socket_mode" in wrote and scheme != "unix":
            yield Relation((f"{place}.socket_mode",), f"{url} is no Unix socket", "remove the key")
        if self.proxy_protocol != "off" and not self.proxy_trusted and scheme != "unix":
            yield Relation(
                (f"{place}.proxy_protocol",),
                "a header anybody can write would be believed",
                'name the proxies: proxy_trusted = ["10.0.0.0/8"]',
            )
        if self.proxy_trusted and self.proxy_protocol == "off":
            yield Relation(
                (f"{place}.proxy_trusted",),
                "no PROXY header is expected",
                'write proxy_protocol = "any", or remove the key',
            )


def tls_relations(tls: TlsSettings, url: str, place: str, written: str) -> Iterator[Relation]:
    """Name what an encrypted listener lacks.

    `place` is the table its keys belong to, `written` the path of what a person wrote for it.
    """
    remedy = "give certificate and key: --cert FILE --key FILE, or both keys in [tls]"
    if tls.certificate is None:
        keys = (f"{place}.certificate", written)
        yield Relation(keys, f"{url} needs a certificate", remedy)
    elif tls.key is None:
        yield Relation((f"{place}.key", written), f"{url} needs the key of its certificate", remedy)
    if tls.client_ca is None:
        needs = {"require_client_certificate": tls.require_client_certificate, "crl": tls.crl}
        for key, is_set in needs.items():
            if is_set:
                yield Relation(
                    (f"{place}.{key}",),
                    f"{url} cannot judge certificates of clients",
                    "name their authorities: client_ca = FILE",
                )
