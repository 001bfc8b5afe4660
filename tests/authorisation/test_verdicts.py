"""Passwords are checked once; who comes again is known."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from quantumqtt.mqtt import ReasonCode
from quantumqtt.node.password_desk import PasswordDesk
from quantumqtt.policy.password_file import parse_users
from quantumqtt.policy.passwords import Sha512Hash, hash_password
from tests.authorisation.conftest import Files, StartBroker
from tests.harness.fake_node import FakeEvent, FakeNode
from tests.harness.plans import small_plan

CLIENTS = 200

pytestmark = pytest.mark.requirement("SEC-17")


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Remember every password that was really checked."""
    checked: list[bytes] = []
    verify = Sha512Hash.verify

    def counting(known: Sha512Hash, password: bytes) -> bool:
        checked.append(password)
        return verify(known, password)

    monkeypatch.setattr(Sha512Hash, "verify", counting)
    return checked


def test_known_credentials_are_not_checked_again_until_a_reload(
    files: Files, start: StartBroker, checks: list[bytes]
) -> None:
    names = [f"user-{number}" for number in range(CLIENTS)]
    files.write_users(*names)
    broker = start(allow_anonymous=False)
    for wave in range(3):
        for name in names:
            assert broker.knock(f"{name}-{wave}", name, name.encode()) == 0
        assert len(checks) == CLIENTS, f"wave {wave}"
    broker.reload()
    assert broker.knock("again", names[0], names[0].encode()) == 0
    assert len(checks) == CLIENTS + 1


def test_wrong_credentials_are_checked_each_time(
    files: Files, start: StartBroker, checks: list[bytes]
) -> None:
    files.write_users("ada")
    broker = start(allow_anonymous=False)
    assert broker.knock("a", "ada", b"ada") == 0
    for _ in range(3):
        assert broker.knock("a", "ada", b"adam") == 0x86
    assert checks.count(b"adam") == 3


def test_good_verdict_of_one_user_is_none_for_another(files: Files, start: StartBroker) -> None:
    files.write_users("ada", "bob")
    broker = start(allow_anonymous=False)
    assert broker.knock("a", "ada", b"ada") == 0
    assert broker.knock("b", "bob", b"ada") == 0x86
    assert broker.knock("b", "bobada", b"") == 0x86


def desk_of(node: FakeNode, *, now_ms: float = 0, queue_count_max: int = 100) -> PasswordDesk:
    """Make a password desk for ada, whose password is `right`."""
    node.open(small_plan())
    node.start()
    users = parse_users(f"ada:{hash_password(b'right', 'sha512')}\n", Path("users"))
    return PasswordDesk(
        node, users, timeout_ms=1_000, queue_count_max=queue_count_max, now_ms=lambda: now_ms
    )


def wanted(ticket: int, password: bytes | None = b"right", *, at_ms: int = 0) -> FakeEvent:
    return FakeEvent(
        "admission_wanted", at_ms=at_ms, ticket=ticket, user_name="ada", password=password
    )


class AnswerNode(FakeNode):
    """A fake node that says when it was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = asyncio.Event()

    def answer_admissions(
        self, verdicts: Sequence[tuple[int, int]], *, may_be_remembered: bool = False
    ) -> None:
        super().answer_admissions(verdicts, may_be_remembered=may_be_remembered)
        self.answered.set()


async def answers(desk: PasswordDesk, node: AnswerNode, count: int) -> dict[int, int]:
    """Run a desk until so many requests are answered."""
    desk.start()
    while len(node.answers) < count:
        node.answered.clear()
        await node.answered.wait()
    await desk.stop()
    node.stop()
    return dict(node.answers)


def test_equal_credentials_are_checked_once_at_a_time(checks: list[bytes]) -> None:
    async def scenario() -> dict[int, int]:
        node = AnswerNode()
        desk = desk_of(node)
        desk.on_requests(wanted(ticket) for ticket in range(50))
        return await answers(desk, node, 50)

    assert asyncio.run(scenario()) == dict.fromkeys(range(50), 0)
    assert len(checks) < 50


def test_late_requests_are_skipped_and_surplus_ones_refused(checks: list[bytes]) -> None:
    async def scenario() -> dict[int, int]:
        node = AnswerNode()
        desk = desk_of(node, now_ms=5_000, queue_count_max=2)
        desk.on_requests([wanted(1, at_ms=100), wanted(2, b"x", at_ms=4_900), wanted(3)])
        return await answers(desk, node, 2)

    assert asyncio.run(scenario()) == {
        2: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        3: ReasonCode.SERVER_BUSY,
    }
    assert checks == [b"x"]


def test_verdict_found_with_old_users_is_found_again() -> None:
    class Slow(Sha512Hash):
        def verify(self, password: bytes) -> bool:
            entered.set()
            assert go_on.wait(20)
            return True

    entered, go_on = threading.Event(), threading.Event()

    async def scenario() -> dict[int, int]:
        node = AnswerNode()
        desk = desk_of(node)
        desk.replace({"ada": Slow(b"s", b"d")})
        desk.on_requests([wanted(1)])
        running = asyncio.create_task(answers(desk, node, 1))
        await asyncio.to_thread(entered.wait, 20)
        desk.replace({})
        go_on.set()
        return await running

    assert asyncio.run(scenario()) == {1: ReasonCode.BAD_USER_NAME_OR_PASSWORD}
