"""Random walks of machine and model, by the million: `just model 1000000`.

A walk is a few hundred commands under bounds of its own. Its seed is all there is to know about it:
`just model 1 --seed SEED` does it again. A walk that finds a difference is cut down to the commands
that matter before it is shown. Seeds that found something once stay in `seeds.toml`, and the gate
walks them again each time.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

from quantumqtt.simulation.commands import (
    EXPIRY_NEVER_S,
    AckKind,
    Command,
    Limits,
    OverflowPolicy,
    SubscribeFilter,
    Will,
)
from tests.model.clients import CLIENT_IDS, FILTERS, PAYLOADS, PROPERTIES, TOPICS, Clients
from tests.model.versus import Difference, Versus

STEPS_PER_WALK: Final = 250
ACK_KINDS: Final[tuple[AckKind, ...]] = ("puback", "pubrec", "pubcomp", "declined")
OVERFLOWS: Final[tuple[OverflowPolicy, ...]] = ("expire_session", "drop_oldest", "drop_newest")


def random_limits(dice: random.Random) -> Limits:
    """Bounds so small that they are met, or so large that they are not."""
    if dice.random() < 0.3:
        return Limits()
    return Limits(
        window_max=dice.randint(1, 5),
        queue_count_max=dice.randint(0, 6),
        queue_bytes_max=dice.choice((0, 8, 20, 60, 1 << 30)),
        subscriptions_max=dice.choice((1, 4, 100)),
        received_max=dice.randint(1, 3),
        retained_bytes_max=dice.choice((5, 12, 40, 1 << 30)),
        overflow=dice.choice(OVERFLOWS),
    )


def random_filter(dice: random.Random) -> SubscribeFilter:
    """One row of a SUBSCRIBE."""
    text = dice.choice(FILTERS) if dice.random() < 0.5 else dice.choice(("t", "t/#", "#", "+"))
    return SubscribeFilter(
        filter=text,
        qos=dice.randint(0, 2),
        # A protocol error for shared subscriptions [MQTT-3.8.3-4], refused before it gets here.
        no_local=dice.random() < 0.3 and not text.startswith("$share"),
        retain_as_published=dice.random() < 0.5,
        retain_handling=dice.choice((0, 0, 1, 2)),
        refused=0x87 if dice.random() < 0.05 else None,
    )


def random_will(dice: random.Random) -> Will | None:
    """A will, half of the time."""
    if dice.random() < 0.5:
        return None
    return Will(
        topic=dice.choice(("last/will", "t")),
        payload=dice.choice(PAYLOADS),
        qos=dice.randint(0, 2),
        retain=dice.random() < 0.3,
        delay_s=dice.choice((0, 0, 1, 5, 20)),
        expiry_s=dice.choice((None, None, 0, 3)),
        properties=dice.choice(PROPERTIES),
    )


class Walk:
    """One random walk."""

    def __init__(self, seed: str) -> None:
        """Choose the bounds and where to begin."""
        self.dice = random.Random(seed)
        self.limits = random_limits(self.dice)
        self.clients = Clients(self.limits, batch_count=self.dice.choice((1, 3, 40)))
        actions = {
            self.open: 8,
            self.lose: 6,
            self.leave_will: 1,
            self.subscribe: 9,
            self.unsubscribe: 2,
            self.publish: 30,
            self.publish_again: 2,
            self.release: 5,
            self.ack_due: 22,
            self.ack: 4,
            self.pass_time: 8,
            self.tick: 5,
            self.set_limits: 1,
        }
        self._actions, self._weights = list(actions), list(actions.values())

    def run(self, steps: int = STEPS_PER_WALK) -> None:
        """Walk.

        Raises:
            Difference: Machine and model parted; `clients.log` is the way there.
        """
        for step in range(steps):
            self.dice.choices(self._actions, self._weights)[0]()
            if step % 10 == 9:
                self.clients.versus.check_states()
        self.clients.versus.check_states()

    def someone(self) -> str:
        """Any client; the first is busier than the others."""
        return self.dice.choice((*CLIENT_IDS, CLIENT_IDS[0]))

    def late(self) -> int:
        """How many epochs ago a command was meant: mostly none."""
        return 1 if self.dice.random() < 0.04 else 0

    def open(self) -> None:
        dice, who = self.dice, self.someone()
        self.clients.open(
            who,
            clean_start=dice.random() < 0.2,
            expiry_s=dice.choice((0, 1, 5, 60, EXPIRY_NEVER_S, EXPIRY_NEVER_S)),
            identity=dice.choice(("alice", "bob")) if dice.random() < 0.05 else "",
            level=dice.choice((3, 4, 5, 5)),
            receive_maximum=dice.choice((1, 2, 3, 0xFFFF)),
            maximum_packet_bytes=dice.choice((12, 24, 30, *[0xFFFF_FFFF] * 5)),
            will=random_will(dice),
        )
        # Most clients subscribe at once, whatever is still subscribed.
        if dice.random() < 0.6:
            self.clients.subscribe(who, [random_filter(dice), random_filter(dice)], None)

    def lose(self) -> None:
        dice = self.dice
        expiry_s = dice.choice((None, None, None, 0, 2, 30, EXPIRY_NEVER_S))
        self.clients.lose(
            self.someone(),
            fire_will=dice.random() < 0.7,
            expiry_s=expiry_s,
            late=self.late(),
            will_grace_s=dice.choice((0, 0, 3, 60)),
        )

    def leave_will(self) -> None:
        if will := random_will(self.dice):
            self.clients.leave_will(self.someone(), will, self.dice.choice((1, 3, 60)))

    def subscribe(self) -> None:
        filters = [random_filter(self.dice) for _ in range(self.dice.choice((1, 1, 1, 2, 3)))]
        number = self.dice.choice((None, 1, 2, 200, 268_435_455))
        self.clients.subscribe(self.someone(), filters, number, late=self.late())

    def unsubscribe(self) -> None:
        filters = self.dice.choices(FILTERS, k=self.dice.randint(1, 3))
        self.clients.unsubscribe(self.someone(), filters, late=self.late())

    def publish(self) -> None:
        dice = self.dice
        self.clients.publish(
            self.someone(),
            dice.choice((*TOPICS, "t", "t", "t/u")),
            dice.choice(PAYLOADS),
            qos=dice.choice((0, 1, 1, 1, 2, 2)),
            packet_id=dice.randint(1, 4),
            retain=dice.random() < 0.2,
            expiry_s=dice.choice((None, None, None, 0, 1, 4, 30)),
            captured=dice.random() < 0.1,
            properties=dice.choice(PROPERTIES),
            late=self.late(),
        )

    def publish_again(self) -> None:
        self.clients.publish_again(self.someone())

    def release(self) -> None:
        self.clients.release(self.someone(), self.dice.randint(1, 4), late=self.late())

    def ack_due(self) -> None:
        reason = self.dice.choice((0, 0, 0, 0, 0, 0, 0x10, 0x80))
        place = self.dice.choice((0, 0, 0, 1, 2))
        is_declined = self.dice.random() < 0.1
        self.clients.ack_due(self.someone(), place, reason=reason, is_declined=is_declined)

    def ack(self) -> None:
        packet_id, kind = self.dice.randint(0, 6), self.dice.choice(ACK_KINDS)
        reason = self.dice.choice((0, 0, 0x80, 0x92))
        self.clients.ack(self.someone(), packet_id, kind, reason=reason, late=self.late())

    def pass_time(self) -> None:
        if self.dice.random() < 0.4:
            self.clients.go_to_deadline(self.dice.choice((-1, 0, 1, 5_000)))
        else:
            self.clients.pass_time(self.dice.choice((1, 999, 1_000, 4_000, 30_000, -2_000)))

    def tick(self) -> None:
        self.clients.tick()

    def set_limits(self) -> None:
        self.clients.set_limits(random_limits(self.dice))


def retell(limits: Limits, log: Sequence[tuple[Command, int]]) -> Difference | None:
    """Tell the same commands again, whatever clients would think of it."""
    versus = Versus(limits, batch_count=1)
    try:
        for command, now_ms in log:
            versus.tell(command, now_ms=now_ms)
            versus.check_states()
    except Difference as difference:
        return difference
    return None


def cut_down(limits: Limits, log: list[tuple[Command, int]]) -> list[tuple[Command, int]]:
    """Leave out whatever can be left out while a difference remains."""
    size = max(1, len(log) // 2)
    while True:
        start = 0
        while start < len(log):
            shorter = log[:start] + log[start + size :]
            if retell(limits, shorter):
                log = shorter
            else:
                start += size
        if size == 1:
            return log
        size //= 2


def explain(seed: str, walk: Walk, difference: Difference) -> str:
    """A difference, the shortest way there, and the line that walks it again."""
    lines = [f"seed {seed}: {difference}", f"again: just model 1 --seed {seed}"]
    if retell(walk.limits, walk.clients.log):
        log = cut_down(walk.limits, walk.clients.log)
        lines.append(f"under {walk.limits}")
        lines.extend(f"  {now_ms:>9} {command}" for command, now_ms in log)
        lines.append(f"then {retell(walk.limits, log)}")
    return "\n".join(lines)


def walk_all(seeds: Sequence[str]) -> Counter[str]:
    """Walk each seed.

    Raises:
        Difference: One of them parted; says which and how.
    """
    seen: Counter[str] = Counter()
    for seed in seeds:
        walk = Walk(seed)
        try:
            walk.run()
        except Difference as difference:
            raise Difference(explain(seed, walk, difference)) from None
        seen += walk.clients.seen
    return seen
