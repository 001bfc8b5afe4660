"""Certificates made on the fly: an authority of the test's own, and whom it vouches for.

The program `openssl` makes them. They are valid for two days and for this machine's loopback only,
so one that leaks out of a test folder opens nothing.
"""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Final

from quantumqtt.client import tls_context
from quantumqtt.errors import ConfigError

_DAYS: Final = "2"
_WITHIN_S: Final = 30.0
_NAMES: Final = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"


class Certificates:
    """An authority in a folder, with a certificate for a server on loopback.

    Attributes:
        authority: The authority's certificate, which clients are told to trust.
        server: The server's certificate, and its key.
    """

    def __init__(self, folder: Path) -> None:
        """Make authority and server certificate.

        Raises:
            ConfigError: The program `openssl` is missing, or failed; carries its words.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        made, self._authority_key = self._make("authority", "CA:TRUE")
        self.authority: Path = made
        self.server: tuple[Path, Path] = self.sign("localhost")

    def sign(self, name: str) -> tuple[Path, Path]:
        """Make a certificate of this common name; gives certificate and key.

        A client is known to a broker by such a certificate.
        """
        return self._make(
            name, "CA:FALSE", "-CA", str(self.authority), "-CAkey", str(self._authority_key)
        )

    def context(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """What a client passes as `tls=`: it trusts this authority and may show a certificate."""
        context = tls_context(ca_file=str(self.authority))
        if client is not None:
            context.load_cert_chain(*client)
        return context

    def _make(self, name: str, constraint: str, *signed_by: str) -> tuple[Path, Path]:
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        program = shutil.which("openssl")
        if program is None:
            raise ConfigError("no program openssl", hint="install it: it makes test certificates")
        ran = subprocess.run(
            [
                *(program, "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:P-256", "-nodes", "-days", _DAYS, "-subj", f"/CN={name}"),
                *("-addext", _NAMES, "-addext", f"basicConstraints=critical,{constraint}"),
                *("-keyout", str(key), "-out", str(certificate)),
                *signed_by,
            ],
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )
        if ran.returncode != 0:
            raise ConfigError(f"openssl could not make a certificate: {ran.stderr.strip()}")
        return certificate, key
