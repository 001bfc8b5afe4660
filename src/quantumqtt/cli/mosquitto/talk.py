"""One client's conversation with a broker, step by step, as Mosquitto's clients have it.

Theory of operation. `Talk` owns the connection and the little protocol state these programs need:
packet ids, what is on its way to the broker, QoS 2 messages on their way to us, the keep-alive. A
`Part` (publish, print, ask) says what to do when something happened. Everything runs in one thread
around one poll; what is to be written is collected during a step and written at its end, so an
acknowledgement leaves only after the part has dealt with the message.

`quantumqtt.client` is not used here on purpose. These programs promise what that client hides: the
exact packets (`-d` tells each of them), ids, properties and exit codes of their models; and they
start in a third of the time it takes to import asyncio.
"""

import os
import select
import signal
import sys
import time
from collections import deque
from typing import Final

from quantumqtt import _core
from quantumqtt._core import AckRun, Control, Message
from quantumqtt.cli.mosquitto.link import Link
from quantumqtt.cli.mosquitto.options import V5, V311, Options
from quantumqtt.cli.mosquitto.properties import RECEIVE_MAXIMUM, SESSION_EXPIRY
from quantumqtt.errors import (
    ConnectFailed,
    ConnectionLost,
    ProtocolError,
    QuantuMQTTError,
    RemoteProtocolError,
)

_CONNACK, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 2, 4, 5, 6, 7
_SUBACK, _UNSUBACK, _PINGRESP, _DISCONNECT = 9, 11, 13, 14
_ACK_NAMES: Final = {_PUBACK: "PUBACK", _PUBREC: "PUBREC", _PUBCOMP: "PUBCOMP"}
_PINGREQ_BYTES: Final = b"\xc0\x00"
_FIRST_ERROR: Final = 0x80
_PACKET_BYTES_MAX: Final = 268_435_460
_ID_MAX: Final = 65_535
_RECONNECT_S: Final = 1.0
_LINGER_S: Final = 5.0
# The return codes of CONNACK before MQTT 5, which are what scripts compare exit codes with.
_RETURN_CODES: Final = {0x84: 1, 0x85: 2, 0x88: 3, 0x86: 4, 0x87: 5}
_SERVER_KEEP_ALIVE, _SERVER_RECEIVE_MAXIMUM, _ASSIGNED_ID, _REASON_STRING = 0x13, 0x21, 0x12, 0x1F

LOST: Final = 7
REFUSED: Final = 5
BROKEN: Final = 2
KEEP_ALIVE: Final = 19


class Part:
    """What one program does with what happens; nothing, unless it says otherwise."""

    def on_connected(self) -> None:
        """The broker said yes."""

    def on_subscribed(self, packet_id: int, codes: bytes) -> None:
        """The broker answered a SUBSCRIBE."""

    def on_message(self, message: Message) -> None:
        """A message came; at QoS 2 once it is released."""

    def on_published(self, packet_id: int, reason_code: int, reason: str | None) -> None:
        """A publish is done: written at QoS 0, acknowledged at 1 and 2."""

    def on_idle(self) -> float | None:
        """All that happened was dealt with; returns when to be called again at the latest."""
        return None


class _Outgoing:
    """A publish that has a packet id and no last acknowledgement."""

    __slots__ = ("is_received", "packet_id", "payload", "properties", "qos", "retain", "topic")

    def __init__(
        self, packet_id: int, topic: str, payload: bytes, qos: int, retain: bool, properties: bytes
    ) -> None:
        self.packet_id = packet_id
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.is_received = False


