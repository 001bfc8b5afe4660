"""What a client's store must know, as records; and what a row of records amounts to.

Theory of operation. A session that has a store notes every change that must outlive the process in
a `Journal`, under the session lock. Whoever drives the session takes the notes together with the
bytes to write, stores the notes, and only then writes the bytes: *nothing is said to the broker
that the store does not know*. That is what makes these promises hold after a crash at any instant:

- an accepted QoS 1 or 2 publish is sent again until the broker has it (`ACCEPTED` before PUBLISH);
- a QoS 2 publish keeps its packet id, so the broker sees that it has it (`SENT` before PUBLISH),
  and is not published again once the broker answered (`RELEASED` before PUBREL);
- a QoS 2 message that the application has accepted is not handed out again (`RECEIVED` before
  PUBREC), and its id is free for the next one (`COMPLETED` before PUBCOMP).

What a crash loses of later notes does no harm: an acknowledgement that was not noted (`SETTLED`)
has the publish resumed, which the broker answers once more.

`Contents` is the sum of the records, read back when a client starts. No I/O here.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from quantumqtt.client.receipts import Pending, Receipt
from quantumqtt.errors import CorruptStore

_QOS_BITS: Final = 0b0110
_NO_NUMBER_YET: Final = -1
_HEAD: Final = struct.Struct(">BI")
_SEQUENCE: Final = struct.Struct(">Q")
_SENT: Final = struct.Struct(">QH")
_PACKET_ID: Final = struct.Struct(">H")
_ACCEPTED: Final = struct.Struct(">QBHI")


class RecordKind(IntEnum):
    """The first byte of a record. Numbers are never given a second meaning."""

    ACCEPTED = 1
    SENT = 2
    RELEASED = 3
    SETTLED = 4
    RECEIVED = 5
    COMPLETED = 6
    SUBSCRIBED = 7
    UNSUBSCRIBED = 8
    OPENED = 9
    FORGOTTEN = 10


def _record(kind: RecordKind, body: bytes) -> bytes:
    return _HEAD.pack(kind, len(body)) + body


def _accepted(receipt: Receipt) -> bytes:
    topic, properties = receipt.topic.encode(), receipt.properties
    body = _ACCEPTED.pack(receipt.sequence, receipt.flags, len(topic), len(properties))
    return _record(RecordKind.ACCEPTED, body + topic + properties + receipt.payload)


class Journal:
    """Collects records; the caller holds the session lock."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._accepted: list[Receipt] = []
        # Publishes from before the store was open, which have no number yet.
        self._early: dict[int, Receipt] | None = {}
        self._next = 1

    def open(self, next_sequence: int) -> None:
        """The store is open, and its numbers are known."""
        self._next = next_sequence
        early, self._early = self._early, None
        for receipt in (early or {}).values():
            self._number(receipt)

    def take(self) -> tuple[list[bytes], list[Receipt]]:
        """Hand out the records since the last time, and whose acceptance they are."""
        taken = self._records, self._accepted
        self._records, self._accepted = [], []
        return taken

    def snapshot(
        self,
        *,
        level: int,
        subscriptions: Mapping[str, int],
        received: Iterable[int],
        receipts: Iterable[Receipt],
    ) -> tuple[list[bytes], list[Receipt]]:
        """What `take` would hand out if all that is settled had never been.

        A store writes this in place of everything it holds when that has become too much.
        """
        _, accepted = self.take()
        if level:
            self.opened(level)
        for text, options in subscriptions.items():
            self.subscribed(text, options)
        for packet_id in sorted(received):
            self.received(packet_id)
        for receipt in receipts:
            self._records.append(_accepted(receipt))
            if receipt.packet_id:
                self.sent(receipt)
            if receipt.released:
                self.released(receipt)
        records, self._records = self._records, []
        return records, accepted

    def accepted(self, receipt: Receipt) -> None:
        """A publish was taken over; QoS 0 promises nothing and is not stored."""
        if not receipt.flags & _QOS_BITS:
            return
        receipt._acceptance = Pending()
        if self._early is not None:
            receipt.sequence = _NO_NUMBER_YET
            self._early[id(receipt)] = receipt
        else:
            self._number(receipt)

    def _number(self, receipt: Receipt) -> None:
        receipt.sequence = self._next
        self._next += 1
        self._records.append(_accepted(receipt))
        self._accepted.append(receipt)

    def sent(self, receipt: Receipt) -> None:
        """It got its packet id."""
        body = _SENT.pack(receipt.sequence, receipt.packet_id)
        self._records.append(_record(RecordKind.SENT, body))

    def released(self, receipt: Receipt) -> None:
        """The broker has it, at QoS 2."""
        self._records.append(_record(RecordKind.RELEASED, _SEQUENCE.pack(receipt.sequence)))

    def settled(self, receipt: Receipt) -> None:
        """It is acknowledged, or failed for good."""
        if self._early is not None:
            self._early.pop(id(receipt), None)
        elif receipt.sequence:
            self._records.append(_record(RecordKind.SETTLED, _SEQUENCE.pack(receipt.sequence)))

    def received(self, packet_id: int) -> None:
        """The application has accepted a QoS 2 message."""
        self._records.append(_record(RecordKind.RECEIVED, _PACKET_ID.pack(packet_id)))

    def completed(self, packet_id: int) -> None:
        """The broker will not send it again."""
        self._records.append(_record(RecordKind.COMPLETED, _PACKET_ID.pack(packet_id)))

    def subscribed(self, topic_filter: str, options: int) -> None:
        """The broker granted a subscription."""
        body = bytes((options,)) + topic_filter.encode()
        self._records.append(_record(RecordKind.SUBSCRIBED, body))

    def unsubscribed(self, topic_filter: str) -> None:
        """It is gone."""
        self._records.append(_record(RecordKind.UNSUBSCRIBED, topic_filter.encode()))

    def opened(self, level: int) -> None:
        """The broker holds a session of ours, made with this protocol level."""
        self._records.append(_record(RecordKind.OPENED, bytes((level,))))

    def forgotten(self) -> None:
        """The broker holds no session of ours any more."""
        self._records.append(_record(RecordKind.FORGOTTEN, b""))


