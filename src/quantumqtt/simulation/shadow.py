"""What the committed commands mean, worked out a second time and as plainly as can be.

The shadow reads the log entry by entry, as it is seen to be committed. From the commands alone it
knows which sessions there are, whose connection is the present one, what each is subscribed to and
which messages it must therefore get. Numbers that the machine hands out (epochs, incarnations,
offsets) are taken from the effects; what they are handed out for is not. Invariants compare both.
"""

from dataclasses import dataclass, field

from quantumqtt.simulation import commands, effects
from quantumqtt.simulation.commands import EXPIRY_NEVER_S, Command, Origin
from quantumqtt.simulation.durable import Applied
from quantumqtt.simulation.packets import number_of


@dataclass(frozen=True, slots=True)
class Expected:
    """A message that a session must get."""

    number: int | None
    qos: int
    topic: str


@dataclass(slots=True, kw_only=True)
class Session:
    """A stored session, as the log tells."""

    client_id: str
    incarnation: int
    epoch: int
    origin: Origin | None
    expiry_s: int
    detached_at_ms: int | None = None
    filters: dict[str, int] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    expected: dict[int, Expected] = field(default_factory=dict)

    def is_over(self, now_ms: int) -> bool:
        """Whether its time is up, whether or not anybody has looked."""
        if self.detached_at_ms is None or self.expiry_s == EXPIRY_NEVER_S:
            return False
        return now_ms >= self.detached_at_ms + self.expiry_s * 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """One entry as the shadow reads it; a list beside `commands` tells which of them count."""

    applied: Applied
    counts: tuple[bool, ...]
    appended: dict[int, int]
    """Offsets by number of message."""
    left: tuple[Origin, ...]
    """Connections that are said to have left in good order."""


@dataclass(slots=True)
class WillState:
    """The will of one connection."""

    fired: int = 0
    must_fire: bool = False
    may_fire: bool = True