class Talk:
    """The conversation."""

    def __init__(self, options: Options, part: Part, *, reconnects: bool) -> None:
        self.options = options
        self.refused_with: int | None = None
        self.refusal = ""
        self.timed_out = False
        self._part = part
        self._reconnects = reconnects
        self._link: Link | None = None
        self._outbox: list[bytes | int | tuple[str, bytes, int, int, bytes]] = []
        self._written: list[int] = []
        self._rest = b""
        self._is_open = self._was_open = False
        self._is_leaving = False
        self._next_id = 1
        self._on_its_way: dict[int, _Outgoing] = {}
        self._waiting: deque[_Outgoing] = deque()
        self._window = options.inflight_max
        self._unreleased: dict[int, Message] = {}
        self._aliases: dict[int, str] = {}
        self._keep_alive_s = float(options.keep_alive_s)
        self._heard_at = self._said_at = 0.0
        self._pinged_at: float | None = None
        self._deadline: float | None = None
        self._name = options.client_id or ("null" if options.version == V5 else new_client_id())
        self._wake, self._waker = os.pipe()
        self._extra_fd: int | None = None

    # --- life ---------------------------------------------------------------------------------

    def run(self) -> int:
        """Connect, and go on until the part says goodbye or it cannot go on; returns the exit code.

        Raises:
            QuantuMQTTError: No connection came about, or the broker breaks MQTT.
        """
        try:
            self._connect()
            if self.options.timeout_s:
                self._deadline = time.monotonic() + self.options.timeout_s
            while True:
                error = self._until_lost()
                if error is None or self._is_leaving or self.refused_with is not None:
                    return self._exit_code()
                if not self._reconnects:
                    raise error
                self.say(f"# {error}; connecting again")
                if not self._connect_again():
                    return self._exit_code()
        finally:
            self._close()
            os.close(self._wake)
            os.close(self._waker)

    def _exit_code(self) -> int:
        if self.timed_out:
            return 27
        return self.refused_with or 0

    def leave_on_signals(self) -> None:
        """Say goodbye when asked to end, instead of just ending."""
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.leave(reason_code=4))

    def watch(self, descriptor: int | None) -> None:
        """Wake up when this can be read, too."""
        self._extra_fd = descriptor

    def leave(self, reason_code: int = 0) -> None:
        """Say goodbye; nothing that comes later counts."""
        if self._is_leaving:
            return
        self._is_leaving = True
        if self._is_open:
            self.say(f"Client {self._name} sending DISCONNECT")
            is_v5 = self.options.version == V5
            self._outbox.append(
                _core.encode_disconnect(
                    self.options.version,
                    reason_code if is_v5 else 0,
                    self.options.properties.block("disconnect") if is_v5 else b"",
                )
            )

    def _connect(self) -> None:
        self._link = Link(self.options)
        self._rest = b""
        self._pinged_at = None
        self._aliases.clear()
        self._heard_at = self._said_at = time.monotonic()
        self.say(f"Client {self._name} sending CONNECT")
        self._outbox = [self._connect_packet()]
        self._flush()

    def _connect_again(self) -> bool:
        """Try until it works; False when we were asked to leave meanwhile."""
        while True:
            self._wait(time.monotonic() + _RECONNECT_S, listens=False)
            if self._is_leaving:
                return False
            try:
                self._connect()
            except ConnectFailed as error:
                self.say(f"# {error}")
            else:
                return True

    def _connect_packet(self) -> bytes:
        options = self.options
        is_v5 = options.version == V5
        properties = None
        if is_v5:
            more: list[tuple[int, int]] = []
            if options.expiry_s:
                more.append((SESSION_EXPIRY, options.expiry_s))
            more.append((RECEIVE_MAXIMUM, min(options.count_max or 20, 20)))
            properties = options.properties.block("connect", *more)
        will = None
        if options.will_topic is not None:
            will = (
                options.will_topic,
                options.will_payload or b"",
                options.will_qos,
                options.will_retain,
                options.properties.block("will") if is_v5 else b"",
            )
        return _core.encode_connect(
            options.version,
            "" if self._name == "null" else self._name,
            clean_start=options.clean,
            keep_alive_s=options.keep_alive_s,
            user_name=options.user_name,
            password=None if options.password is None else os.fsencode(options.password),
            will=will,
            properties=properties,
        )

    def _until_lost(self) -> QuantuMQTTError | None:
        """Stay in conversation; returns why it ended, None when we ended it."""
        try:
            while True:
                next_at = self._part.on_idle() if self._is_open and not self._is_leaving else None
                self._flush()
                if self._is_leaving:
                    self._linger()
                    return None
                if self._tell_written():
                    continue
                self._wait(next_at)
                self._keep_alive()
        except (ConnectionLost, ConnectFailed) as error:
            if not self._was_open:
                # Nobody is served by trying again and again what never worked.
                self._reconnects = False
            self._is_open = False
            self._close()
            return error

    def _linger(self) -> None:
        """Let the last bytes out, but not for ever."""
        give_up_at = time.monotonic() + _LINGER_S
        link = self._link
        while link is not None and link.has_unsent and time.monotonic() < give_up_at:
            poll = select.poll()
            poll.register(link.fileno(), select.POLLOUT)
            poll.poll(100)
            link.send()

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _wait(self, next_at: float | None, *, listens: bool = True) -> None:
        """Wait until something comes or is due, and deal with what came."""
        now = time.monotonic()
        due = [at for at in (next_at, self._deadline, self._keep_alive_at()) if at is not None]
        timeout_ms = max(0, int((min(due) - now) * 1000) + 1) if due else None
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        link = self._link if listens else None
        if link is not None:
            poll.register(link.fileno(), link.wanted)
        if self._extra_fd is not None and self._is_open:
            poll.register(self._extra_fd, select.POLLIN)
        ready = dict(poll.poll(timeout_ms))
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self.timed_out = True
            self.leave(reason_code=4)
            self._deadline = None
        elif link is not None and link.fileno() in ready and not self._is_leaving:
            self._on_bytes(link.receive())

    def _flush(self) -> None:
        if self._outbox and self._link is not None:
            batch, self._outbox = self._outbox, []
            self._said_at = time.monotonic()
            sys.stdout.buffer.flush()
            self._link.send(_core.encode_batch(self.options.version, batch))
        elif self._link is not None and self._link.has_unsent:
            self._link.send()
        sys.stdout.buffer.flush()

    def _tell_written(self) -> bool:
        """Tell the part of publishes at QoS 0, which are done once they are written."""
        written, self._written = self._written, []
        for packet_id in written:
            self._part.on_published(packet_id, 0, None)
        return bool(written)

    def _keep_alive_at(self) -> float | None:
        if not self._keep_alive_s or self._link is None:
            return None
        if self._pinged_at is not None:
            return self._pinged_at + self._keep_alive_s
        return min(self._said_at, self._heard_at) + self._keep_alive_s

    def _keep_alive(self) -> None:
        at = self._keep_alive_at()
        if at is None or time.monotonic() < at or not self._is_open:
            return
        if self._pinged_at is not None:
            raise ConnectionLost(f"no answer to a ping for {self._keep_alive_s:g} s")
        self.say(f"Client {self._name} sending PINGREQ")
        self._outbox.append(_PINGREQ_BYTES)
        self._pinged_at = time.monotonic()

    # --- what the part asks for ---------------------------------------------------------------

    def subscribe(self, filters: list[str]) -> None:
        """Ask for messages."""
        packet_id, options = self._take_id(), self.options.subscribe_options
        for text in filters:
            self.say(
                f"Client {self._name} sending SUBSCRIBE (Mid: {packet_id}, Topic: {text},"
                f" QoS: {options & 3}, Options: 0x{options & 0xFC:02x})"
            )
        version = self.options.version
        properties = self.options.properties.block("subscribe") if version == V5 else None
        wanted = [(text, options) for text in filters]
        self._outbox.append(_core.encode_subscribe(version, packet_id, wanted, properties))

    def unsubscribe(self, text: str) -> None:
        """Want no more of this."""
        packet_id, version = self._take_id(), self.options.version
        self.say(f"Client {self._name} sending UNSUBSCRIBE (Mid: {packet_id}, Topic: {text})")
        properties = self.options.properties.block("unsubscribe") if version == V5 else None
        self._outbox.append(_core.encode_unsubscribe(version, packet_id, [text], properties))

    def publish(
        self, topic: str, payload: bytes, qos: int, *, retain: bool, properties: bytes = b""
    ) -> int:
        """Publish, now or when the window has room; returns the packet id."""
        outgoing = _Outgoing(self._take_id(), topic, payload, qos, retain, properties)
        if not qos:
            self._put(outgoing, dup=False)
            self._written.append(outgoing.packet_id)
        elif len(self._on_its_way) < self._window:
            self._on_its_way[outgoing.packet_id] = outgoing
            self._put(outgoing, dup=False)
        else:
            self._waiting.append(outgoing)
        return outgoing.packet_id

    @property
    def has_room(self) -> bool:
        """Whether another publish would leave now."""
        link = self._link
        return not self._waiting and len(self._on_its_way) < self._window and (
            link is None or not link.has_unsent
        )  # fmt: skip

    @property
    def has_unpublished(self) -> bool:
        """Whether a publish still waits for the broker."""
        return bool(self._on_its_way or self._waiting or self._written)

    def _put(self, one: _Outgoing, *, dup: bool) -> None:
        self.say(
            f"Client {self._name} sending PUBLISH (d{int(dup)}, q{one.qos}, r{int(one.retain)},"
            f" m{one.packet_id}, '{one.topic or '(null)'}', ... ({len(one.payload)} bytes))"
        )
        flags = dup << 3 | one.qos << 1 | one.retain
        packet_id = one.packet_id if one.qos else 0
        self._outbox.append((one.topic, one.payload, flags, packet_id, one.properties))

    def _take_id(self) -> int:
        while self._next_id in self._on_its_way:
            self._next_id = self._next_id % _ID_MAX + 1
        packet_id = self._next_id
        self._next_id = packet_id % _ID_MAX + 1
        return packet_id

    # --- what the broker says -----------------------------------------------------------------

    def _on_bytes(self, data: bytes) -> None:
        if not data:
            return
        self._heard_at = time.monotonic()
        data = self._rest + data
        version = self.options.version
        if not self._is_open and data[:2] == b"\x20\x02":
            # The CONNACK of a broker that only knows older versions has no property length.
            version = min(version, V311)
        items, taken, _ = _core.decode_packets(version, data, _PACKET_BYTES_MAX)
        self._rest = data[taken:]
        for item in items:
            if self._is_leaving:
                return
            if isinstance(item, RemoteProtocolError):
                raise item
            if isinstance(item, Control):
                self._on_control(item)
            elif not self._is_open:
                raise _broken("a packet before CONNACK")
            elif isinstance(item, AckRun):
                for packet_id in item.packet_ids:
                    self._on_ack(item.kind, packet_id, item.reason_code, None)
            elif isinstance(item, Message):
                self._on_publish(item)
            else:
                for message in item:
                    self._on_publish(message)

    def _on_control(self, packet: Control) -> None:
        kind = packet.kind
        if not self._is_open:
            if kind != _CONNACK:
                raise _broken(f"packet type {kind} before CONNACK")
            self._on_connack(packet)
        elif kind == _SUBACK:
            self._on_suback(packet)
        elif kind == _UNSUBACK:
            self.say(f"Client {self._name} received UNSUBACK")
        elif kind == _PINGRESP:
            self.say(f"Client {self._name} received PINGRESP")
            self._pinged_at = None
        elif kind == _DISCONNECT and self.options.version == V5:
            self.say(f"Received DISCONNECT ({packet.reason_code})")
            raise ConnectionLost(f"the broker ended the connection: {words_of(packet)}")
        elif _PUBACK <= kind <= _PUBCOMP:
            reason = dict(packet.properties).get(_REASON_STRING)
            reason = reason if isinstance(reason, str) else None
            self._on_ack(kind, packet.packet_id, packet.reason_code, reason)
        else:
            raise _broken(f"packet type {kind} on an open connection")

    def _on_connack(self, packet: Control) -> None:
        code = packet.reason_code
        shown = code if self.options.version == V5 else _RETURN_CODES.get(code, code)
        self.say(f"Client {self._name} received CONNACK ({shown})")
        if code:
            self.refused_with = shown
            self.refusal = words_of(packet)
            raise ConnectionLost(f"connection refused: {self.refusal}")
        self._is_open = self._was_open = True
        given = dict(packet.properties)
        assigned = given.get(_ASSIGNED_ID)
        if isinstance(assigned, str):
            self._name = assigned
        keep_alive = given.get(_SERVER_KEEP_ALIVE)
        if isinstance(keep_alive, int):
            self._keep_alive_s = float(keep_alive)
        window = given.get(_SERVER_RECEIVE_MAXIMUM)
        if isinstance(window, int):
            self._window = min(self.options.inflight_max, window)
        if not packet.session_present:
            self._unreleased.clear()
        for one in self._on_its_way.values():
            if one.is_received:
                self._send_ack(_PUBREL, one.packet_id)
            else:
                self._put(one, dup=True)
        self._part.on_connected()

    def _on_suback(self, packet: Control) -> None:
        self.say(f"Client {self._name} received SUBACK")
        self._part.on_subscribed(packet.packet_id, packet.codes)

    def _on_publish(self, message: Message) -> None:
        if message.topic_alias is not None:
            message = self._resolve(message, message.topic_alias)
        packet_id = message.packet_id or 0
        self.say(
            f"Client {self._name} received PUBLISH (d{int(message.dup)}, q{message.qos},"
            f" r{int(message.retain)}, m{packet_id}, '{message.topic}', ..."
            f" ({len(message.payload)} bytes))"
        )
        if message.qos == 2:
            self._send_ack(_PUBREC, packet_id)
            self._unreleased[packet_id] = message
            return
        if message.qos == 1:
            self._send_ack(_PUBACK, packet_id)
        self._part.on_message(message)

    def _resolve(self, message: Message, alias: int) -> Message:
        if message.topic:
            self._aliases[alias] = message.topic
            return message
        if alias not in self._aliases:
            raise _broken(f"topic alias {alias} stands for nothing")
        return message.with_topic(self._aliases[alias])

    def _on_ack(self, kind: int, packet_id: int, code: int, reason: str | None) -> None:
        if kind == _PUBREL:
            self.say(f"Client {self._name} received PUBREL (Mid: {packet_id})")
            self._send_ack(_PUBCOMP, packet_id)
            message = self._unreleased.pop(packet_id, None)
            if message is not None:
                self._part.on_message(message)
            return
        if kind == _PUBREC:
            self.say(f"Client {self._name} received PUBREC (Mid: {packet_id})")
        else:
            name = _ACK_NAMES[kind]
            self.say(f"Client {self._name} received {name} (Mid: {packet_id}, RC:{code})")
        one = self._on_its_way.get(packet_id)
        if one is None:
            return
        if kind == _PUBREC and code < _FIRST_ERROR:
            one.is_received = True
            self._send_ack(_PUBREL, packet_id)
            return
        del self._on_its_way[packet_id]
        while self._waiting and len(self._on_its_way) < self._window:
            waiting = self._waiting.popleft()
            self._on_its_way[waiting.packet_id] = waiting
            self._put(waiting, dup=False)
        self._part.on_published(packet_id, code, reason)

    def _send_ack(self, kind: int, packet_id: int) -> None:
        name = {_PUBREL: "PUBREL", **_ACK_NAMES}[kind]
        code = ", rc0" if kind in (_PUBACK, _PUBREC) else ""
        self.say(f"Client {self._name} sending {name} (m{packet_id}{code})")
        self._outbox.append(kind << 16 | packet_id)

    def say(self, line: str) -> None:
        """Tell what happens, when that was asked for (`-d`)."""
        if self.options.debug:
            sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape") + b"\n")


def new_client_id() -> str:
    """Make up a client id of at most 23 characters, which is what MQTT 3.1 allows."""
    return f"qmq-{os.urandom(8).hex()}"


def words_of(packet: Control) -> str:
    """Say a reason code, and what the broker adds to it."""
    from quantumqtt.mqtt.reason_code import ReasonCode

    try:
        words = ReasonCode(packet.reason_code).label
    except ValueError:
        words = f"reason code {packet.reason_code:#04x}"
    reason = dict(packet.properties).get(_REASON_STRING)
    return f"{words} ({reason})" if isinstance(reason, str) else words


def _broken(what: str) -> ProtocolError:
    return RemoteProtocolError(
        f"the broker breaks MQTT: {what}", "`quantumqtt test` tells what else it does wrong"
    )
