"""Hooks in Python: they decide and hear, and can stop nobody."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from quantumqtt import AdmissionRequest, Broker, Hooks
from quantumqtt.errors import ConfigError
from quantumqtt.policy import ClientNews
from tests.authorisation.conftest import Files, StartBroker
from tests.harness import packets
from tests.harness.waiting import wait_until

LATE_MS = 200


class Doorman(Hooks):
    """Lets in whose password is its name backwards, and remembers who came and went."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.came: list[ClientNews] = []
        self.left: list[ClientNews] = []

    async def authenticate(self, requests: Sequence[AdmissionRequest]) -> Sequence[int]:
        self.asked += [request.user_name for request in requests]
        return [
            0 if (request.user_name or "")[::-1].encode() == request.password else 0x86
            for request in requests
        ]

    async def connected(self, clients: Sequence[ClientNews]) -> None:
        self.came += clients

    async def disconnected(self, clients: Sequence[ClientNews]) -> None:
        self.left += clients


def test_hook_decides_about_users_no_file_knows(files: Files, start: StartBroker) -> None:
    files.write_users("ada")
    doorman = Doorman()
    broker = start(hooks=doorman, allow_anonymous=False)
    assert broker.knock("a", "ada", b"ada") == 0
    assert broker.knock("b", "max", b"max") == 0x86
    assert broker.knock("d", "eve", b"eve") == 0
    assert "ada" not in doorman.asked


def test_hooks_hear_who_came_and_who_went(start: StartBroker) -> None:
    doorman = Doorman()
    broker = start(hooks=doorman)
    broker.client("quiet").leave()
    assert broker.knock("named", "eve", b"eve") == 0
    wait_until(lambda: len(doorman.left) == 2, what="two departures told")
    assert [(one.client_id, one.user_name) for one in doorman.came] == [
        ("quiet", None),
        ("named", "eve"),
    ]
    assert doorman.left[0].reason == "normal"


class Stuck(Hooks):
    """Never answers while it is held."""

    def __init__(self) -> None:
        self.entered = threading.Event()

    async def authenticate(self, requests: Sequence[AdmissionRequest]) -> Sequence[int]:
        self.entered.set()
        await asyncio.Event().wait()
        return [0 for _ in requests]

    async def connected(self, clients: Sequence[ClientNews]) -> None:
        raise RuntimeError("a hook of this test fails")

    async def disconnected(self, clients: Sequence[ClientNews]) -> None:
        await asyncio.Event().wait()


def test_stuck_hook_stalls_only_whoever_asked_it(start: StartBroker) -> None:
    stuck = Stuck()
    broker = start(hooks=stuck, limits={"admission_timeout_ms": LATE_MS})
    reader, writer = broker.client("r"), broker.client("w")
    reader.subscribe("t")
    waiting = broker.peer()
    waiting.send(packets.connect("x", version=waiting.version, user_name="eve", password=b"eve"))
    assert stuck.entered.wait(5)
    for number in range(100):
        writer.publish("t", b"%d" % number, qos=1)
        assert reader.take().payload == b"%d" % number
    answer = waiting.receive_a(packets.ConnAck)
    assert answer.reason in {0x88, 0x89}
    reader.ping()


def test_hooks_that_are_not_written_are_not_called(start: StartBroker) -> None:
    broker = start(hooks=Hooks())
    broker.client("a").leave()
    assert broker.knock("b") == 0


def test_two_ways_to_authenticate_are_one_too_many() -> None:
    async def authenticate(requests: Sequence[AdmissionRequest]) -> Sequence[int]:
        return [0 for _ in requests]

    with pytest.raises(ConfigError, match="both authenticate"):
        Broker(authenticate=authenticate, hooks=Doorman())
