"""Brokers under test: how each is started, so that the comparison is fair, and ended again.

Every broker but `quantumqtt-strict` keeps its state in memory. They answer only on loopback, log
nothing per message, send small packets at once (TCP_NODELAY) and drop nothing because of a default
that is smaller than the window of a scenario. A broker that is not installed is left out by name.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

LOOPBACK: Final = "127.0.0.1"
START_DEADLINE_S: Final = 30.0
STOP_DEADLINE_S: Final = 10.0
_POLL_S: Final = 0.005
HOUSE: Final = Path(__file__).resolve().parent.parent
PROGRAM: Final = (sys.executable, "-m", "quantumqtt")


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that accepts connections."""

    name: str
    process_id: int
    port: int
    ready_seconds: float


class Broker(ABC):
    """A kind of broker: whether it is here, and how it is started."""

    name: str
    qos_max: int = 2
    supports_v5: bool = True

    @abstractmethod
    def program(self) -> str | None:
        """Give what is run, or None when it is not installed."""

    @abstractmethod
    def version(self) -> str:
        """Give the version in one line."""

    @abstractmethod
    def command(self, port: int, folder: Path, shards: int) -> Sequence[str]:
        """Write what it needs into `folder` and give the command."""


class Ours(Broker):
    """This tree's broker, through its own door."""

    name = "quantumqtt"

    def program(self) -> str | None:
        """It is always here."""
        return sys.executable

    def version(self) -> str:
        """Name version and native build."""
        return _first_line(*PROGRAM, "version", "--json")

    durability = "memory"

    def command(self, port: int, folder: Path, shards: int) -> Sequence[str]:
        """Durability said aloud; no admin endpoint, which no peer has either."""
        return (
            *PROGRAM,
            *("serve", "--listen", f"tcp://{LOOPBACK}:{port}", "--admin", "off"),
            *("--durability", self.durability, "--shards", str(shards), "--data", str(folder)),
            *("--log-level", "warning"),
        )


class OursStrict(Ours):
    """The same with its log, every acknowledgement synced; no peer here does that."""

    name = "quantumqtt-strict"
    durability = "strict"


class OursGroup(Ours):
    """The same with its log, synced within milliseconds and not waited for."""

    name = "quantumqtt-group"
    durability = "group"


class OursCheckpointing(OursStrict):
    """`strict` with a checkpoint every second, a thousand times as often as anybody would."""

    name = "quantumqtt-strict-checkpoints"

    def command(self, port: int, folder: Path, shards: int) -> Sequence[str]:
        """Only a file can say how often; it lies beside the data, which is alone in its folder."""
        file = folder / "often.toml"
        file.write_text("[storage]\ncheckpoint_interval_s = 1\n", "utf-8")
        command = list(super().command(port, folder / "data", shards))
        return (*command, "--config", str(file))


class Mosquitto(Broker):
    """Eclipse Mosquitto from the system's packages."""

    name = "mosquitto"

    def program(self) -> str | None:
        """Debian keeps it among the programs of the administrator."""
        return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")

    def version(self) -> str:
        """It says its version above its help."""
        return _first_line(self.program() or self.name, "-h")

    def command(self, port: int, folder: Path, shards: int) -> Sequence[str]:
        """No persistence, no logs, no limits that drop."""
        del shards  # it has one thread
        file = folder / "mosquitto.conf"
        lines = (
            f"listener {port} {LOOPBACK}",
            "allow_anonymous true",
            "persistence false",
            "set_tcp_nodelay true",
            "max_inflight_messages 0",
            "max_queued_messages 0",
            "max_queued_bytes 0",
            "sys_interval 0",
            "log_dest none",
            "user root" if os.geteuid() == 0 else "",
        )
        file.write_text("\n".join(lines) + "\n", "utf-8")
        return (self.program() or self.name, "-c", str(file))


class FlashMq(Broker):
    """FlashMQ, where somebody has installed it."""

    name = "flashmq"

    def program(self) -> str | None:
        """Look on the path only."""
        return shutil.which("flashmq")

    def version(self) -> str:
        """It has a flag for that."""
        return _first_line(self.program() or self.name, "--version")

    def command(self, port: int, folder: Path, shards: int) -> Sequence[str]:
        """One thread per shard, and without Nagle's delay."""
        file = folder / "flashmq.conf"
        file.write_text(
            "allow_anonymous true\n"
            f"thread_count {shards}\n"
            f"storage_dir {folder}\n"
            f"log_file {folder}/flashmq.log\n"
            "client_max_write_buffer_size 268435456\n"
            "max_qos_msg_pending_per_client 65535\n"
            "max_qos_bytes_pending_per_client 268435456\n"
            f"listen {{\n  protocol mqtt\n  port {port}\n  inet4_bind_address {LOOPBACK}\n"
            "  tcp_nodelay true\n}\n",
            "utf-8",
        )
        return (self.program() or self.name, "--config-file", str(file))


