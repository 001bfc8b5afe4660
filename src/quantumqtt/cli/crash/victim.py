"""The broker under torture: one process group in a directory of its own, started by any command.

The command is a template: `{port}` becomes a free port of loopback, `{data}` the data directory,
and `{config}` the path of a configuration file, itself such a template, for brokers that take no
more than that. Nothing is run through a shell.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quantumqtt.cli.crash.waiting import wait_until
from quantumqtt.errors import ConfigError, QuantuMQTTError

LOOPBACK: Final = "127.0.0.1"
_TAIL_BYTES: Final = 4_000


class BrokerAbsent(QuantuMQTTError):
    """The broker did not start, or did not come back after it was hurt."""


@dataclass
class Victim:
    """A broker that can be started, hurt and started again on the same data."""

    command: str
    data: Path
    scratch: Path
    config: Path | None = None
    starts_within_s: float = 60.0
    prefix: Sequence[str] = ()
    port: int = 0
    starts_total: int = 0
    slowest_start_s: float = 0.0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse a template that could not work.

        Raises:
            ConfigError: The command has no `{port}`, or names a program that is not there.
        """
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise ConfigError(f"--cmd {self.command!r}: {error}", "balance the quotes") from error
        template = "" if self.config is None else self._template()
        if "{port}" not in self.command + template:
            raise ConfigError(
                f"--cmd {self.command!r} does not say where {{port}} goes",
                "write {port} into the command, or into the file of --config",
            )
        if self.config is not None and "{config}" not in self.command:
            raise ConfigError(
                "--config is given, but --cmd has no {config}",
                "write {config} where the broker expects its configuration file",
            )
        if shutil.which(words[0], path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin") is None:
            raise ConfigError(f"--cmd: {words[0]!r} is not there", "give a path, or install it")
        self.port = self.port or free_port()

    def _template(self) -> str:
        assert self.config is not None
        try:
            return self.config.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--config {self.config}: {error}", "name a readable file") from error

    @property
    def log(self) -> Path:
        """Where everything the broker says goes."""
        return self.scratch / "broker.log"

    @property
    def process_id(self) -> int:
        """The process that was started last."""
        assert self._process is not None, "it was started before"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def words(self) -> list[str]:
        """The command with everything filled in."""
        places = {"{port}": str(self.port), "{data}": str(self.data)}
        if self.config is not None:
            text = self._template()
            for name, value in places.items():
                text = text.replace(name, value)
            written = self.scratch / self.config.name
            written.write_text(text, "utf-8")
            places["{config}"] = str(written)
        words = shlex.split(self.command)
        for name, value in places.items():
            words = [word.replace(name, value) for word in words]
        found = shutil.which(words[0], path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
        return [*self.prefix, found or words[0], *words[1:]]

    async def start(self) -> None:
        """Start it and wait until it accepts connections.

        Raises:
            BrokerAbsent: It ended, or did not accept in time.
        """
        began = time.monotonic()
        self._process = self._spawn()
        ends = began + self.starts_within_s
        await wait_until(lambda: not self.is_running or accepts(self.port), lambda: ends)
        if self.is_running and accepts(self.port):
            self.starts_total += 1
            self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - began)
            return
        state = "does not accept connections" if self.is_running else "ended"
        code = self._process.poll()
        self.kill()
        raise BrokerAbsent(
            f"the broker {state} after {time.monotonic() - began:.1f} s"
            f"{'' if code is None else f' with exit code {code}'}; it said:\n{self.last_words()}",
            f"run it by hand: {shlex.join(self.words())}",
        )

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.words(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def last_words(self) -> str:
        """The end of what it wrote."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; wrappers and children of the broker are part of it."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return

    def kill(self) -> None:
        """End it as `kill -9` does, and reap it."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    async def end(self, within_s: float) -> bool:
        """Ask it to end; False when it had to be killed."""
        self.signal(signal.SIGTERM)
        ends = time.monotonic() + within_s
        obeyed = await wait_until(lambda: not self.is_running, lambda: ends)
        self.kill()
        return obeyed


def accepts(port: int) -> bool:
    """Tell whether somebody listens."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """Borrow a port nobody uses now."""
    with socket.socket() as holder:
        holder.bind((LOOPBACK, 0))
        return int(holder.getsockname()[1])


def our_command(durability: str) -> str:
    """The command of this very package's broker, for tests and examples.

    It does not wait for clients that it lost itself: their wills go out at once.
    """
    return (
        "env QUANTUMQTT_LIMITS__WILL_GRACE_S=0"
        f" {shlex.quote(sys.executable)} -m quantumqtt serve --listen tcp://127.0.0.1:{{port}}"
        f" --admin off --flight off --durability {durability} --data {{data}} --log-level warning"
    )
