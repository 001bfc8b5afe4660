"""From certificate files to what a listener shows and demands.

Files are read here, so that every complaint names the listener, the key and the file; whether they
are any good is judged by the native half, which uses them. All listeners are read before any is
changed: a bad file at the start stops it, and on a reload keeps everything as it was.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from quantumqtt import _core
from quantumqtt.config import ListenerSettings, Settings, TlsSettings
from quantumqtt.errors import ConfigError

_log = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
_DAY_S: Final = 86_400
# Long enough to order a new certificate without haste.
SOON_S: Final = 14 * _DAY_S

Contexts = Sequence[_core.TlsContext | None]


def load_contexts(settings: Settings) -> Contexts:
    """Read the certificates of every listener, in order; None where nothing is encrypted. Blocks.

    Raises:
        ConfigError: A file cannot be read or used; names listener, key and file.
    """
    return [_load(settings, listener) for listener in settings.listeners]


def _load(settings: Settings, listener: ListenerSettings) -> _core.TlsContext | None:
    tls = settings.tls_of(listener)
    if tls is None:
        return None
    url = listener.url
    # Where these are None the settings were refused before.
    certificate = _read(url.url, "certificate", tls.certificate) or b""
    key = _read(url.url, "key", tls.key) or b""
    client_ca = _read(url.url, "client_ca", tls.client_ca)
    crl = _read(url.url, "crl", tls.crl)
    try:
        context = _core.TlsContext(
            certificate=certificate,
            key=key,
            client_ca=client_ca,
            crl=crl,
            require_client_certificate=tls.require_client_certificate,
            certificate_user=tls.certificate_user,
            min_version=tls.min_version,
            websocket=url.is_websocket,
        )
    except ConfigError as error:
        part, _, why = str(error).partition(": ")
        raise ConfigError(
            f"{url.url}: {part} = {_file_of(tls, part)}: {why}", hint=error.hint
        ) from error
    _warn_of_age(context, url.url, tls.certificate)
    return context


def _read(url: str, key: str, file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{url}: {key} = {file}: cannot be read ({reason})",
            hint="check the path and that this user may read it",
        ) from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(
            f"{url}: {key} = {file}: longer than {FILE_BYTES_MAX} bytes",
            hint="is this really a PEM file?",
        )
    return content


def _file_of(tls: TlsSettings, part: str) -> Path | None:
    files = {
        "certificate": tls.certificate,
        "key": tls.key,
        "client_ca": tls.client_ca,
        "crl": tls.crl,
    }
    return files.get(part)


def _warn_of_age(context: _core.TlsContext, url: str, file: Path | None) -> None:
    """Clients will refuse an old certificate; say so before they do."""
    if context.not_after_s is None:
        return
    left_s = context.not_after_s - time.time()
    if left_s < SOON_S:
        said = "has expired" if left_s < 0 else f"expires in {int(left_s // _DAY_S)} days"
        _log.warning(
            "the certificate of a listener %s",
            said,
            extra={"listener": url, "file": str(file), "remedy": "renew it, then send SIGHUP"},
        )
