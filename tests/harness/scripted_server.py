"""A server of one page: what it says on each connection is a function of the test."""

import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from tests.harness.ports import LOOPBACK

DEADLINE_S: Final = 20.0
CONNACK_5: Final = b"\x20\x03\x00\x00\x00"
CONNACK_3: Final = b"\x20\x02\x00\x00"

Script = Callable[[socket.socket], None]


class ScriptedServer:
    """Plays one script per connection, in the order of connections; afterwards it is gone.

    A script that raises fails the test, unless the client simply left.
    """

    def __init__(self, *scripts: Script) -> None:
        self._scripts: Sequence[Script] = scripts
        self._errors: list[BaseException] = []
        self._listener = socket.create_server((LOOPBACK, 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port = int(self._listener.getsockname()[1])
        self.url = f"mqtt://{LOOPBACK}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A thread in accept() does not hear of close(); shutdown() tells it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "a script does not end"
        if kind is None and self._errors:
            raise self._errors[0]

    def _serve(self) -> None:
        for script in self._scripts:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            link.settimeout(DEADLINE_S)
            with link:
                try:
                    script(link)
                except ConnectionError:
                    continue
                except BaseException as failure:
                    self._errors.append(failure)
                    return


def until_closed(link: socket.socket) -> bytes:
    """Read what the client still says, until it leaves."""
    said = b""
    try:
        while data := link.recv(65_536):
            said += data
    except ConnectionError:
        pass
    return said