class Nats(Broker):
    """nats-server with its MQTT door; speaks 3.1.1 only, QoS above 0 goes through its streams."""

    name = "nats-server"
    supports_v5 = False

    def program(self) -> str | None:
        """The Go tool installs into a folder that is rarely on the path."""
        go_programs = Path.home() / "go" / "bin"
        return shutil.which("nats-server") or shutil.which("nats-server", path=str(go_programs))

    def version(self) -> str:
        """It has a flag for that."""
        return _first_line(self.program() or self.name, "--version")

    def command(self, port: int, folder: Path, shards: int) -> Sequence[str]:
        """Streams in a folder of their own; one processor per shard."""
        del shards  # the Go scheduler follows the processors it is given
        file = folder / "nats.conf"
        file.write_text(
            f'host: "{LOOPBACK}"\nport: -1\nserver_name: bench\n'
            f'jetstream {{ store_dir: "{folder}" }}\n'
            f'mqtt {{ host: "{LOOPBACK}", port: {port}, max_ack_pending: 65535 }}\n',
            "utf-8",
        )
        return (self.program() or self.name, "--config", str(file))


class Amqtt(Broker):
    """amqtt, the broker written in Python."""

    name = "amqtt"
    supports_v5 = False

    def program(self) -> str | None:
        """It is a module of this interpreter, or not here."""
        return sys.executable if importlib.util.find_spec("amqtt") else None

    def version(self) -> str:
        """Ask the module."""
        return _first_line(sys.executable, "-c", "import amqtt; print('amqtt', amqtt.__version__)")

    def command(self, port: int, folder: Path, shards: int) -> Sequence[str]:
        """One listener, everybody may come in, no statistics."""
        del shards  # one event loop
        file = folder / "amqtt.yaml"
        file.write_text(
            f"listeners:\n  default:\n    type: tcp\n    bind: {LOOPBACK}:{port}\n"
            "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n"
            "    allow_anonymous: true\n",
            "utf-8",
        )
        return (sys.executable, "-m", "amqtt.scripts.broker_script", "-c", str(file))


ALL: Final[tuple[Broker, ...]] = (Ours(), OursStrict(), Mosquitto(), FlashMq(), Nats(), Amqtt())
# For what only a broker with a log can be asked.
LOGGING: Final[tuple[Broker, ...]] = (OursGroup(), OursCheckpointing())


def by_name(name: str) -> Broker:
    """Find a broker by its name."""
    return next(broker for broker in (*ALL, *LOGGING) if broker.name == name)


@contextmanager
def pinned(cpus: frozenset[int]) -> Iterator[None]:
    """Let this thread, and the processes it starts meanwhile, run on some processors only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus & before or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running(broker: Broker, *, shards: int, cpus: frozenset[int]) -> Iterator[Running]:
    """Start a broker, wait until it accepts, end it with all it wrote."""
    with (
        TemporaryDirectory(prefix="quantumqtt-bench-") as name,
        running_on(broker, Path(name), shards=shards, cpus=cpus) as started,
    ):
        yield started


@contextmanager
def running_on(
    broker: Broker, folder: Path, *, shards: int, cpus: frozenset[int]
) -> Iterator[Running]:
    """Start a broker on what an earlier run has left, wait until it accepts, end it."""
    port = _free_port()
    command = broker.command(port, folder, shards)
    with pinned(cpus), (folder / "output.log").open("wb") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=HOUSE,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_accepting(process, port, folder / "output.log", broker.name)
        yield Running(broker.name, process.pid, port, time.monotonic() - started)
    finally:
        _end(process)


def _wait_accepting(process: subprocess.Popen[bytes], port: int, log: Path, name: str) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            socket.create_connection((LOOPBACK, port), timeout=1).close()
        except OSError:
            time.sleep(_POLL_S)
        else:
            return
    said = log.read_text("utf-8", "replace")[-2000:]
    raise RuntimeError(f"{name} does not accept connections on port {port}; it said:\n{said}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as holder:
        holder.bind((LOOPBACK, 0))
        return int(holder.getsockname()[1])


def _first_line(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HOUSE)
    lines = (ran.stdout or ran.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"
