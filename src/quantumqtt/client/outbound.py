"""What goes out with a promise: publishes, their packet ids, the window they share.

Every accepted publish is in exactly one place: *waiting* (in the order of acceptance), *in flight*
(it has a packet id and waits for the broker), *leaving* (QoS 0, in the bytes of this turn), or
settled. When a connection ends, what was in flight returns to the head of the waiting row, keeping
its packet ids; so resuming a session is nothing but releasing the row again.

Nothing overtakes: a QoS 0 publish behind a QoS 1 that waits for the window waits with it. Nothing
here reads a clock or does I/O; the caller holds the session lock.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from quantumqtt.client.journal import Journal
from quantumqtt.client.receipts import Operation, Pending, Receipt
from quantumqtt.errors import (
    PublishQueueFull,
    QuantuMQTTError,
    QuotaExceeded,
    SessionLost,
    StillStored,
)

PACKET_ID_MAX: Final = 65_535
_DUP: Final = 0b1000
_QOS_BITS: Final = 0b0110
QOS_1_BITS: Final = 0b0010
QOS_2_BITS: Final = 0b0100
_PUBREL: Final = 6 << 16

OutboxItem = bytes | int | tuple[str, bytes, int, int, bytes]
_SENT: Final = (0, None)


class Outbound:
    """The outgoing half of a session."""

    def __init__(
        self, *, queue_bytes_max: int, aliases: bool, journal: Journal | None = None
    ) -> None:
        self.outbox: list[OutboxItem] = []
        self.is_open: bool = False
        self.settled: list[Receipt | Operation | Pending[None]] = []
        self.pending: dict[int, Receipt | Operation] = {}
        self.waiting: deque[Receipt] = deque()
        self.unsettled_bytes: int = 0
        self.window: int = 0
        self._journal = journal
        self._window_qos_2 = 0
        self._leaving: list[Receipt] = []
        self._queue_bytes_max = queue_bytes_max
        self._next_id = 1
        self._use_aliases = aliases
        self._alias_max = 0
        self._aliases: dict[str, int] = {}

    def accept(self, receipt: Receipt, drop_oldest: bool = False) -> None:
        """Take a publish over; send it now when nothing stands in its way.

        Raises:
            PublishQueueFull: It would exceed the bound; nothing was taken.
        """
        total = self.unsettled_bytes + receipt.bytes_count
        if total > self._queue_bytes_max:
            total = self._make_room(receipt, drop_oldest=drop_oldest)
        self.unsettled_bytes = total
        if self._journal is not None:
            self._journal.accepted(receipt)
        if self.waiting or not self.is_open:
            self.waiting.append(receipt)
        elif not receipt.flags & _QOS_BITS:
            self._send_once(receipt)
        elif self.window <= 0 or not self._send(receipt):
            self.waiting.append(receipt)

    def _make_room(self, receipt: Receipt, *, drop_oldest: bool) -> int:
        full = PublishQueueFull(
            f"publish of {receipt.bytes_count} bytes: {self.unsettled_bytes} of"
            f" {self._queue_bytes_max} bytes are not acknowledged yet",
            "wait for receipts, or raise queue_bytes_max",
        )
        if not drop_oldest or receipt.bytes_count > self._queue_bytes_max:
            raise full
        kept: list[Receipt] = []
        while self.waiting and self.unsettled_bytes + receipt.bytes_count > self._queue_bytes_max:
            oldest = self.waiting.popleft()
            if oldest.packet_id:
                kept.append(oldest)
            else:
                dropped = PublishQueueFull("dropped for a newer publish, as its policy asked")
                self.settle(oldest, None, dropped)
        self.waiting.extendleft(reversed(kept))
        if self.unsettled_bytes + receipt.bytes_count > self._queue_bytes_max:
            raise full
        return self.unsettled_bytes + receipt.bytes_count

    def release(self) -> None:
        """Send what waits, in order, up to the window. Call only while the connection is open."""
        waiting = self.waiting
        while waiting:
            receipt = waiting[0]
            if not receipt.flags & _QOS_BITS:
                self._send_once(receipt)
            elif self.window <= 0 or not self._send(receipt):
                return
            del waiting[0]

    def _send_once(self, receipt: Receipt) -> None:
        self._put(receipt, receipt.flags)
        self._leaving.append(receipt)

    def _send(self, receipt: Receipt) -> bool:
        """Send with a packet id; False when all ids, or all slots of QoS 2, are taken."""
        is_qos_2 = receipt.flags & _QOS_BITS == QOS_2_BITS
        if is_qos_2 and self._window_qos_2 <= 0:
            return False
        if receipt.packet_id:
            self.window -= 1
            self._window_qos_2 -= is_qos_2
            if receipt.released:
                self.outbox.append(_PUBREL | receipt.packet_id)
            else:
                self._put(receipt, receipt.flags | _DUP)
            return True
        packet_id = self.take_id(receipt)
        if not packet_id:
            return False
        self.window -= 1
        self._window_qos_2 -= is_qos_2
        receipt.packet_id = packet_id
        if self._journal is not None:
            self._journal.sent(receipt)
        self._put(receipt, receipt.flags)
        return True

    def _put(self, receipt: Receipt, flags: int) -> None:
        topic, properties = receipt.topic, receipt.properties
        if self._alias_max:
            alias = self._aliases.get(topic)
            if alias is not None:
                topic = ""
            elif len(self._aliases) < self._alias_max:
                alias = self._aliases[topic] = len(self._aliases) + 1
            if alias is not None:
                properties += b"\x23" + alias.to_bytes(2, "big")
        self.outbox.append((topic, receipt.payload, flags, receipt.packet_id, properties))

    def take_id(self, owner: Receipt | Operation) -> int:
        """Reserve a free packet id for `owner`; 0 when there is none."""
        pending = self.pending
        packet_id = self._next_id
        if packet_id in pending:
            if len(pending) >= PACKET_ID_MAX:
                return 0
            while packet_id in pending:
                packet_id = packet_id % PACKET_ID_MAX + 1
        pending[packet_id] = owner
        self._next_id = packet_id % PACKET_ID_MAX + 1
        return packet_id

    def has_unsettled(self) -> bool:
        """Whether any publish is accepted and not settled."""
        return bool(self.waiting or self._leaving) or any(
            isinstance(owner, Receipt) for owner in self.pending.values()
        )

    def take_id_or_raise(self, owner: Operation) -> int:
        """Reserve a packet id for an operation.

        Raises:
            QuotaExceeded: All 65 535 are in use.
        """
        packet_id = self.take_id(owner)
        if not packet_id:
            raise QuotaExceeded("all 65535 packet ids are in use", "wait for receipts")
        return packet_id

    def on_ack(
        self, packet_id: int, qos_bits: int, reason_code: int, error: QuantuMQTTError | None
    ) -> bool:
        """Finish a publish of this QoS; False when none is in flight under this id."""
        receipt = self.pending.get(packet_id)
        if not isinstance(receipt, Receipt) or receipt.flags & _QOS_BITS != qos_bits:
            return False
        del self.pending[packet_id]
        self.window += 1
        self._window_qos_2 += qos_bits == QOS_2_BITS
        self.unsettled_bytes -= receipt.bytes_count
        if self._journal is not None:
            self._journal.settled(receipt)
        receipt.payload = b""
        receipt._outcome = (reason_code, error) if reason_code else _SENT
        if receipt._waiters is not None:
            self.settled.append(receipt)
        return True

    def on_pubrec(self, packet_id: int) -> bool:
        """Note that the broker has a QoS 2 message; False when the id is unknown."""
        receipt = self.pending.get(packet_id)
        if not isinstance(receipt, Receipt) or receipt.flags & _QOS_BITS != QOS_2_BITS:
            return False
        receipt.released = True
        if self._journal is not None:
            self._journal.released(receipt)
        receipt.payload = b""
        self.outbox.append(_PUBREL | packet_id)
        return True

    def settle(
        self, receipt: Receipt, reason_code: int | None, error: QuantuMQTTError | None
    ) -> None:
        """Let go of a publish; whoever waits is called once the lock is released."""
        if self._journal is not None:
            self._journal.settled(receipt)
        self._let_go(receipt, reason_code, error)

    def _let_go(
        self, receipt: Receipt, reason_code: int | None, error: QuantuMQTTError | None
    ) -> None:
        self.unsettled_bytes -= receipt.bytes_count
        receipt.payload = b""
        receipt._outcome = (reason_code, error)
        if receipt._waiters is not None:
            self.settled.append(receipt)

    def answer(
        self,
        operation: Operation,
        codes: tuple[int, ...] | None,
        error: QuantuMQTTError | None,
    ) -> None:
        """Let go of an operation in the same way."""
        operation._outcome = (codes, error)
        self.settled.append(operation)

    def take_outbox(self) -> list[OutboxItem]:
        """Hand out what is to be written; QoS 0 is done with that."""
        outbox, self.outbox = self.outbox, []
        if self._leaving:
            for receipt in self._leaving:
                self.unsettled_bytes -= receipt.bytes_count
                receipt.payload = b""
                receipt._outcome = _SENT
                if receipt._waiters is not None:
                    self.settled.append(receipt)
            self._leaving.clear()
        return outbox

    def begin_connection(self, *, window: int, window_qos_2: int, alias_max: int) -> None:
        """Start anew on a connection that the broker accepted."""
        self.is_open = True
        self.window = window
        self._window_qos_2 = window_qos_2
        self._alias_max = alias_max if self._use_aliases else 0
        self._aliases.clear()

    def end_connection(self, error: QuantuMQTTError) -> list[Operation]:
        """Take back what was under way; returns the operations that nobody answered."""
        self.outbox.clear()
        for receipt in self._leaving:
            self.settle(receipt, None, error)
        self._leaving.clear()
        self.window = 0
        self.is_open = False
        in_flight = [owner for owner in self.pending.values() if isinstance(owner, Receipt)]
        operations = [owner for owner in self.pending.values() if isinstance(owner, Operation)]
        queued = [receipt for receipt in self.waiting if not receipt.packet_id]
        self.waiting = deque([*in_flight, *queued])
        self.pending = {receipt.packet_id: receipt for receipt in in_flight}
        return operations

    def forget_session(self) -> None:
        """The broker has no session any more: QoS 1 starts over, QoS 2 cannot be known.

        Sending a QoS 2 message again could deliver it twice, so it is reported as failed instead.
        """
        self.pending.clear()
        if self._journal is not None:
            self._journal.forgotten()
        kept: deque[Receipt] = deque()
        for receipt in self.waiting:
            if receipt.packet_id and receipt.flags & _QOS_BITS == QOS_2_BITS:
                self.settle(receipt, None, _session_lost(receipt))
                continue
            receipt.packet_id = 0
            kept.append(receipt)
        self.waiting = kept

    def unsettled(self) -> list[Receipt]:
        """Every publish that is accepted and not settled, in the order of acceptance."""
        in_flight = [owner for owner in self.pending.values() if isinstance(owner, Receipt)]
        receipts = (*in_flight, *self._leaving, *self.waiting)
        return list({id(receipt): receipt for receipt in receipts}.values())

    def resume(self, receipts: Sequence[Receipt]) -> None:
        """Take back what a store kept, ahead of what was accepted since."""
        for receipt in receipts:
            self.unsettled_bytes += receipt.bytes_count
            if receipt.packet_id:
                self.pending[receipt.packet_id] = receipt
        self.waiting.extendleft(reversed(receipts))

    def fail_all(self, error: QuantuMQTTError) -> None:
        """Settle everything: the client ends. What its store has, the store keeps."""
        receipts = self.unsettled()
        for owner in self.pending.values():
            if not isinstance(owner, Receipt):
                self.answer(owner, None, error)
        for receipt in receipts:
            acceptance = receipt.acceptance
            if not acceptance.done():
                acceptance._outcome = (None, error)
                self.settled.append(acceptance)
            is_stored = receipt.sequence and receipt.accepted
            self._let_go(receipt, None, _still_stored(receipt, error) if is_stored else error)
        self._leaving.clear()
        self.waiting.clear()
        self.pending.clear()
        self.outbox.clear()


def _still_stored(receipt: Receipt, error: QuantuMQTTError) -> StillStored:
    return StillStored(
        f"publish to {receipt.topic!r} is not acknowledged, and the client ended: {error}",
        "its store keeps it: the next client that opens the store sends it",
    )


def _session_lost(receipt: Receipt) -> SessionLost:
    return SessionLost(
        f"publish to {receipt.topic!r} at QoS 2: the server forgot the session in between",
        "it may or may not have arrived; keep sessions longer with session_expiry_s",
    )
