"""HiveMQ's community edition: a third broker, by other people and in another language.

It is no package of the system and needs Java, so nothing in the gate waits for it. `just
third-broker` fetches it and runs the client's whole suite against it, in both versions of MQTT.
"""

import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.ports import LOOPBACK, free_port
from tests.harness.waiting import wait_until
from tools.setup import HOUSE

LIBRARY: Final = HOUSE / "target" / "third-broker"
_SERVE: Final = Path(__file__).parent / "third_broker" / "Serve.java"
_DEADLINE_S: Final = 60.0
_CONFIGURATION: Final = """\
<hivemq>
  <listeners>
    <tcp-listener><port>{port}</port><bind-address>{host}</bind-address></tcp-listener>
  </listeners>
  <mqtt>
    <queued-messages><max-queue-size>100000</max-queue-size></queued-messages>
  </mqtt>
  <anonymous-usage-statistics><enabled>false</enabled></anonymous-usage-statistics>
</hivemq>
"""


def is_here() -> bool:
    """Whether it was fetched."""
    return any(LIBRARY.glob("hivemq-*.jar"))


class HivemqBroker:
    """One process of it, with what it stores in a folder of the test's."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for name in ("conf", "data", "extensions"):
            (self._folder / name).mkdir()
        (self._folder / "conf" / "config.xml").write_text(
            _CONFIGURATION.format(port=self.port, host=LOOPBACK), encoding="utf-8"
        )
        with (self._folder / "hivemq.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["java", "-Xmx512m", "-cp", f"{LIBRARY}/*", _SERVE, self._folder],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._listens, what="HiveMQ listens", deadline_s=_DEADLINE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_DEADLINE_S)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0
