"""The judge: silent over a broker that keeps its promises, and by name over each broken one."""

import pytest

from quantumqtt.cli.crash.ledger import (
    Ledger,
    Property,
    SessionState,
    by_property,
    payload_of,
    read_payload,
)

TOPIC = "t/1"
CLIENT = "sub"


class Story:
    """What a swarm would report, in the words of a test."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def subscribe(self, topic_filter: str = TOPIC, qos: int = 2) -> None:
        self.ledger.on_subscribing(CLIENT, topic_filter, qos)
        self.ledger.on_subscribed(CLIENT, topic_filter, qos)

    def unsubscribe(self, topic_filter: str = TOPIC) -> None:
        self.ledger.on_unsubscribing(CLIENT, topic_filter)
        self.ledger.on_unsubscribed(CLIENT, topic_filter)

    def send(self, qos: int = 2, topic: str = TOPIC, *, is_canary: bool = False) -> int:
        sequence = self.ledger.next_sequence("pub")
        self.ledger.on_sending("pub", sequence, topic, qos, is_canary=is_canary)
        return sequence

    def acknowledge(self, sequence: int) -> None:
        self.ledger.on_acknowledged("pub", sequence, 1.0)

    def complete(self, sequence: int) -> None:
        self.acknowledge(sequence)
        self.ledger.on_completed("pub", sequence)

    def publish(self, qos: int = 2, *, is_canary: bool = False) -> int:
        sequence = self.send(qos, is_canary=is_canary)
        self.complete(sequence)
        return sequence

    def deliver(
        self, sequence: int, qos: int = 2, *, granted: int | None = None, dup: bool = False
    ) -> None:
        payload = payload_of("pub", sequence, qos, TOPIC, 64)
        delivered = qos if granted is None else granted
        self.ledger.on_delivered(CLIENT, TOPIC, payload, delivered, dup=dup)

    def connect(self, *, present: bool, clean: bool = False, keeps: bool = True) -> None:
        before = self.ledger.on_connecting(CLIENT, clean=clean)
        self.ledger.on_connected(CLIENT, before=before, clean=clean, keeps=keeps, present=present)

    def broken(self) -> dict[Property, int]:
        self.ledger.close_round()
        found = by_property(self.ledger.violations)
        return {one: len(findings) for one, findings in found.items() if findings}


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_payload_tells_whose_it_is_and_a_changed_one_nothing() -> None:
    payload = payload_of("pub", 7, 1, TOPIC, 100)
    assert len(payload) == 100
    assert read_payload(payload) == ("pub", 7, 1, TOPIC)
    for at in (0, 4, 50, len(payload) - 1):
        damaged = bytearray(payload)
        damaged[at] ^= 1
        assert read_payload(bytes(damaged)) is None
    assert read_payload(b"") is None


def test_nothing_is_broken_when_everything_comes_once(story: Story) -> None:
    story.subscribe()
    for qos in (1, 2, 1):
        story.deliver(story.publish(qos), qos)
    assert not story.broken()
    assert story.ledger.checked[Property.DELIVERED] == 3


@pytest.mark.parametrize("qos", [1, 2])
def test_an_acknowledged_publish_that_never_comes_is_lost(story: Story, qos: int) -> None:
    story.subscribe()
    lost = story.publish(qos)
    assert story.broken() == {Property.DELIVERED: 1}
    finding = story.ledger.violations[0]
    assert (finding.message, finding.topic, finding.client) == (f"pub:{lost}", TOPIC, CLIENT)
    assert finding.acknowledged_s == 1.0


def test_a_publish_without_an_answer_may_come_or_not(story: Story) -> None:
    story.subscribe()
    story.send()
    story.deliver(story.send())
    assert not story.broken()


def test_a_loss_is_told_once(story: Story) -> None:
    story.subscribe()
    story.publish()
    assert story.broken() == {Property.DELIVERED: 1}
    assert story.broken() == {Property.DELIVERED: 1}


def test_qos_2_twice_is_doubled_even_rounds_later(story: Story) -> None:
    story.subscribe()
    sequence = story.publish()
    story.deliver(sequence)
    assert not story.broken()
    story.deliver(sequence)
    assert story.broken() == {Property.ONCE: 1}


def test_qos_1_may_repeat_after_a_reconnect_or_when_it_was_sent_twice(story: Story) -> None:
    story.subscribe()
    sequence = story.publish(1)
    story.deliver(sequence, 1)
    story.connect(present=True)
    story.deliver(sequence, 1)
    twice = story.send(1)
    story.ledger.on_sending("pub", twice, TOPIC, 1)
    story.complete(twice)
    story.deliver(twice, 1)
    story.deliver(twice, 1)
    assert Property.ONCE not in story.broken()


def test_qos_1_twice_on_one_connection_without_a_reason_is_doubled(story: Story) -> None:
    story.subscribe()
    sequence = story.publish(1)
    story.deliver(sequence, 1)
    story.deliver(sequence, 1)
    assert story.broken() == {Property.ONCE: 1}


def test_a_message_nobody_published_is_invented(story: Story) -> None:
    story.ledger.on_delivered(CLIENT, TOPIC, b"a word nobody said", 1, dup=False)
    story.deliver(99)
    elsewhere = payload_of("pub", story.send(), 2, "t/other", 64)
    story.ledger.on_delivered(CLIENT, TOPIC, elsewhere, 2, dup=False)
    assert story.broken() == {Property.INVENTED: 3}


def test_a_qos_above_the_publishers_is_altered(story: Story) -> None:
    story.subscribe()
    story.deliver(story.publish(1), 1, granted=2)
    assert story.broken() == {Property.INVENTED: 1}


def test_a_message_behind_its_successor_breaks_order(story: Story) -> None:
    story.subscribe()
    first, second = story.publish(), story.publish()
    story.deliver(second)
    story.deliver(first)
    assert story.broken() == {Property.ORDER: 1}


def test_order_is_promised_per_qos_only(story: Story) -> None:
    story.subscribe()
    first, second = story.publish(1), story.publish(2)
    story.deliver(second, 2)
    story.deliver(first, 1)
    assert not story.broken()


@pytest.mark.parametrize(
    ("knows", "present", "is_broken"),
    [(False, False, False), (False, True, True), (True, True, False), (True, False, True)],
)
def test_session_present_is_compared_with_what_was_acknowledged(
    story: Story, knows: bool, present: bool, is_broken: bool
) -> None:
    if knows:
        story.connect(present=False)
    story.connect(present=present)
    assert (Property.SESSION_PRESENT in story.broken()) == is_broken


def test_an_unanswered_connect_leaves_both_answers_open(story: Story) -> None:
    assert story.ledger.on_connecting(CLIENT, clean=False) is SessionState.ABSENT
    story.connect(present=True)
    assert story.ledger.on_connecting(CLIENT, clean=True) is SessionState.PRESENT
    story.connect(present=False)
    assert not story.broken()


def test_a_clean_start_never_finds_a_session_and_ends_filters(story: Story) -> None:
    story.connect(present=False)
    story.subscribe()
    story.connect(present=True, clean=True)
    story.publish()
    assert story.broken() == {Property.SESSION_PRESENT: 1}


def test_an_ended_session_must_not_come_back(story: Story) -> None:
    story.connect(present=False, clean=True, keeps=False)
    story.ledger.on_session_ended(CLIENT)
    story.connect(present=True)
    assert story.broken() == {Property.SESSION_PRESENT: 1}


def test_a_filter_owes_what_was_published_after_its_suback(story: Story) -> None:
    story.publish()
    story.ledger.on_subscribing(CLIENT, TOPIC, 2)
    story.publish()
    story.ledger.on_subscribed(CLIENT, TOPIC, 2)
    assert not story.broken()
    story.publish()
    assert story.broken() == {Property.DELIVERED: 1}


def test_a_filter_owes_nothing_that_ended_after_its_unsubscribe_left(story: Story) -> None:
    """QoS 2 may be routed as late as PUBREL, so PUBREC alone does not put it before."""
    story.subscribe()
    sequence = story.send()
    story.acknowledge(sequence)
    story.ledger.on_unsubscribing(CLIENT, TOPIC)
    story.complete(sequence)
    assert not story.broken()


def test_a_filter_below_a_topic_matches_what_is_below(story: Story) -> None:
    story.subscribe("t/#")
    story.publish()
    assert story.broken() == {Property.DELIVERED: 1}


def test_a_refused_filter_owes_nothing(story: Story) -> None:
    story.ledger.on_subscribing(CLIENT, TOPIC, 2)
    story.ledger.on_subscribed(CLIENT, TOPIC, 0x87)
    story.publish()
    assert not story.broken()


def test_a_canary_that_does_not_come_means_a_lost_subscription(story: Story) -> None:
    story.subscribe()
    story.publish(1, is_canary=True)
    assert story.broken() == {Property.SUBSCRIPTIONS: 1}


def test_a_delivery_after_unsuback_means_a_filter_came_back(story: Story) -> None:
    story.subscribe()
    story.unsubscribe()
    story.deliver(story.publish())
    assert story.broken() == {Property.UNSUBSCRIPTIONS: 1}


def test_a_delivery_that_crossed_unsubscribe_is_fine(story: Story) -> None:
    story.subscribe()
    sequence = story.send()
    story.unsubscribe()
    story.deliver(sequence)
    assert not story.broken()


def test_retained_is_what_was_acknowledged_last_or_sent_after(story: Story) -> None:
    ledger = story.ledger
    ledger.on_retaining("r/1", b"old")
    ledger.on_retained("r/1", b"old")
    ledger.on_retaining("r/1", b"new")
    for value in (b"old", b"new"):
        assert not ledger.retained_faults({"r/1": value})
    assert len(ledger.retained_faults({})) == 1
    ledger.on_retained("r/1", b"new")
    assert len(ledger.retained_faults({"r/1": b"old"})) == 1
    ledger.on_retaining("r/1", b"")
    ledger.on_retained("r/1", b"")
    assert not ledger.retained_faults({})
    ledger.judge_retained({"r/1": b"new", "r/2": b"never"})
    assert story.broken() == {Property.RETAINED: 2}


def test_a_retained_fault_is_told_once(story: Story) -> None:
    story.ledger.on_retaining("r/1", b"value")
    story.ledger.on_retained("r/1", b"value")
    story.ledger.judge_retained({})
    story.ledger.judge_retained({})
    assert story.broken() == {Property.RETAINED: 1}


def test_wills_come_when_due_and_only_then(story: Story) -> None:
    ledger = story.ledger
    for name in (b"will:due", b"will:gone", b"will:late", b"will:open"):
        ledger.on_will_accepted("mortal", "w", name, is_delayed=name == b"will:late")
    ledger.on_will_due(b"will:due")
    ledger.on_will_withdrawn(b"will:gone")
    assert ledger.missing_wills() == [b"will:due"]
    ledger.on_will_published(b"will:due")
    ledger.on_will_published(b"will:open")
    assert not ledger.missing_wills()
    assert not story.broken()


@pytest.mark.parametrize("which", ["missing", "withdrawn", "early"])
def test_each_wrong_will_is_named(story: Story, which: str) -> None:
    ledger = story.ledger
    ledger.on_will_accepted("mortal", "w", b"will:1", is_delayed=which == "early")
    if which == "missing":
        ledger.on_will_due(b"will:1")
    elif which == "withdrawn":
        ledger.on_will_withdrawn(b"will:1")
        assert not story.broken()
        ledger.on_will_published(b"will:1")
    else:
        ledger.on_will_published(b"will:1")
    assert story.broken() == {Property.WILLS: 1}
    assert story.broken() == {Property.WILLS: 1}, "it is told once"


def test_a_will_nobody_left_is_invented(story: Story) -> None:
    story.ledger.on_will_published(b"something else")
    assert story.broken() == {Property.INVENTED: 1}


def say_goodbye(story: Story) -> None:
    story.ledger.on_will_accepted("mortal", "w", b"will:1", is_delayed=False)
    story.ledger.on_goodbye(b"will:1")


def test_a_goodbye_that_nothing_was_acknowledged_after_may_be_lost_in_a_crash(story: Story) -> None:
    """MQTT has no answer to DISCONNECT, so the broker had promised nothing yet."""
    sent_before = story.send()
    say_goodbye(story)
    story.complete(sent_before)
    story.send()
    story.ledger.on_crashed()
    story.ledger.on_will_published(b"will:1")
    story.deliver(sent_before)
    assert not story.broken()


def test_a_goodbye_before_what_was_acknowledged_outlives_a_crash(story: Story) -> None:
    say_goodbye(story)
    story.publish()
    story.ledger.on_crashed()
    assert not story.broken()
    story.ledger.on_will_published(b"will:1")
    assert story.broken() == {Property.WILLS: 1}


def test_what_is_acknowledged_after_a_crash_proves_nothing_of_before(story: Story) -> None:
    say_goodbye(story)
    story.ledger.on_crashed()
    story.publish()
    story.ledger.on_will_published(b"will:1")
    assert not story.broken()


@pytest.mark.parametrize("crashes_later", [False, True])
def test_a_will_after_a_goodbye_is_wrong_while_the_broker_lives(
    story: Story, crashes_later: bool
) -> None:
    say_goodbye(story)
    story.ledger.on_will_published(b"will:1")
    if crashes_later:
        story.ledger.on_crashed()
    assert story.broken() == {Property.WILLS: 1}
