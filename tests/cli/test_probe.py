"""`quantumqtt test`: what it finds on our broker, on Mosquitto, and on brokers that lie."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.programs import OURS, Programs
from tests.harness.lying_broker import Lie, LyingBroker
from tests.harness.mosquitto_broker import MosquittoBroker
from tests.harness.ports import LOOPBACK, free_port

pytestmark = pytest.mark.requirement("WIRE-22")

# What Mosquitto 2.0 is known to do otherwise; releases differ, so these may or may not show.
MOSQUITTO_DIFFERS = {
    "reserved header flags are as fixed",
    "a taken-over client is told why",
    "no-local is no option of a share group",
}
Document = dict[str, object]


def probe(programs: Programs, *arguments: str) -> tuple[int, dict[str, str], Document]:
    """Run the command; returns the exit code, what was violated and the whole document."""
    ran = programs.run(OURS, "test", *arguments, "--json")
    assert ran.complaint == ""
    document = json.loads(ran.output)
    checks = document["checks"]
    violated = {one["title"]: one["detail"] for one in checks if one["verdict"] == "violated"}
    return ran.code, violated, document


def test_our_broker_obeys(programs: Programs) -> None:
    code, violated, document = probe(programs, f"mqtt://{LOOPBACK}:{programs.port}")
    assert violated == {}
    assert code == 0
    assert document["not_spoken"] == {}
    assert document["left_behind"] == []
    checks = document["checks"]
    assert isinstance(checks, list)
    assert {one["version"] for one in checks} == {"3.1.1", "5"}
    assert all(re.fullmatch(r"MQTT[- ]\d[-.\d]+", one["clause"]) for one in checks)
    kept = document["kept"]
    assert isinstance(kept, int)
    assert kept >= 100


def test_nothing_is_left_at_the_broker(programs: Programs) -> None:
    """Neither retained messages nor sessions; the run before, in any order, has made some."""
    where = f"mqtt://{LOOPBACK}:{programs.port}"
    assert probe(programs, where, "--polite", "-V", "5")[0] == 0
    left = programs.ours("sub", "-t", "quantumqtt-test/#", "-v", "-W", "1")
    assert left.output == b""


@pytest.mark.needs_program("mosquitto")
def test_mosquitto_obeys_but_for_what_is_known(programs: Programs, tmp_path: Path) -> None:
    with MosquittoBroker(tmp_path) as broker:
        code, violated, document = probe(programs, f"{LOOPBACK}:{broker.port}")
    assert set(violated) <= MOSQUITTO_DIFFERS
    assert code == (3 if violated else 0)
    assert document["left_behind"] == []


def repeats(_index: int, packet: bytes) -> list[bytes]:
    return [packet, packet]


def drops(_index: int, _packet: bytes) -> list[bytes]:
    return []


def garbles(_index: int, packet: bytes) -> list[bytes]:
    return [b"\x30\x02\x00\x09"]


@pytest.mark.parametrize(
    ("lie", "title", "detail"),
    [
        (repeats, "QoS 0 is delivered once", "PUBLISH on"),
        (drops, "QoS 0 is delivered once", "nothing came"),
        (garbles, "QoS 0 is delivered once", "no MQTT"),
        (repeats, "nothing but CONNECT may come first", "instead of a close"),
        (repeats, "UNSUBSCRIBE is answered and obeyed", "nothing came"),
    ],
    ids=["repeats", "drops", "garbles", "answers before CONNECT", "knows no UNSUBSCRIBE"],
)
def test_a_lie_is_named(programs: Programs, lie: Lie, title: str, detail: str) -> None:
    with LyingBroker(lie) as broker:
        arguments = (
            f"{LOOPBACK}:{broker.port}",
            "-V",
            "3.1.1",
            "--timeout",
            "0.2",
            "--only",
            title,
        )
        code, violated, _ = probe(programs, *arguments)
    assert code == 3
    assert detail in violated[title]


def test_a_version_that_is_not_spoken_is_no_violation(programs: Programs) -> None:
    """The lying broker answers MQTT 5 as 3.1.1 would; so it does not speak it."""
    with LyingBroker(drops) as broker:
        arguments = (
            f"{LOOPBACK}:{broker.port}",
            "-V",
            "5",
            "--timeout",
            "0.2",
            "--only",
            "PINGREQ",
        )
        ran = programs.run(OURS, "test", *arguments, "--json")
    document = json.loads(ran.output)
    assert ran.code == 1
    assert list(document["not_spoken"]) == ["5"]
    assert document["checks"] == []


def test_the_table_is_for_people(programs: Programs) -> None:
    ran = programs.run(
        OURS, "test", f"{LOOPBACK}:{programs.port}", "--polite", "-V", "3.1.1", "--only", "QoS"
    )
    lines = [line.rstrip() for line in ran.output.decode().splitlines()]
    assert lines[0].split() == ["clause", "what", "it", "asks", "3.1.1"]
    assert lines[1].startswith("[MQTT-4.3.1-1]")
    assert lines[1].endswith("kept")
    assert re.fullmatch(r"\d+ kept, 0 violated, \d+ not offered", lines[-1])
    assert "\x1b" not in ran.output.decode()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((f"{LOOPBACK}:{free_port()}",), 1),
        (("http://example",), 2),
        ((f"{LOOPBACK}:1", "--version", "4"), 2),
        ((f"{LOOPBACK}:1", "--only", "no such thing"), 2),
    ],
    ids=["nobody there", "scheme", "version", "clause"],
)
def test_what_cannot_be_asked(programs: Programs, arguments: tuple[str, ...], code: int) -> None:
    ran = programs.run(OURS, "test", *arguments)
    assert ran.code == code
    assert ran.complaint.startswith("error: ")
