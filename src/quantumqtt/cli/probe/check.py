"""What a check is: a function that asks one thing, its clauses, and what it may use."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from quantumqtt.cli.mosquitto.options import Options
from quantumqtt.cli.probe.peer import (
    V5,
    V311,
    NotOffered,
    Peer,
    Properties,
    Violation,
    violated,
)
from quantumqtt.errors import QuantuMQTTError
from quantumqtt.mqtt import PropertyId

SESSION_KEPT_S: Final = 120
VERSION_NAMES: Final = {V311: "3.1.1", V5: "5"}


class Probe:
    """What checks may use: connections of their own, topics of their own, and a broom.

    Every topic begins with `quantumqtt-test/` and a random part, every client id is random; what a
    check leaves at the broker (retained messages, sessions) is noted and removed by `clean_up`.
    """

    def __init__(self, target: Options, version: int, timeout_s: float) -> None:
        self.version = version
        self.timeout_s = timeout_s
        self._target = target
        self._mark = secrets.token_hex(5)
        self._count = 0
        self._peers: list[Peer] = []
        self._sessions: set[str] = set()
        self._retained: set[str] = set()

    def new_id(self) -> str:
        """A client id of at most 23 characters."""
        self._count += 1
        return f"qmqt{self._mark}n{self._count}"

    def new_topic(self) -> str:
        """A topic nobody else uses."""
        self._count += 1
        return f"quantumqtt-test/{self._mark}/{self._count}"

    def peer(self) -> Peer:
        """A connection that has not said CONNECT."""
        peer = Peer(self._target, self.version, self.timeout_s)
        self._peers.append(peer)
        return peer

    def open(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        keeps: bool = False,
        keep_alive_s: int = 60,
        will: tuple[str, bytes, int, bool] | None = None,
        properties: Properties = (),
    ) -> Peer:
        """An open connection; `keeps` asks for a session that outlives it.

        Raises:
            NotOffered: The broker refuses it.
        """
        peer = self.peer()
        client_id = client_id or self.new_id()
        if keeps:
            self._sessions.add(client_id)
            if self.version == V5:
                expiry = (PropertyId.SESSION_EXPIRY_INTERVAL, SESSION_KEPT_S)
                properties = (expiry, *properties)
        connack = peer.connect(
            client_id,
            clean=clean and not (keeps and self.version == V311),
            keep_alive_s=keep_alive_s,
            will=will,
            user_name=self._target.user_name,
            password=self._target.password,
            properties=properties,
        )
        if connack.reason_code:
            raise NotOffered(f"the broker refuses the connection with {connack.reason_code:#04x}")
        return peer

    def listener(self, topic_filter: str, options: int = 0) -> Peer:
        """An open connection that is subscribed."""
        peer = self.open()
        granted(peer.subscribe(topic_filter, options))
        return peer

    def retain(self, peer: Peer, topic: str, payload: bytes) -> None:
        """Publish a retained message, and note to remove it.

        Raises:
            NotOffered: The broker keeps none.
        """
        if value_of(peer, PropertyId.RETAIN_AVAILABLE, 1) == 0:
            raise NotOffered("the broker keeps no retained messages, and says so")
        self._retained.add(topic)
        peer.publish(topic, payload, 1, retain=True)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Close what one check has opened."""
        try:
            yield
        finally:
            for peer in self._peers:
                peer.close()
            self._peers.clear()

    def clean_up(self) -> list[str]:
        """Remove what was left at the broker; returns what could not be removed."""
        left: list[str] = []
        with self.closing():
            try:
                for client_id in sorted(self._sessions):
                    # A clean start ends what was; without an expiry nothing new stays.
                    self.open(client_id).leave()
                peer = self.open() if self._retained else None
                for topic in sorted(self._retained):
                    if peer is not None:
                        peer.publish(topic, b"", 1, retain=True)
            except (QuantuMQTTError, NotOffered, Violation) as error:
                left.append(f"{error}: sessions qmqt{self._mark}n… and retained messages under"
                            f" quantumqtt-test/{self._mark}/ may be left")  # fmt: skip
        self._sessions.clear()
        self._retained.clear()
        return left


def granted(code: int) -> int:
    """The QoS of a subscription.

    Raises:
        NotOffered: The broker refuses it.
    """
    if code >= 0x80:
        raise NotOffered(f"the broker refuses the subscription with {code:#04x}")
    return code


def value_of(peer: Peer, wanted: PropertyId, default: int) -> int:
    """A number from the broker's CONNACK."""
    assert peer.connack is not None, "asked of open connections"
    value = dict(peer.connack.properties).get(wanted, default)
    return int(value) if isinstance(value, int) else default


def equal(got: object, due: object, what: str) -> None:
    """Compare what came with what was due.

    Raises:
        Violation: They differ.
    """
    if got != due:
        violated(f"{what}: {due!r} was due, {got!r} came")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question, and the clauses whose answer it is, by version."""

    title: str
    clauses: dict[int, str] = field(hash=False)
    ask: Callable[[Probe], None]
    breaks_rules: bool = False


CHECKS: Final[list[Check]] = []


def check(
    title: str, *, v311: str | None = None, v5: str | None = None, breaks_rules: bool = False
) -> Callable[[Callable[[Probe], None]], Callable[[Probe], None]]:
    """Make a function a check; a version without a clause is not asked."""
    clauses = {V311: v311, V5: v5}

    def add(ask: Callable[[Probe], None]) -> Callable[[Probe], None]:
        present = {version: clause for version, clause in clauses.items() if clause is not None}
        CHECKS.append(Check(title=title, clauses=present, ask=ask, breaks_rules=breaks_rules))
        return ask

    return add
