"""One client of the swarm: MQTT over asyncio, as fast as Python goes, telling the ledger.

Theory of operation. A `Peer` outlives its connections. It keeps what a client must keep: the
publishes without an answer, in order, with their packet ids, and the QoS 2 ids it has taken
but not seen released. When a session is resumed they go on, with DUP; when it is gone, QoS 1 is
sent anew and QoS 2 is let go, since nobody can know any more whether it arrived. So whatever is
lost or doubled was lost or doubled by the broker.

Nothing reconnects by itself: who is online, and when, is the swarm's to decide.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quantumqtt import _core
from quantumqtt._core import AckRun, Control, Message
from quantumqtt.cli.crash.ledger import Ledger, SessionState, payload_of
from quantumqtt.errors import ConnectFailed, ConnectionLost, RemoteProtocolError
from quantumqtt.mqtt import PropertyId, encode_properties

LOOPBACK: Final = "127.0.0.1"
V311: Final = 4
V5: Final = 5
FOR_EVER: Final = 0xFFFF_FFFF
_CONNACK, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 2, 4, 5, 6, 7
_SUBACK, _UNSUBACK, _PINGRESP = 9, 11, 13
_PINGREQ: Final = b"\xc0\x00"
_PACKET_BYTES_MAX: Final = 268_435_460
_RETAIN: Final = 1
_DUP: Final = 8
_ID_MAX: Final = 65_535
_REFUSED: Final = 0x80
# Before MQTT 5 a server cannot say how many QoS 2 it takes at once; Mosquitto's default is 20.
_V311_WINDOW: Final = 16

Answer = Callable[[Control], None]


@dataclass(slots=True)
class Outgoing:
    """A publish on its way."""

    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    sequence: int = 0
    on_done: Callable[[bool], None] | None = None
    is_released: bool = False
    was_sent: bool = False


@dataclass(frozen=True, slots=True)
class WillWish:
    """What a CONNECT leaves behind."""

    topic: str
    payload: bytes
    qos: int = 1
    delay_s: int = 0


class _Wire(asyncio.Protocol):
    """Bytes in, packets to the peer."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._rest = b""
        self.transport: asyncio.Transport | None = None
        self.ended: asyncio.Event = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, data: bytes) -> None:
        """Send; what a broken connection cannot carry is sent again on the next one."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        items, taken, _ = _core.decode_packets(self._peer.version, data, _PACKET_BYTES_MAX)
        self._rest = data[taken:]
        self._peer.on_packets(self, items)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.ended.set()
        self._peer.on_lost(self)


@dataclass(frozen=True, slots=True)
class _Opening:
    """A connection whose CONNACK has not come."""

    wire: _Wire
    before: SessionState
    clean: bool


class Peer:
    """One client id, whatever connections it goes through."""

    def __init__(
        self,
        ledger: Ledger,
        client_id: str,
        *,
        version: int = V5,
        keeps: bool = True,
        window: int = 100,
        answers_within_s: float = 20.0,
    ) -> None:
        self.ledger = ledger
        self.client_id = client_id
        self.version = version
        self.keeps = keeps
        self.expiry_s = FOR_EVER
        self.window = window if version == V5 else min(window, _V311_WINDOW)
        self.session_lost_total = 0
        self.in_flight: dict[int, Outgoing] = {}
        self.last_packet_at = 0.0
        self.on_message: Callable[[Message], None] = self._tell_ledger
        self._answers_within_s = answers_within_s
        self._window_now = self.window
        self._next_id = 0
        self._taken: set[int] = set()
        self._wire: _Wire | None = None
        self._waiting: dict[tuple[int, int], asyncio.Future[Control]] = {}
        self._opening: _Opening | None = None

    # --- connection ---------------------------------------------------------------------------

    @property
    def is_online(self) -> bool:
        """Whether the broker has accepted a connection that still stands."""
        return self._wire is not None

    async def connect(
        self, port: int, *, clean: bool = False, will: WillWish | None = None
    ) -> bool:
        """Open a connection, beside an older one if there is one; returns session present.

        Raises:
            ConnectFailed: Nobody listens, or the broker says no.
            ConnectionLost: It ended before the answer came.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._answers_within_s):
                _, wire = await loop.create_connection(lambda: _Wire(self), LOOPBACK, port)
        except (OSError, TimeoutError) as error:
            raise ConnectFailed(f"no connection to port {port}: {error}") from error
        assert wire.transport is not None
        before = self.ledger.on_connecting(self.client_id, clean=clean)
        older, self._wire = self._wire, None
        self._opening = _Opening(wire, before, clean)
        wire.transport.write(self._connect_packet(clean, will))
        try:
            connack = await self._answer(wire, _CONNACK, 0)
            if connack.reason_code >= _REFUSED:
                raise ConnectFailed(f"CONNECT was refused with {connack.reason_code:#04x}")
        except BaseException:
            wire.transport.abort()
            raise
        finally:
            self._opening = None
            if older is not None and older.transport is not None:
                older.transport.abort()
        return connack.session_present

    def _on_connack(self, wire: _Wire, connack: Control) -> None:
        """Accepted: the session goes on before anything else of this connection is looked at."""
        opening = self._opening
        if opening is None or opening.wire is not wire or connack.reason_code >= _REFUSED:
            return
        self._wire = wire
        present = connack.session_present
        self.ledger.on_connected(
            self.client_id,
            before=opening.before,
            clean=opening.clean,
            keeps=self.keeps,
            present=present,
        )
        maximum = dict(connack.properties).get(int(PropertyId.RECEIVE_MAXIMUM))
        self._window_now = min(self.window, maximum) if isinstance(maximum, int) else self.window
        self._resume(present=present)

    def _connect_packet(self, clean: bool, will: WillWish | None) -> bytes:
        is_v5 = self.version == V5
        block = b""
        if will is not None and is_v5:
            block = encode_properties(((PropertyId.WILL_DELAY_INTERVAL, will.delay_s or None),))
        properties = ((PropertyId.SESSION_EXPIRY_INTERVAL, self.expiry_s if self.keeps else None),)
        return _core.encode_connect(
            self.version,
            self.client_id,
            clean_start=clean if is_v5 else not self.keeps,
            keep_alive_s=0,
            will=None if will is None else (will.topic, will.payload, will.qos, False, block),
            properties=encode_properties(properties) if is_v5 else None,
        )

    def _resume(self, *, present: bool) -> None:
        """Go on with what was under way, in the order in which it was first sent."""
        if not present:
            self._taken.clear()
            self._let_go()
        batch: list[bytes | int | tuple[str, bytes, int, int, bytes]] = []
        waiting, self.in_flight = self.in_flight, {}
        for packet_id, one in waiting.items():
            self.in_flight[packet_id] = one
            if one.is_released:
                batch.append(_PUBREL << 16 | packet_id)
            else:
                batch.append(self._item(packet_id, one, dup=present))
        self._write(batch)

    def _let_go(self) -> None:
        """The session is gone: nobody can know whether a QoS 2 in flight arrived."""
        kept = {}
        for packet_id, one in self.in_flight.items():
            if one.qos == 2 and one.was_sent:
                self.session_lost_total += 1
                if one.on_done is not None:
                    one.on_done(False)
            else:
                kept[packet_id] = one
        self.in_flight = kept

    def drop(self) -> None:
        """End the connection without a word."""
        wire, self._wire = self._wire, None
        if wire is not None and wire.transport is not None:
            wire.transport.abort()

    async def leave(self) -> bool:
        """Say DISCONNECT; True when the broker confirmed by closing."""
        wire, self._wire = self._wire, None
        if wire is None or wire.transport is None:
            return False
        wire.transport.write(_core.encode_disconnect(self.version))
        try:
            async with asyncio.timeout(self._answers_within_s):
                await wire.ended.wait()
        except TimeoutError:
            wire.transport.abort()
            return False
        return True

    async def wait_ended(self) -> None:
        """Wait until the broker ends the connection that stands now."""
        if self._wire is not None:
            await self._wire.ended.wait()

    # --- what the swarm wants -----------------------------------------------------------------

    async def subscribe(self, topic_filter: str, qos: int) -> int:
        """Subscribe and wait for the answer; returns its code.

        Raises:
            ConnectionLost: The connection ended first, or no answer came.
        """
        wire = self._online()
        packet_id = self._take_id()
        self.ledger.on_subscribing(self.client_id, topic_filter, qos)
        properties = b"" if self.version == V5 else None
        packet = _core.encode_subscribe(self.version, packet_id, [(topic_filter, qos)], properties)
        self._write([packet])
        answer = await self._answer(wire, _SUBACK, packet_id)
        self.ledger.on_subscribed(self.client_id, topic_filter, answer.codes[0])
        return answer.codes[0]

    async def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe and wait for the answer.

        Raises:
            ConnectionLost: The connection ended first, or no answer came.
        """
        wire = self._online()
        packet_id = self._take_id()
        self.ledger.on_unsubscribing(self.client_id, topic_filter)
        properties = b"" if self.version == V5 else None
        self._write([_core.encode_unsubscribe(self.version, packet_id, [topic_filter], properties)])
        await self._answer(wire, _UNSUBACK, packet_id)
        self.ledger.on_unsubscribed(self.client_id, topic_filter)

    async def ping(self) -> None:
        """Wait for a sign of life.

        Raises:
            ConnectionLost: None came.
        """
        wire = self._online()
        self._write([_PINGREQ])
        await self._answer(wire, _PINGRESP, 0)

    def has_room(self) -> bool:
        """Whether one more publish fits into the window."""
        return self.is_online and len(self.in_flight) < self._window_now

    def publish_next(self, topic: str, qos: int, size: int, *, is_canary: bool = False) -> Outgoing:
        """Publish the next message of this client, which the ledger keeps account of."""
        sequence = self.ledger.next_sequence(self.client_id)
        payload = payload_of(self.client_id, sequence, qos, topic, size)
        one = Outgoing(topic, payload, qos, sequence=sequence)
        self.ledger.on_sending(self.client_id, sequence, topic, qos, is_canary=is_canary)
        self.send(one)
        return one

    def send(self, one: Outgoing) -> None:
        """Give a publish its packet id and send it, now or when there is a connection."""
        packet_id = self._take_id()
        self.in_flight[packet_id] = one
        if self.is_online:
            self._write([self._item(packet_id, one, dup=False)])

    def _item(
        self, packet_id: int, one: Outgoing, *, dup: bool
    ) -> tuple[str, bytes, int, int, bytes]:
        if one.was_sent and one.sequence:
            self.ledger.on_sending(self.client_id, one.sequence, one.topic, one.qos)
        flags = one.qos << 1 | (_RETAIN if one.retain else 0)
        flags |= _DUP if dup and one.was_sent else 0
        one.was_sent = True
        return one.topic, one.payload, flags, packet_id, b""

    # --- what comes ---------------------------------------------------------------------------

    def on_packets(
        self,
        wire: _Wire,
        items: list[list[Message] | Message | AckRun | Control | RemoteProtocolError],
    ) -> None:
        """Act on what one read brought; all answers leave in one write."""
        self.last_packet_at = time.monotonic()
        answers: list[bytes | int | tuple[str, bytes, int, int, bytes]] = []
        for item in items:
            if isinstance(item, Message):
                self._on_publish(item, answers)
            elif isinstance(item, AckRun):
                for packet_id in item.packet_ids:
                    self._on_ack(item.kind, packet_id, item.reason_code, answers)
            elif isinstance(item, list):
                for message in item:
                    self._on_publish(message, answers)
            elif isinstance(item, RemoteProtocolError):
                assert wire.transport is not None
                self.ledger.report_unresponsive(self.client_id, f"what came is no MQTT: {item}")
                wire.transport.abort()
            elif _PUBACK <= item.kind <= _PUBCOMP:
                self._on_ack(item.kind, item.packet_id, item.reason_code, answers)
            else:
                if item.kind == _CONNACK:
                    self._on_connack(wire, item)
                waiting = self._waiting.pop((item.kind, item.packet_id), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(item)
        if answers:
            wire.write(_core.encode_batch(self.version, answers))

    def _on_publish(
        self, message: Message, answers: list[bytes | int | tuple[str, bytes, int, int, bytes]]
    ) -> None:
        packet_id = message.packet_id
        if packet_id is None or message.qos == 0:
            self.on_message(message)
        elif message.qos == 1:
            self.on_message(message)
            answers.append(_PUBACK << 16 | packet_id)
        else:
            # A second PUBLISH under an id that was not released is the same message [4.3.3-10].
            if packet_id not in self._taken:
                self._taken.add(packet_id)
                self.on_message(message)
            answers.append(_PUBREC << 16 | packet_id)

    def _tell_ledger(self, message: Message) -> None:
        self.ledger.on_delivered(
            self.client_id, message.topic, message.payload, message.qos, dup=message.dup
        )

    def _on_ack(
        self,
        kind: int,
        packet_id: int,
        reason_code: int,
        answers: list[bytes | int | tuple[str, bytes, int, int, bytes]],
    ) -> None:
        if kind == _PUBREL:
            self._taken.discard(packet_id)
            answers.append(_PUBCOMP << 16 | packet_id)
            return
        one = self.in_flight.get(packet_id)
        if one is None:
            return
        is_success = reason_code < _REFUSED
        if kind in (_PUBACK, _PUBREC) and is_success:
            self.ledger.on_acknowledged(self.client_id, one.sequence, time.time())
        if kind == _PUBREC and is_success:
            one.is_released = True
            answers.append(_PUBREL << 16 | packet_id)
            return
        del self.in_flight[packet_id]
        if is_success:
            self.ledger.on_completed(self.client_id, one.sequence)
        if one.on_done is not None:
            one.on_done(is_success)

    def on_lost(self, wire: _Wire) -> None:
        """A connection ended, whoever ended it."""
        if self._wire is wire:
            self._wire = None

    # --- small parts --------------------------------------------------------------------------

    def _online(self) -> _Wire:
        if self._wire is None:
            raise ConnectionLost(f"{self.client_id} is not connected")
        return self._wire

    async def _answer(self, wire: _Wire, kind: int, packet_id: int) -> Control:
        waiting: asyncio.Future[Control] = asyncio.get_running_loop().create_future()
        self._waiting[kind, packet_id] = waiting
        ended = asyncio.ensure_future(wire.ended.wait())
        try:
            async with asyncio.timeout(self._answers_within_s):
                await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise ConnectionLost(
                f"{self.client_id}: no answer within {self._answers_within_s:g} s"
            ) from error
        finally:
            ended.cancel()
            self._waiting.pop((kind, packet_id), None)
        if waiting.done():
            return waiting.result()
        waiting.cancel()
        raise ConnectionLost(f"{self.client_id}: the connection ended before the answer came")

    def _take_id(self) -> int:
        while True:
            self._next_id = self._next_id % _ID_MAX + 1
            if self._next_id not in self.in_flight:
                return self._next_id

    def _write(self, batch: list[bytes | int | tuple[str, bytes, int, int, bytes]]) -> None:
        if batch and self._wire is not None:
            self._wire.write(_core.encode_batch(self.version, batch))