@dataclass(slots=True)
class StoredPublish:
    """A publish that is accepted and not settled."""

    record: bytes
    packet_id: int = 0
    released: bool = False

    def parts(self) -> tuple[str, bytes, int, bytes]:
        """Topic, payload, flags, properties."""
        body = memoryview(self.record)[_HEAD.size :]
        _, flags, topic_bytes, properties_bytes = _ACCEPTED.unpack_from(body)
        topic_end = _ACCEPTED.size + topic_bytes
        properties_end = topic_end + properties_bytes
        return (
            str(body[_ACCEPTED.size : topic_end], "utf-8"),
            bytes(body[properties_end:]),
            flags,
            bytes(body[topic_end:properties_end]),
        )


@dataclass(slots=True)
class Contents:
    """The state that a store holds."""

    client_id: str
    level: int = 0
    next_sequence: int = 1
    publishes: dict[int, StoredPublish] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    subscriptions: dict[str, int] = field(default_factory=dict)

    def apply(self, block: bytes) -> None:
        """Add a block of records.

        Raises:
            CorruptStore: The records contradict each other or their own lengths.
        """
        at = 0
        while at < len(block):
            if at + _HEAD.size > len(block):
                raise _nonsense("a record without a length")
            kind, length = _HEAD.unpack_from(block, at)
            end = at + _HEAD.size + length
            if end > len(block):
                raise _nonsense("a record that is longer than its block")
            try:
                self._apply(RecordKind(kind), block[at:end])
            except (KeyError, ValueError, struct.error) as error:
                raise _nonsense(f"a record of kind {kind} that means nothing") from error
            at = end

    def _apply(self, kind: RecordKind, record: bytes) -> None:
        body = record[_HEAD.size :]
        match kind:
            case RecordKind.ACCEPTED:
                self._on_accepted(record, body)
            case RecordKind.SENT:
                sequence, packet_id = _SENT.unpack(body)
                self.publishes[sequence].packet_id = packet_id
            case RecordKind.RELEASED:
                self.publishes[_SEQUENCE.unpack(body)[0]].released = True
            case RecordKind.SETTLED:
                del self.publishes[_SEQUENCE.unpack(body)[0]]
            case RecordKind.RECEIVED:
                self.received.add(_PACKET_ID.unpack(body)[0])
            case RecordKind.COMPLETED:
                self.received.discard(_PACKET_ID.unpack(body)[0])
            case RecordKind.SUBSCRIBED:
                self.subscriptions[body[1:].decode()] = body[0]
            case RecordKind.UNSUBSCRIBED:
                self.subscriptions.pop(body.decode(), None)
            case RecordKind.OPENED:
                (self.level,) = body
            case RecordKind.FORGOTTEN:
                self.received.clear()
                for publish in self.publishes.values():
                    publish.packet_id = 0
                    publish.released = False

    def _on_accepted(self, record: bytes, body: bytes) -> None:
        sequence = _SEQUENCE.unpack_from(body)[0]
        publish = StoredPublish(record)
        publish.parts()
        if sequence < self.next_sequence:
            raise ValueError("sequence numbers rise")
        self.publishes[sequence] = publish
        self.next_sequence = sequence + 1


def _nonsense(what: str) -> CorruptStore:
    return CorruptStore(f"the store holds {what}")
