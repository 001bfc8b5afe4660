"""`python -m bench.tls`: handshakes, idle memory and throughput over TLS, ours beside Mosquitto's.

Both brokers get the same certificates, ECDSA on P-256, TLS 1.3, one thread, processor 0; clients
are OpenSSL's through Python on processor 1. A client pays more for a handshake than a broker, so
what counts is the broker's own processor time, and the rate it would reach with a whole one.
"""

import argparse
import json
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from bench.brokers import LOOPBACK, Broker, Mosquitto, Ours, Running, pinned, running
from bench.generator import raise_descriptor_limit
from bench.machine import commit
from bench.measure import BROKER_CPUS, GENERATOR_CPUS
from bench.results import folder_of_today
from tests.harness import packets
from tests.harness.certificates import Authority, Credentials
from tests.harness.packets import Version

_HANDSHAKES: Final = 1_500
_IDLE: Final = 2_000
_BLOCKS: Final = 3_000
_PAYLOAD: Final = b"x" * 64
_BLOCK_BYTES: Final = 16 * 1024
_CONNACK_BYTES: Final = 4
_SUBACK_BYTES: Final = 5

Figures = Mapping[str, float]


class OursEncrypted(Ours):
    """This tree's broker behind TLS."""

    def __init__(self, server: Credentials, clients: Authority | None) -> None:
        """Take the certificates of the comparison."""
        self._server, self._clients = server, clients

    def command(self, port: int, folder: Path, shards: int) -> Sequence[str]:
        """As ever, with another scheme."""
        plain = super().command(port, folder, shards)
        said = tuple(word.replace("tcp://", "tls://") for word in plain)
        files = ["--cert", str(self._server.certificate), "--key", str(self._server.key)]
        if self._clients is not None:
            files += ["--cafile", str(self._clients.file), "--require-certificate"]
        return (*said, *files)


class MosquittoEncrypted(Mosquitto):
    """Mosquitto behind TLS."""

    def __init__(self, server: Credentials, clients: Authority | None) -> None:
        """Take the certificates of the comparison."""
        self._server, self._clients = server, clients

    def command(self, port: int, folder: Path, shards: int) -> Sequence[str]:
        """As ever, with certificates."""
        said = super().command(port, folder, shards)
        lines = [
            f"certfile {self._server.certificate}",
            f"keyfile {self._server.key}",
            "tls_version tlsv1.3",
        ]
        if self._clients is not None:
            lines += [f"cafile {self._clients.file}", "require_certificate true"]
        with Path(said[-1]).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return said


