"""The native state machine beside the reference model of `tests/model`, step by step."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from quantumqtt.simulation.commands import (
    EXPIRY_NEVER_S,
    AckKind,
    Limits,
    SubscribeFilter,
    Will,
)
from tests.model.clients import (
    CLIENT_IDS,
    FILTERS,
    KEYS,
    PAYLOADS,
    PROPERTIES,
    TOPICS,
    Clients,
)
from tests.model.walk import walk_all

SEEDS = Path(__file__).parent.parent / "model" / "seeds.toml"

QOS = st.integers(0, 2)
PACKET_IDS = st.integers(1, 4)
WHO = st.sampled_from(CLIENT_IDS)
LATE = st.sampled_from([0, 0, 0, 0, 0, 0, 1])
ACK_KINDS = st.sampled_from(list[AckKind](["puback", "pubrec", "pubcomp", "declined"]))
LIMITS = st.builds(
    Limits,
    window_max=st.integers(1, 5),
    queue_count_max=st.integers(0, 6),
    queue_bytes_max=st.sampled_from([0, 8, 20, 60, 1 << 30]),
    subscriptions_max=st.integers(1, 6),
    received_max=st.integers(1, 3),
    retained_bytes_max=st.sampled_from([5, 12, 40, 1 << 30]),
    overflow=st.sampled_from(["expire_session", "drop_oldest", "drop_newest"]),
)
FILTER_ROWS = st.builds(
    SubscribeFilter,
    filter=st.sampled_from(FILTERS),
    qos=QOS,
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    retain_handling=st.integers(0, 2),
    refused=st.sampled_from([None, None, None, 0x87]),
    # No Local on a shared subscription is a protocol error [MQTT-3.8.3-4] and gets no further.
).filter(lambda row: not (row.no_local and row.filter.startswith("$share")))
WILLS = st.builds(
    Will,
    topic=st.sampled_from(["last/will", "t"]),
    payload=st.sampled_from(PAYLOADS),
    qos=QOS,
    retain=st.booleans(),
    delay_s=st.sampled_from([0, 1, 5, 20]),
    expiry_s=st.sampled_from([None, 0, 3]),
)


class MachineBesideModel(RuleBasedStateMachine):
    """Every rule tells both the same; `Versus` compares after each."""

    clients: Clients

    @initialize(limits=LIMITS | st.just(Limits()), batch_count=st.integers(1, 5))
    def begin(self, limits: Limits, batch_count: int) -> None:
        self.clients = Clients(limits, batch_count=batch_count)

    @rule(
        who=WHO,
        clean_start=st.booleans(),
        expiry_s=st.sampled_from([0, 1, 5, 60, EXPIRY_NEVER_S]),
        identity=st.sampled_from(["", "", "", "alice", "bob"]),
        level=st.sampled_from([5, 4, 3]),
        receive_maximum=st.sampled_from([0xFFFF, 1, 2, 3]),
        maximum_packet_bytes=st.sampled_from([0xFFFF_FFFF, 12, 24, 30]),
        will=st.none() | WILLS,
    )
    def connect(
        self,
        who: str,
        clean_start: bool,
        expiry_s: int,
        identity: str,
        level: int,
        receive_maximum: int,
        maximum_packet_bytes: int,
        will: Will | None,
    ) -> None:
        self.clients.open(
            who,
            clean_start=clean_start,
            expiry_s=expiry_s,
            identity=identity,
            level=level,
            receive_maximum=receive_maximum,
            maximum_packet_bytes=maximum_packet_bytes,
            will=will,
        )

    @rule(
        who=WHO,
        fire_will=st.booleans(),
        expiry_s=st.sampled_from([None, 0, 2, 30, EXPIRY_NEVER_S]),
        late=LATE,
        will_grace_s=st.sampled_from([0, 0, 3, 60]),
    )
    def disconnect(
        self, who: str, fire_will: bool, expiry_s: int | None, late: int, will_grace_s: int
    ) -> None:
        self.clients.lose(
            who, fire_will=fire_will, expiry_s=expiry_s, late=late, will_grace_s=will_grace_s
        )

    @rule(who=WHO, will=WILLS, will_grace_s=st.sampled_from([1, 3, 60]))
    def leave_will(self, who: str, will: Will, will_grace_s: int) -> None:
        self.clients.leave_will(who, will, will_grace_s)

    @rule(
        who=WHO,
        rows=st.lists(FILTER_ROWS, min_size=1, max_size=3),
        number=st.sampled_from([None, 1, 200, 268_435_455]),
        late=LATE,
    )
    def subscribe(
        self, who: str, rows: list[SubscribeFilter], number: int | None, late: int
    ) -> None:
        self.clients.subscribe(who, rows, number, late=late)

    @rule(who=WHO, texts=st.lists(st.sampled_from(FILTERS), min_size=1, max_size=3), late=LATE)
    def unsubscribe(self, who: str, texts: list[str], late: int) -> None:
        self.clients.unsubscribe(who, texts, late=late)

    @rule(
        who=WHO,
        topic=st.sampled_from(TOPICS),
        payload=st.sampled_from(PAYLOADS),
        properties=st.sampled_from(PROPERTIES),
        qos=QOS,
        packet_id=PACKET_IDS,
        retain=st.booleans(),
        expiry_s=st.sampled_from([None, 0, 1, 4, 30]),
        captured=st.booleans(),
        dedupe=st.sampled_from([None, None, None, *KEYS]),
        late=LATE,
    )
    def publish(
        self,
        who: str,
        topic: str,
        payload: bytes,
        properties: bytes,
        qos: int,
        packet_id: int,
        retain: bool,
        expiry_s: int | None,
        captured: bool,
        dedupe: tuple[str, str] | None,
        late: int,
    ) -> None:
        self.clients.publish(
            who,
            topic,
            payload,
            properties=properties,
            qos=qos,
            packet_id=packet_id,
            retain=retain,
            expiry_s=expiry_s,
            captured=captured,
            dedupe=dedupe,
            late=late,
        )

    @rule(who=WHO)
    def publish_again(self, who: str) -> None:
        self.clients.publish_again(who)

    @rule(who=WHO, packet_id=PACKET_IDS, late=LATE)
    def release(self, who: str, packet_id: int, late: int) -> None:
        self.clients.release(who, packet_id, late=late)

    @rule(who=WHO, place=st.integers(0, 3), reason=st.sampled_from([0, 0, 0, 0x10, 0x80]))
    def acknowledge_what_was_sent(self, who: str, place: int, reason: int) -> None:
        self.clients.ack_due(who, place, reason=reason)

    @rule(
        who=WHO,
        packet_id=st.integers(0, 6),
        kind=ACK_KINDS,
        reason=st.sampled_from([0, 0x80, 0x92]),
        late=LATE,
    )
    def acknowledge_anything(
        self, who: str, packet_id: int, kind: AckKind, reason: int, late: int
    ) -> None:
        self.clients.ack(who, packet_id, kind, reason=reason, late=late)

    @rule(later_ms=st.sampled_from([1, 999, 1_000, 4_000, 30_000, 86_400_000, -2_000]))
    def pass_time(self, later_ms: int) -> None:
        self.clients.pass_time(later_ms)

    @rule(beside_ms=st.sampled_from([-1, 0, 1, 5_000]))
    def go_to_deadline(self, beside_ms: int) -> None:
        self.clients.go_to_deadline(beside_ms)

    @rule()
    def tick(self) -> None:
        self.clients.tick()

    @rule(limits=LIMITS)
    def set_limits(self, limits: Limits) -> None:
        self.clients.set_limits(limits)

    def teardown(self) -> None:
        if hasattr(self, "clients"):
            self.clients.versus.check_states()


TestMachineBesideModel = MachineBesideModel.TestCase
TestMachineBesideModel.settings = settings(stateful_step_count=60)


WALK_COUNT = 160
"""About 40 000 commands: the gate's share; `just model` walks millions."""

