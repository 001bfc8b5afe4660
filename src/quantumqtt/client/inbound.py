"""What comes in with a promise: QoS 1 and 2 messages until the application has accepted them.

A message is acknowledged after every subscriber in this process has accepted it, and
acknowledgements leave in the order in which the messages came `[MQTT-4.6.0-2]`. So an id has two
lives: in `order` while this connection owes an acknowledgement, and in `unaccepted` while somebody
still works on the message. The second outlives the connection: when the session resumes and the
broker sends the message again, it is not handed out again, only owed again.

Ids of QoS 2 stay in `exactly_once` until PUBREL; that is what makes hand-off happen once. With a
journal they outlive the process, from the moment the application has accepted the message.
The caller holds the session lock.
"""

from collections import deque
from typing import Final

from quantumqtt._core import Message
from quantumqtt.client.journal import Journal
from quantumqtt.client.outbound import OutboxItem
from quantumqtt.errors import RemoteProtocolError
from quantumqtt.mqtt import ReasonCode

_PUBACK: Final = 4 << 16
_PUBREC: Final = 5 << 16
_QOS_2: Final = 2


class Inbound:
    """The incoming half of a session."""

    def __init__(
        self, *, receive_maximum: int, alias_maximum: int, journal: Journal | None = None
    ) -> None:
        self.session: int = 1
        self._journal = journal
        self.unaccepted: dict[int, int] = {}
        self.exactly_once: set[int] = set()
        self._order: deque[int] = deque()
        self._receive_maximum = receive_maximum
        self._alias_maximum = alias_maximum
        self._aliases: dict[int, str] = {}

    def on_message(self, message: Message, outbox: list[OutboxItem]) -> bool:
        """Note a QoS 1 or 2 message; True when it is to be handed out.

        Raises:
            RemoteProtocolError: The broker exceeds our Receive Maximum.
        """
        packet_id = message.packet_id
        assert packet_id is not None, "QoS 1 and 2 have packet ids"
        if message.qos == _QOS_2:
            if packet_id in self.exactly_once:
                self._owe_again(packet_id, _PUBREC, outbox)
                return False
            self.exactly_once.add(packet_id)
        elif message.dup and packet_id in self.unaccepted:
            self._owe_again(packet_id, _PUBACK, outbox)
            return False
        if len(self._order) >= self._receive_maximum:
            raise RemoteProtocolError(
                f"more than {self._receive_maximum} messages without an acknowledgement",
                "the server ignores our receive_maximum",
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            )
        self.unaccepted[packet_id] = 1
        self._order.append(packet_id)
        return True

    def _owe_again(self, packet_id: int, ack: int, outbox: list[OutboxItem]) -> None:
        if packet_id not in self.unaccepted:
            if not self._order:
                outbox.append(ack | packet_id)
                return
            # Accepted in an earlier life; its acknowledgement still keeps the order.
            self.unaccepted[packet_id] = 0
        if packet_id not in self._order:
            self._order.append(packet_id)
            self._acknowledge(outbox)

    def expect(self, packet_id: int, acceptances: int) -> None:
        """Wait for several subscribers to accept the message."""
        self.unaccepted[packet_id] = acceptances

    def accept(self, packet_id: int, session: int, outbox: list[OutboxItem]) -> None:
        """One subscriber is done with a message; owed acknowledgements that are due leave."""
        if session != self.session:
            return
        missing = self.unaccepted.get(packet_id)
        if not missing:
            return
        self.unaccepted[packet_id] = missing - 1
        if missing == 1:
            if self._journal is not None and packet_id in self.exactly_once:
                self._journal.received(packet_id)
            self._acknowledge(outbox)

    def handed_over(self) -> list[int]:
        """QoS 2 ids whose message the application has accepted and the broker may send again."""
        return [one for one in self.exactly_once if not self.unaccepted.get(one)]

    def _acknowledge(self, outbox: list[OutboxItem]) -> None:
        order, unaccepted = self._order, self.unaccepted
        while order and not unaccepted[order[0]]:
            packet_id = order.popleft()
            del unaccepted[packet_id]
            kind = _PUBREC if packet_id in self.exactly_once else _PUBACK
            outbox.append(kind | packet_id)

    def on_pubrel(self, packet_id: int) -> bool:
        """Forget a QoS 2 id; False when it was not known."""
        if packet_id not in self.exactly_once:
            return False
        self.exactly_once.remove(packet_id)
        if self._journal is not None:
            self._journal.completed(packet_id)
        return True

    def resolve_alias(self, message: Message, alias: int) -> Message:
        """Give a message the topic its alias stands for, or learn the alias.

        Raises:
            RemoteProtocolError: The alias is above our maximum or was never introduced.
        """
        if message.topic and alias <= self._alias_maximum:
            self._aliases[alias] = message.topic
            return message
        topic = self._aliases.get(alias)
        if message.topic or topic is None:
            raise RemoteProtocolError(
                f"topic alias {alias} is unknown or above {self._alias_maximum}",
                "the server breaks MQTT",
                ReasonCode.TOPIC_ALIAS_INVALID,
            )
        return message.with_topic(topic)

    def end_connection(self) -> None:
        """Owe nothing any more: what is not acknowledged will be sent again."""
        self._order.clear()
        self._aliases.clear()

    def forget_session(self) -> None:
        """The broker has no session any more; late acceptances of its messages are void."""
        self.session += 1
        self.unaccepted.clear()
        self.exactly_once.clear()
