"""`quantumqtt bench` against `quantumqtt serve`: every scenario, short, and what it says."""

import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness.lying_broker import Lie, LyingBroker
from tests.harness.node_process import PROGRAM, NodeProcess, clean_environment
from tests.harness.waiting import wait_until

DEADLINE_S = 60.0
VIOLATED = 3


def bench(port: int, *arguments: str) -> tuple[int, Mapping[str, object]]:
    """Run the command to its end; gives its exit code and what it printed."""
    ran = subprocess.run(
        [*PROGRAM, "bench", *arguments, "-p", str(port), "--json"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def descriptors(process_id: int) -> int:
    return sum(1 for _ in Path(f"/proc/{process_id}/fd").iterdir())


@pytest.mark.parametrize("version", ["3", "4", "5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_pairs_are_counted_to_the_last_message(server: NodeProcess, qos: str, version: str) -> None:
    code, report = bench(server.port, "pairs", "-c", "3", "-L", "3000", "-q", qos, "-V", version)
    assert code == 0, report
    assert report["sent"] == report["received"] == report["expected"] == 3000
    assert report["acknowledged"] == (0 if qos == "0" else 3000)
    assert report["violations"] == report["faults"] == {}


def test_persistent_subscribers_leave_no_session_behind(server: NodeProcess) -> None:
    for version in ("4", "5"):
        arguments = ("-c", "2", "-L", "200", "-q", "1", "-C", "false", "-V", version)
        code, report = bench(server.port, "pairs", *arguments)
        assert code == 0, report
        assert report["received"] == 200


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("fan-in", "-c", "4", "--subscribers", "2", "-L", "400"), 800),
        (("fan-out", "--subscribers", "20", "-L", "50"), 1_000),
        (("pairs", "-c", "2", "-L", "400", "--topics", "5", "--single-writes"), 400),
        (("pairs", "-c", "2", "-L", "400", "--threads", "2", "-F", "0"), 400),
        (("pairs", "-c", "1", "-L", "20", "-s", "100000"), 20),
        (("latency", "-c", "2", "-L", "100", "--rate", "2000", "-q", "1"), 100),
        (("pairs", "-c", "2", "-n", "40", "-t", "site/%i/%u", "-u", "me", "-L", "20"), 20),
    ],
)
def test_every_shape_delivers_what_it_promises(
    server: NodeProcess, arguments: tuple[str, ...], expected: int
) -> None:
    code, report = bench(server.port, *arguments)
    assert code == 0, report
    assert report["received"] == report["expected"] == expected


def test_publishing_to_nobody_ends_when_the_broker_has_read_it(server: NodeProcess) -> None:
    code, report = bench(server.port, "pub", "-c", "2", "-L", "20000")
    assert code == 0, report
    assert report["units"] == report["sent"] == 20_000
    assert report["received"] == 0


def test_connecting_again_and_again(server: NodeProcess) -> None:
    code, report = bench(server.port, "conn", "-c", "10", "-L", "100")
    assert code == 0, report
    assert report["units"] == report["connected"] == 100


def test_idle_connections_are_held_and_weighed(server: NodeProcess) -> None:
    arguments = ("-c", "200", "--duration", "0.1", "--broker-pid", str(server.process_id))
    code, report = bench(server.port, "idle", *arguments)
    assert code == 0, report
    assert report["connected"] == 200
    assert report["broker_bytes_per_connection"] is not None
    assert report["broker_us_per_unit"] is not None


def test_the_summary_is_for_people(server: NodeProcess) -> None:
    ran = subprocess.run(
        [*PROGRAM, "bench", "pairs", "-L", "1000", "-q", "1", "-p", str(server.port)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    labels = [line.split("  ")[0] for line in ran.stdout.splitlines()]
    assert labels[0] == "throughput"
    assert {"connections", "latency", "acknowledged", "verdict"} <= set(labels)
    assert ran.stderr == "", "no bar where nobody watches"


def test_ctrl_c_ends_a_run_in_order(server: NodeProcess) -> None:
    before = descriptors(server.process_id)
    with subprocess.Popen(
        [*PROGRAM, "bench", "pairs", "--duration", "600", "-p", str(server.port), "--json"],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(
            lambda: descriptors(server.process_id) >= before + 20,
            what="twenty clients connected",
            deadline_s=DEADLINE_S,
        )
        process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, complaint
    report = json.loads(said)
    assert report["interrupted"] is True
    assert report["judged"] is False
    assert complaint == ""


def every_tenth(lie: Lie) -> Lie:
    return lambda index, packet: lie(index, packet) if index % 10 == 5 else [packet]


def swapped() -> Lie:
    held: list[bytes] = []

    def lie(index: int, packet: bytes) -> list[bytes]:
        if index % 10 == 4:
            held.append(packet)
            return []
        return [packet, *([held.pop()] if held else [])]

    return lie


@pytest.mark.parametrize(
    ("lie", "name", "count"),
    [
        (every_tenth(lambda _, packet: []), "lost", 10),
        (every_tenth(lambda _, packet: [packet, packet]), "duplicated", 10),
        (swapped(), "out_of_order", 10),
        (every_tenth(lambda _, packet: [packet[:-24] + bytes(24)]), "foreign", 10),
    ],
    ids=["loses", "repeats", "swaps", "forgets whose it is"],
)
def test_a_lie_is_counted(lie: Lie, name: str, count: int) -> None:
    with LyingBroker(lie) as broker:
        arguments = ("-c", "1", "-L", "100", "-q", "1", "-s", "24", "-F", "1", "-V", "4")
        code, report = bench(broker.port, "pairs", *arguments, "--patience", "0.5")
    assert report[name] == count
    qos1_allows = name == "duplicated"
    assert code == (0 if qos1_allows else VIOLATED)


def test_work_nobody_asked_for_is_no_throughput() -> None:
    with LyingBroker(lambda _, packet: [packet] * 3) as broker:
        arguments = ("-c", "1", "-L", "50", "-F", "1", "-V", "4", "--patience", "0.5")
        code, report = bench(broker.port, "pairs", *arguments)
    # The run ends with the last message that was asked for, wherever its copies are then.
    assert report["units"] == report["expected"] == 50
    assert report["duplicated"] in range(98, 101)
    assert code == VIOLATED, "QoS 0 delivers at most once"


def test_an_altered_payload_is_a_violation() -> None:
    with LyingBroker(lambda _, packet: [packet[:-1] + b"?"]) as broker:
        arguments = ("-c", "1", "-L", "65", "-F", "1", "-V", "4")
        code, report = bench(broker.port, "pairs", *arguments)
    assert report["faults"] == {"altered_payload": 2}, "one payload in 64 is compared"
    assert code == VIOLATED