MUST_BE_SEEN = {
    *(f"SessionEnded {reason}" for reason in ("discarded", "closed", "expired", "overflowed")),
    *("SessionOpened new", "SessionOpened present", "SessionOpened present taken over"),
    *("OpenRefused", "Append will", "Append mqtt"),
    *("Acknowledge puback 0x00", "Acknowledge pubrec 0x00", "Acknowledge pubcomp 0x00"),
    *("Acknowledge puback 0x97", "Acknowledge pubrec 0x97", "Acknowledge pubcomp 0x92"),
    *("Release 0x00", "Release 0x92"),
    *("Deliver q1 dup", "Deliver q2 dup", "Deliver q1 retain", "Deliver q2 several ids"),
    *("Subscribed 0x87", "Subscribed 0x8f", "Subscribed 0x97", "Unsubscribed 0x11"),
}


@pytest.mark.requirement("SUB-05", "SUB-08", "SES-18", "SES-19", "SES-20", "SES-21", "SES-23")
@pytest.mark.requirement("QOS-07", "QOS-09", "QOS-11", "QOS-19", "RET-02", "RET-03", "RET-04")
@pytest.mark.requirement("WILL-10", "DET-01")
def test_random_walks_agree_and_reach_the_rare_paths() -> None:
    seen = walk_all([f"gate-{number}" for number in range(WALK_COUNT)])
    assert MUST_BE_SEEN - set(seen) == set()


def test_seeds_that_found_something_once_find_nothing_now() -> None:
    seeds = tomllib.loads(SEEDS.read_text(encoding="utf-8"))
    walk_all([seed["seed"] for seed in seeds.get("walk", [])])
