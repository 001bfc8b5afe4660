"""Opens the broker's message log to readers: the log service in the process of `serve`.

The service and pyarrow behind it come with an extra; without it this says which, and the broker
does without.
"""

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quantumqtt.config import Address, Settings
from quantumqtt.errors import ConfigError
from quantumqtt.node import Broker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quantumqtt.flight import BrokerGate, BrokerLog, LogService, NativeLog, ServiceTls

# What is under way gets this long; readers ask again elsewhere, or later.
CLOSE_S_MAX: Final = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogDoor:
    """The log service of one broker."""

    url: str
    store: "BrokerLog"
    service: "LogService"
    gate: "BrokerGate"

    def reload(self, settings: Settings) -> None:
        """Know the tokens that stand in the file now; rules are asked where they are in force.

        Raises:
            ConfigError: The file is broken; the old tokens stay.
        """
        from quantumqtt.flight import load_readers

        if settings.flight_readers is not None:
            self.gate.replace(load_readers(settings.flight_readers))

    def close(self) -> bool:
        """End the service; False when a reader that does not read still keeps it.

        gRPC waits for such a one without end, also when the interpreter does: then only leaving
        the process helps.
        """
        self.store.close()
        ending = threading.Thread(target=self.service.shutdown, name="log-door", daemon=True)
        ending.start()
        ending.join(CLOSE_S_MAX)
        if ending.is_alive():
            _log.warning("a reader of the log did not leave in time and is cut off")
        return not ending.is_alive()


def open_log_door(
    settings: Settings,
    broker: Broker,
    logs: "Sequence[NativeLog]",
    *,
    own_token: str | None,
) -> LogDoor:
    """Serve the logs where the settings say.

    Raises:
        ConfigError: The extra is missing, a file cannot be read, or nobody could ever read.
        TransportError: The address cannot be bound.
    """
    address = settings.flight
    assert address is not None, "asked for where there is an address"
    try:
        from quantumqtt.flight import BrokerLog, LogService, open_gate
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise ConfigError(
            "the log service needs pyarrow, which is not installed",
            hint="pip install 'quantumqtt[server]', or --flight off",
        ) from error
    gate = open_gate(settings, address, lambda: broker.access, own_token)
    store = BrokerLog(logs)
    service = LogService(
        store,
        gate=gate,
        host=f"[{address.host}]" if ":" in address.host else address.host,
        port=address.port,
        tls=_tls_of(settings, address),
    )
    return LogDoor(Address(address.scheme, address.host, service.port).url, store, service, gate)


def _tls_of(settings: Settings, address: Address) -> "ServiceTls | None":
    from quantumqtt.flight import ServiceTls

    if not address.is_encrypted:
        return None
    certificate, key = settings.tls.certificate, settings.tls.key
    assert certificate is not None, "settings saw to that"
    assert key is not None, "settings saw to that"
    ca = settings.tls.client_ca if settings.tls.require_client_certificate else None
    return ServiceTls(
        chain=_read(certificate), key=_read(key), clients=None if ca is None else _read(ca)
    )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read: {(error.strerror or str(error)).lower()}",
            hint="check the path and who may read it",
        ) from error