def cpu_s(broker: Running) -> float:
    """Read the processor time a broker has used, user and system."""
    fields = Path(f"/proc/{broker.process_id}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_bytes(broker: Running) -> int:
    """Read how much memory of its own a broker holds."""
    status = Path(f"/proc/{broker.process_id}/status").read_text("ascii")
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def connect(
    broker: Running, context: ssl.SSLContext, name: str, session: ssl.SSLSession | None = None
) -> ssl.SSLSocket:
    """Open an MQTT session over TLS."""
    wire = socket.create_connection((LOOPBACK, broker.port), timeout=60)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    secure = context.wrap_socket(wire, server_hostname="localhost", session=session)
    secure.sendall(packets.connect(name, version=Version.V311))
    receive(secure, _CONNACK_BYTES)
    return secure


def receive(wire: ssl.SSLSocket, count: int) -> None:
    """Take exactly so many bytes."""
    while count > 0:
        chunk = wire.recv(min(count, 1 << 16))
        if not chunk:
            raise ConnectionResetError("the broker has closed")
        count -= len(chunk)


def measure_handshakes(broker: Running, context: ssl.SSLContext, *, resumed: bool) -> Figures:
    """Connect again and again, with whole handshakes or by ticket."""
    with connect(broker, context, "first") as first:
        session = first.session if resumed else None
    before, started = cpu_s(broker), time.monotonic()
    for number in range(_HANDSHAKES):
        with connect(broker, context, f"c{number}", session) as wire:
            if wire.session_reused != resumed:
                raise RuntimeError("a session was not resumed as it was meant to be")
            if resumed:
                session = wire.session
    used = cpu_s(broker) - before
    return {
        "cpu_us_each": used / _HANDSHAKES * 1e6,
        "per_cpu_second": _HANDSHAKES / used,
        "per_second_here": _HANDSHAKES / (time.monotonic() - started),
    }


def measure_idle(broker: Running, context: ssl.SSLContext) -> Figures:
    """Hold connections that do nothing."""
    with ExitStack() as held:
        for number in range(_IDLE // 10):  # what the first ones cost once is not theirs
            held.enter_context(connect(broker, context, f"w{number}"))
        before = anonymous_bytes(broker)
        for number in range(_IDLE):
            held.enter_context(connect(broker, context, f"i{number}"))
        return {"bytes_each": (anonymous_bytes(broker) - before) / _IDLE}


def measure_throughput(broker: Running, context: ssl.SSLContext) -> Figures:
    """Send blocks of small QoS 0 messages to one subscriber."""
    message = packets.publish("bench/t", _PAYLOAD, version=Version.V311)
    in_block = _BLOCK_BYTES // len(message)
    block = message * in_block
    with connect(broker, context, "sub") as reader, connect(broker, context, "pub") as writer:
        reader.sendall(packets.subscribe(1, ("bench/t", 0), version=Version.V311))
        receive(reader, _SUBACK_BYTES)

        def send() -> None:
            for _ in range(_BLOCKS):
                writer.sendall(block)

        sender = threading.Thread(target=send)
        before, started = cpu_s(broker), time.monotonic()
        sender.start()
        receive(reader, len(block) * _BLOCKS)
        took, used = time.monotonic() - started, cpu_s(broker) - before
        sender.join()
    count = in_block * _BLOCKS
    return {"messages_per_second": count / took, "cpu_us_per_message": used / count * 1e6}


@contextmanager
def certificates() -> Iterator[tuple[Authority, Credentials, Credentials]]:
    """Make an authority, a server's and a client's certificate."""
    with TemporaryDirectory(prefix="quantumqtt-bench-tls-") as name:
        authority = Authority(Path(name))
        yield authority, authority.server(), authority.client("client-1")


def measure(broker: Broker, context: ssl.SSLContext) -> dict[str, Figures]:
    """Take every figure of one broker, each from a fresh process."""
    figures: dict[str, Figures] = {}
    scenarios: dict[str, Callable[[Running], Figures]] = {
        "handshakes": lambda one: measure_handshakes(one, context, resumed=False),
        "resumptions": lambda one: measure_handshakes(one, context, resumed=True),
        "idle": lambda one: measure_idle(one, context),
        "throughput": lambda one: measure_throughput(one, context),
    }
    for name, scenario in scenarios.items():
        with running(broker, shards=1, cpus=BROKER_CPUS) as one, pinned(GENERATOR_CPUS):
            figures[name] = scenario(one)
    return figures


def main() -> int:
    """Measure both brokers in turn and print the medians."""
    parser = argparse.ArgumentParser(description="TLS beside Mosquitto, same certificates.")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the median counts")
    parser.add_argument("--into", type=Path, help="folder; default: bench/results/DATE-COMMIT")
    asked = parser.parse_args()
    raise_descriptor_limit()
    rows: dict[tuple[str, str, str], list[float]] = {}
    with certificates() as (authority, server, client):
        for _ in range(asked.repeats):
            for kind in (OursEncrypted, MosquittoEncrypted):
                for clients, shown in ((None, None), (authority, client)):
                    broker = kind(server, clients)
                    if broker.program() is None:
                        print(f"{broker.name} is not installed", file=sys.stderr)
                        continue
                    context = authority.context(shown, oldest=ssl.TLSVersion.TLSv1_3)
                    label = broker.name + ("" if clients is None else " + client certificate")
                    for scenario, figures in measure(broker, context).items():
                        for name, value in figures.items():
                            rows.setdefault((scenario, name, label), []).append(value)
    for (scenario, name, label), values in sorted(rows.items()):
        print(f"{scenario:<12} {name:<20} {label:<34} {median(values):>14,.2f}")
    folder = asked.into or folder_of_today()
    folder.mkdir(parents=True, exist_ok=True)
    kept = {
        "commit": commit(),
        "figures": [[*key, values] for key, values in sorted(rows.items())],
    }
    (folder / "tls.json").write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
