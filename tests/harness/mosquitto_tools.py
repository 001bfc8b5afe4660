"""mosquitto_pub and mosquitto_sub, as scripts and people run them.

They are the clients most installations have at hand and nobody here wrote them. Each call ends by
itself; a subscriber tells on its debug output when it is subscribed, so nothing has to be guessed.
"""

import subprocess
from types import TracebackType
from typing import Final, Self

from tests.harness.node_process import Lines
from tests.harness.ports import LOOPBACK

DEADLINE_S: Final = 30.0
# Into a pipe, stdio would keep lines back until a whole block is full.
_LINE_BUFFERED: Final = ("stdbuf", "-oL")


def mosquitto_pub(port: int, *arguments: str, lines: str | None = None) -> None:
    """Publish and wait for the exchange to end; `lines` go to `-l`."""
    done = subprocess.run(
        ["mosquitto_pub", "-h", LOOPBACK, "-p", str(port), *arguments],
        input=lines,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"mosquitto_pub {arguments}: {done.stderr}"


class MosquittoSub:
    """One running mosquitto_sub that prints `qos retain topic payload` per message."""

    def __init__(self, port: int, *arguments: str) -> None:
        """Start it; the context begins when the broker has granted the subscription.

        A session that resumes may get what it missed, and with `-C` be done, even before that.
        """
        self._command = [
            *_LINE_BUFFERED,
            *("mosquitto_sub", "-h", LOOPBACK, "-p", str(port), "-d", "-F", "> %q %r %t %p"),
            *arguments,
        ]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._lines = Lines(self._process.stdout)
        subscribed = self._lines.wait_for(
            lambda line: line.startswith(("Subscribed", "> ")), deadline_s=DEADLINE_S
        )
        if subscribed is None:
            self._process.kill()
            raise AssertionError("not subscribed:\n" + "\n".join(self._lines.all()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def wait_said(self, words: str) -> None:
        """Wait for a line of its debug output, such as `received UNSUBACK`."""
        said = self._lines.wait_for(lambda line: words in line, deadline_s=DEADLINE_S)
        assert said is not None, f"never said {words!r}:\n" + "\n".join(self._lines.all())

    def messages(self) -> list[str]:
        """Wait until it ends, which `-C count` makes it do, and tell what it printed."""
        assert self._process.wait(DEADLINE_S) == 0, "\n".join(self._lines.all())
        self._lines.join()
        return [line.removeprefix("> ") for line in self._lines.all() if line.startswith("> ")]

    def kill(self) -> None:
        """End it without a word to the broker."""
        self._process.kill()
        self._process.wait()
        self._lines.join()
