"""A stock Mosquitto as a second broker, so that what we promise does not hold with ours only."""

import getpass
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.ports import LOOPBACK, free_port
from tests.harness.waiting import wait_until
from tools import system_packages

DEADLINE_S: Final = 30.0


class MosquittoBroker:
    """One Mosquitto process; it listens when the context begins."""

    def __init__(self, folder: Path, *extra: str, persistent: bool = False) -> None:
        """Plan a broker that keeps its files in `folder`; `extra` are lines of configuration."""
        self.port = free_port()
        self._folder = folder
        self._extra = extra
        self._persistent = persistent
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, or start it again on the same port."""
        program = system_packages.find_program("mosquitto")
        assert program is not None, "tests that need it are marked with needs_program"
        lines = [
            f"listener {self.port} {LOOPBACK}",
            *self._extra,
            "allow_anonymous true",
            f"user {getpass.getuser()}",  # started by root it would become somebody else
            "max_queued_messages 0",
            f"persistence {'true' if self._persistent else 'false'}",
            f"persistence_location {self._folder}/",
        ]
        file = self._folder / "mosquitto.conf"
        file.write_text("\n".join(lines) + "\n")
        self._process = subprocess.Popen(
            [program, "-c", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._listens, what="mosquitto listens", deadline_s=DEADLINE_S)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE_S)
            self._process = None

    def stop(self) -> None:
        """End it as an operator would; it writes its sessions to disk."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._process = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0
