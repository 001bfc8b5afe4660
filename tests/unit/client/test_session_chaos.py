"""Whatever is cut wherever: nothing accepted is lost, and exactly once is once, both ways."""

# Receipts can be awaited, and nobody has to.
# mypy: disable-error-code="unused-awaitable"

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from quantumqtt.client.options import SessionOptions
from quantumqtt.client.protocol import State
from quantumqtt.errors import SessionLost
from tests.harness.packets import Key, Version
from tests.harness.pretend_broker import PretendBroker
from tests.unit.client.rig import Rig

if TYPE_CHECKING:
    from quantumqtt.client.receipts import Receipt

QOS = strategies.integers(0, 2)
COUNT = strategies.one_of(strategies.none(), strategies.integers(1, 40))


class Chaos(RuleBasedStateMachine):
    """A client and a broker on a wire that is cut at any byte."""

    keeps_session = True

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[bytes, int, Receipt]] = []
        self.sent_down: list[tuple[bytes, int]] = []
        self.number = 0

    @initialize(version=strategies.sampled_from(Version), window=strategies.integers(1, 4))
    def start(self, version: Version, window: int) -> None:
        broker = PretendBroker(version=version, keeps_session=self.keeps_session)
        if version is Version.V5:
            broker.properties = ((Key.RECEIVE_MAXIMUM, window),)
        name = {Version.V31: "3.1", Version.V311: "3.1.1", Version.V5: "5"}[version]
        if version is Version.V31:
            name, broker.version = "3.1.1", Version.V311
        self.rig = Rig(broker, self.options(name, window))
        self.rig.subscribe("down")
        self.rig.connect()

    def options(self, version: str, window: int) -> SessionOptions:
        return SessionOptions(
            client_id="chaos",
            version=version,  # type: ignore[arg-type]
            session_expiry_s=60,
            inflight_max=window,
        )

    def next_payload(self) -> bytes:
        self.number += 1
        return str(self.number).encode()

    @rule(qos=QOS)
    def publish(self, qos: int) -> None:
        payload = self.next_payload()
        self.sent.append((payload, qos, self.rig.publish(payload, qos)))

    @precondition(lambda self: self.rig.session.state is State.OPEN)
    @rule(qos=QOS)
    def broker_publishes(self, qos: int) -> None:
        payload = self.next_payload()
        self.sent_down.append((payload, qos))
        self.rig.broker_sends(self.rig.broker.send(payload, qos=qos))

    @precondition(lambda self: self.rig.session.state is not State.IDLE)
    @rule(count=COUNT)
    def carry_up(self, count: int | None) -> None:
        self.rig.carry_up(count)

    @precondition(lambda self: self.rig.session.state is not State.IDLE)
    @rule(count=COUNT)
    def carry_down(self, count: int | None) -> None:
        self.rig.carry_down(count)

    @rule()
    def accept(self) -> None:
        self.rig.accept_all()

    @precondition(lambda self: self.rig.session.state is not State.IDLE)
    @rule()
    def cut(self) -> None:
        self.rig.cut()

    @precondition(lambda self: self.rig.session.state is State.IDLE)
    @rule()
    def reconnect(self) -> None:
        self.rig.begin()

    @invariant()
    def nothing_is_twice_that_must_be_once(self) -> None:
        if not hasattr(self, "rig"):
            return
        received = Counter(self.rig.broker.received)
        assert all(received[payload] <= 1 for payload, qos, _ in self.sent if qos == 2)
        handed_out = Counter(message.payload for message in self.rig.sink.messages)
        assert all(handed_out[payload] <= 1 for payload, qos in self.sent_down if qos == 2)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        rig = self.rig
        if rig.session.state is State.IDLE:
            rig.begin()
        for _ in range(2):
            rig.settle()
            rig.accept_all()
        rig.settle()
        self.check_upwards()
        if self.keeps_session:
            self.check_downwards()

    def check_upwards(self) -> None:
        received = set(self.rig.broker.received)
        for payload, qos, receipt in self.sent:
            assert receipt.done()
            if receipt.exception() is None:
                assert qos == 0 or payload in received
            elif qos == 2:
                assert isinstance(receipt.exception(), SessionLost)
                assert not self.keeps_session
            else:
                assert qos == 0
        assert not self.rig.session.unsettled
        assert self.rig.session.unsettled_bytes == 0

    def check_downwards(self) -> None:
        handed_out = {message.payload for message in self.rig.sink.messages}
        assert all(payload in handed_out for payload, qos in self.sent_down if qos)
        assert self.rig.broker.owed == 0


class ForgetfulChaos(Chaos):
    """The same with a broker that forgets the session whenever the wire is cut."""

    keeps_session = False


class CrashingChaos(Chaos):
    """The same with a client whose process dies and which then goes on from its store."""

    def options(self, version: str, window: int) -> SessionOptions:
        return SessionOptions(
            client_id="chaos",
            version=version,  # type: ignore[arg-type]
            inflight_max=window,
            is_stored=True,
        )

    def __init__(self) -> None:
        super().__init__()
        self.handed_out: Counter[bytes] = Counter()
        self.accepted: set[bytes] = set()

    @rule()
    def accept(self) -> None:
        self.accepted |= {message.payload for message in self.rig.sink.messages}
        self.rig.accept_all()

    @precondition(lambda self: self.rig.session.state is not State.IDLE)
    @rule()
    def settle(self) -> None:
        self.rig.settle()

    @rule()
    def crash(self) -> None:
        self.handed_out.update(message.payload for message in self.rig.sink.messages)
        recovered = {one.payload: one for one in self.rig.crash()}
        kept = []
        for payload, qos, receipt in self.sent:
            if receipt.done() or not receipt.accepted or not qos:
                kept.append((payload, qos, receipt))
            elif payload in recovered:
                kept.append((payload, qos, recovered.pop(payload)))
            else:
                # Only the broker's word is missing: PUBREL is sent again, without a payload.
                assert qos == 2
                released = recovered.pop(b"")
                kept.append((payload, qos, released))
        self.sent = [one for one in kept if one[1] or one[2].done()]
        self.rig.session.routes.add("down", self.rig.sink)

    @invariant()
    def nothing_is_twice_that_must_be_once(self) -> None:
        """The other way, what the application had accepted is never handed out again."""
        if not hasattr(self, "rig"):
            return
        received = Counter(self.rig.broker.received)
        assert all(received[payload] <= 1 for payload, qos, _ in self.sent if qos == 2)
        again = {message.payload for message in self.rig.sink.messages} & set(self.handed_out)
        assert not again & self.accepted & {payload for payload, qos in self.sent_down if qos == 2}

    def check_downwards(self) -> None:
        handed_out = {message.payload for message in self.rig.sink.messages} | set(self.handed_out)
        assert all(payload in handed_out for payload, qos in self.sent_down if qos)
        assert self.rig.broker.owed == 0


@pytest.mark.requirement("CLI-16", "CLI-19", "CLI-25")
@pytest.mark.parametrize("machine", [Chaos, ForgetfulChaos, CrashingChaos])
def test_nothing_accepted_is_lost_and_nothing_is_twice(machine: type[Chaos]) -> None:
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=40, deadline=None))
