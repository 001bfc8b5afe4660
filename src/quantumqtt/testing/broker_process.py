"""A broker of its own for one test: a real process, which can be killed as a power cut would.

The process is ready when `start` returns. It listens on a port of loopback that the kernel chose
and keeps that port when it is started again, so that clients find it where it was. Its logs go to
a file beside its data, because a pipe that nobody reads would stop it.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from quantumqtt.errors import ConfigError, TransportError

_READY_WITHIN_S: Final = 30.0
_ENDS_WITHIN_S: Final = 20.0
_LOG_LINES_SHOWN: Final = 20
_CLIENT_SCHEMES: Final[Mapping[str, str]] = {"tcp": "mqtt", "tls": "mqtts"}


class BrokerProcess:
    """One `quantumqtt serve`, on a free port of loopback, with its data in a folder.

    ```
    with BrokerProcess(folder) as broker:
        Client(broker.url)
        broker.kill()
        broker.start()
    ```

    Attributes:
        folder: Where its data and its log are.
    """

    def __init__(
        self, folder: Path, *flags: str, scheme: str = "tcp", host: str = "127.0.0.1"
    ) -> None:
        """Plan a broker; `flags` are those of `quantumqtt serve`.

        Raises:
            ConfigError: A flag is given that the fixture itself decides.
        """
        for flag in flags:
            if flag.partition("=")[0] in ("--listen", "--data", "--json"):
                raise ConfigError(f"{flag} is decided here", hint="leave it out")
        self.folder: Path = folder
        self._flags = flags
        self._scheme = scheme
        self._host = host
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._ready: Mapping[str, object] = {}

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it, and say so when it had ended by itself."""
        self.stop()

    @property
    def port(self) -> int:
        """Where it listens; the same after every start."""
        return self._port

    @property
    def url(self) -> str:
        """What a client is given to find it."""
        host = "localhost" if self._scheme == "tls" else self._host
        return f"{_CLIENT_SCHEMES[self._scheme]}://{host}:{self._port}"

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """The process's id.

        Raises:
            TransportError: It is not running.
        """
        if self._process is None:
            raise TransportError("the broker is not running", hint="start it first")
        return self._process.pid

    def logs(self) -> list[str]:
        """What it logged, over all its lives."""
        file = self.folder / "broker.log"
        return file.read_text("utf-8", "replace").splitlines() if file.exists() else []

    def start(self) -> None:
        """Start it, or start it again where it was; returns when it accepts connections.

        Raises:
            TransportError: It ended instead, or was not ready in time; shows its last words.
        """
        if self.running:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "broker.log").open("a", encoding="utf-8") as log:
            process = self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        line = _first_line(process)
        if not line:
            self.kill()
            said = "\n".join(self.logs()[-_LOG_LINES_SHOWN:])
            raise TransportError(f"the broker did not get ready; it said:\n{said}")
        self._ready = json.loads(line)
        listeners = self._ready["listeners"]
        assert isinstance(listeners, list), "the ready line names where it listens"
        self._port = urlsplit(str(listeners[0])).port or 0

    def stop(self) -> int:
        """End it as an operator does (SIGTERM); gives its exit code, 0 when it was orderly.

        Raises:
            TransportError: It does not end; it was killed.
        """
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise TransportError("the broker did not end and was killed") from error
        finally:
            _close_output(process)

    def kill(self) -> None:
        """End it as a power cut does (SIGKILL): nothing is flushed, nobody is told."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_output(process)

    def kill_and_restart(self) -> None:
        """Kill it and start it again in its place."""
        self.kill()
        self.start()

    def _command(self) -> Sequence[str]:
        flags = list(self._flags)
        if "--admin" not in flags:
            flags += ["--admin", "off"]
        return [
            *(sys.executable, "-m", "quantumqtt", "serve", "--json"),
            *("--listen", f"{self._scheme}://{self._host}:{self._port}"),
            *("--data", str(self.folder / "data")),
            *flags,
        ]


def _first_line(process: subprocess.Popen[str]) -> str:
    """Read the ready line; empty when the process ended, or was too slow and had to."""
    assert process.stdout is not None, "it was started with a pipe"
    too_late = threading.Timer(_READY_WITHIN_S, process.kill)
    too_late.start()
    try:
        return process.stdout.readline()
    finally:
        too_late.cancel()


def _close_output(process: subprocess.Popen[str]) -> None:
    if process.stdout is not None:
        process.stdout.close()