class Shadow:
    """See the head of this file."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self.now_ms = 0
        self.sessions: dict[str, Session] = {}
        self.retained: dict[str, int] = {}
        self.committed: dict[int, list[int]] = {}
        self.presence: dict[Origin, bool] = {}
        """What each CONNACK has to say."""
        self.wills: dict[bytes, WillState] = {}
        self._will_of: dict[Origin, bytes] = {}
        self._left: list[Origin] = []
        self._emptied: dict[str, list[int]] = {}
        """Offsets of messages without payload in the present entry, by topic, in order."""

    def session_of(self, client_id: str, epoch: int) -> Session | None:
        """The session, if that epoch is the present one."""
        session = self.sessions.get(client_id)
        return session if session is not None and session.epoch == epoch else None

    def read(self, applied: Applied) -> Reading:
        """Take note of one more entry."""
        self.now_ms = max(self.now_ms, applied.now_ms)
        appended: dict[int, int] = {}
        self._emptied = {}
        self._left = []
        for effect in applied.effects:
            match effect:
                case effects.Append(source="will", payload=payload):
                    self.wills.setdefault(payload, WillState()).fired += 1
                case effects.Append(offset=offset, payload=payload, topic=topic):
                    number = number_of(payload)
                    if number is None:
                        self._emptied.setdefault(topic, []).append(offset)
                    else:
                        appended[number] = offset
                        self.committed.setdefault(number, []).append(offset)
                case _:
                    pass
        counts = tuple(self._read(command, applied, appended) for command in applied.commands)
        for effect in applied.effects:
            if isinstance(effect, effects.SessionEnded):
                session = self.sessions.get(effect.client_id)
                if session is not None and session.epoch == effect.session_epoch:
                    del self.sessions[effect.client_id]
        return Reading(applied, counts, appended, tuple(self._left))

    def _read(self, command: Command, applied: Applied, appended: dict[int, int]) -> bool:
        match command:
            case commands.OpenSession():
                return self._open(command, applied)
            case commands.ConnectionLost():
                return self._lost(command)
            case commands.Subscribe():
                return self._subscribe(command)
            case commands.Unsubscribe():
                return self._unsubscribe(command)
            case commands.Publish():
                return self._publish(command, appended)
            case commands.PubRel():
                session = self._present(command.client_id, command.session_epoch, command.origin)
                if session is not None:
                    session.received.discard(command.packet_id)
                return session is not None
            case _:
                return True

    def _present(self, client_id: str, epoch: int, origin: Origin) -> Session | None:
        """The session a command belongs to: its epoch is the present one, and so is its origin."""
        session = self.session_of(client_id, epoch)
        return session if session is not None and session.origin == origin else None

    def _open(self, command: commands.OpenSession, applied: Applied) -> bool:
        opened = next(
            (
                effect
                for effect in applied.effects
                if isinstance(effect, effects.SessionOpened) and effect.origin == command.origin
            ),
            None,
        )
        if opened is None:
            return False
        session = self.sessions.get(command.client_id)
        if session is not None and session.is_over(self.now_ms):
            session = None
        if session is not None and session.origin is not None:
            self._will_must_fire(session.origin)
        is_present = session is not None and not command.clean_start
        self.presence[command.origin] = is_present
        if session is None or not is_present:
            session = Session(
                client_id=command.client_id,
                incarnation=opened.incarnation,
                epoch=0,
                origin=None,
                expiry_s=0,
            )
            self.sessions[command.client_id] = session
        session.epoch = opened.session_epoch
        session.origin = command.origin
        session.expiry_s = command.expiry_s
        session.detached_at_ms = None
        if command.will is not None:
            self.wills.setdefault(command.will.payload, WillState())
            self._will_of[command.origin] = command.will.payload
        return True

    def _will_must_fire(self, origin: Origin) -> None:
        payload = self._will_of.pop(origin, None)
        if payload is not None:
            self.wills[payload].must_fire = True

    def _lost(self, command: commands.ConnectionLost) -> bool:
        session = self.session_of(command.client_id, command.session_epoch)
        if session is None or session.origin is None:
            return False
        if command.fire_will:
            self._will_must_fire(session.origin)
        else:
            self._left.append(session.origin)
            payload = self._will_of.pop(session.origin, None)
            if payload is not None:
                self.wills[payload].may_fire = False
        session.origin = None
        session.detached_at_ms = self.now_ms
        return True

    def _subscribe(self, command: commands.Subscribe) -> bool:
        session = self._present(command.client_id, command.session_epoch, command.origin)
        if session is None:
            return False
        for asked in command.filters:
            session.filters[asked.filter] = asked.qos
        return True

    def _unsubscribe(self, command: commands.Unsubscribe) -> bool:
        session = self._present(command.client_id, command.session_epoch, command.origin)
        if session is None:
            return False
        for text in command.filters:
            session.filters.pop(text, None)
        return True

    def _publish(self, command: commands.Publish, appended: dict[int, int]) -> bool:
        if command.incarnation:
            session = self._present(command.client_id, command.session_epoch, command.origin)
            if session is None or session.incarnation != command.incarnation:
                return False
            if command.qos == 2:
                if command.packet_id in session.received:
                    return True
                session.received.add(command.packet_id)
        number = number_of(command.payload)
        if number is None:
            emptied = self._emptied.get(command.topic, [])
            offset = emptied.pop(0) if emptied else None
            self.retained.pop(command.topic, None)
        else:
            offset = appended.get(number)
        if offset is None:
            return True
        if command.retain and number is not None:
            self.retained[command.topic] = offset
        for session in self.sessions.values():
            granted = [qos for text, qos in session.filters.items() if matches(text, command.topic)]
            qos = min(command.qos, max(granted, default=0))
            if qos > 0:
                session.expected[offset] = Expected(number, qos, command.topic)
        return True


def matches(filter_text: str, topic: str) -> bool:
    """Whether a filter takes a topic; neither begins with `$` here."""
    levels = topic.split("/")
    wanted = filter_text.split("/")
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)
