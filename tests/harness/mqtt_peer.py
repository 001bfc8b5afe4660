"""A scripted peer that speaks MQTT step by step: what it sends is said, what comes is checked.

It does nothing by itself: no ping, no acknowledgement, no reconnect. Steps that nearly every test
needs (open a session, subscribe, finish an exchange) are methods; everything else is `send` with a
packet of `packets.py`, and `receive`.
"""

import socket
from collections import deque
from contextlib import suppress
from typing import TypeVar

from tests.harness import packets
from tests.harness.packets import (
    NO_PROPERTIES,
    Ack,
    ConnAck,
    Disconnect,
    Kind,
    Packet,
    PingResp,
    Properties,
    Publish,
    SubAck,
    UnsubAck,
    Version,
    Will,
)
from tests.harness.raw_peer import DEADLINE_S, RawPeer

P = TypeVar("P", bound=Packet)


class MqttPeer(RawPeer):
    """One connection that speaks one version."""

    def __init__(
        self,
        host: str,
        port: int,
        version: Version,
        *,
        deadline_s: float = DEADLINE_S,
        over: socket.socket | None = None,
    ) -> None:
        """Connect the socket, unless one is given; no packet is sent yet."""
        super().__init__(host, port, deadline_s=deadline_s, over=over)
        self.version = version
        self.server = (host, port)
        self._set_aside: deque[Publish] = deque()

    def receive(self) -> Packet:
        """Take the next packet, whatever it is; messages that were set aside come first."""
        if self._set_aside:
            return self._set_aside.popleft()
        return packets.parse(self.receive_packet(), self.version)

    def receive_a(self, kind: type[P]) -> P:
        """Read the next packet, which must be of this kind."""
        received = self.receive()
        assert isinstance(received, kind), f"expected a {kind.__name__}, got {received}"
        return received

    def open(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        keep_alive_s: int = 60,
        will: Will | None = None,
        user_name: str | None = None,
        password: bytes | None = None,
        properties: Properties = NO_PROPERTIES,
    ) -> ConnAck:
        """Open a session, which must succeed."""
        self.send(
            packets.connect(
                client_id,
                version=self.version,
                clean=clean,
                keep_alive_s=keep_alive_s,
                will=will,
                user_name=user_name,
                password=password,
                properties=properties,
            )
        )
        connack = self.receive_a(ConnAck)
        assert connack.reason == 0, f"refused: {connack}"
        return connack

    def subscribe(
        self,
        *filters: str,
        options: int = 0,
        packet_id: int = 1,
        properties: Properties = NO_PROPERTIES,
    ) -> tuple[int, ...]:
        """Subscribe to filters with the same options; returns the codes of SUBACK."""
        wanted = [(name, options) for name in filters]
        self.send(
            packets.subscribe(packet_id, *wanted, version=self.version, properties=properties)
        )
        suback = self.receive_a(SubAck)
        assert suback.packet_id == packet_id
        return suback.codes

    def unsubscribe(self, *filters: str, packet_id: int = 1) -> tuple[int, ...]:
        """Unsubscribe; returns the codes of UNSUBACK."""
        self.send(packets.unsubscribe(packet_id, *filters, version=self.version))
        unsuback = self.receive_a(UnsubAck)
        assert unsuback.packet_id == packet_id
        return unsuback.codes

    def send_publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 1,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """Send one PUBLISH and wait for nothing."""
        identifier = packet_id if qos else None
        self.send(
            packets.publish(
                topic,
                payload,
                version=self.version,
                qos=qos,
                packet_id=identifier,
                dup=dup,
                retain=retain,
                properties=properties,
            )
        )

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        packet_id: int = 1,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """Publish and finish the exchange; nothing else may come meanwhile."""
        self.send_publish(
            topic, payload, qos=qos, retain=retain, packet_id=packet_id, properties=properties
        )
        if qos == 1:
            self.expect_ack(Kind.PUBACK, packet_id)
        if qos == 2:
            self.expect_ack(Kind.PUBREC, packet_id)
            self.send(packets.ack(Kind.PUBREL, packet_id))
            self.expect_ack(Kind.PUBCOMP, packet_id)

    def expect_ack(self, kind: Kind, packet_id: int, *, reason: int | None = None) -> None:
        """Read an acknowledgement; without a `reason` any that means success will do."""
        received = self.receive_a(Ack)
        assert (received.kind, received.packet_id) == (kind, packet_id)
        if reason is None:
            assert received.reason < 0x80, f"{kind.name} reports {received.reason:#04x}"
        else:
            assert received.reason == reason

    def acknowledge(self, message: Publish) -> None:
        """Finish the exchange of a message received; messages behind it are set aside."""
        if message.packet_id is None:
            return
        if message.qos == 1:
            self.send(packets.ack(Kind.PUBACK, message.packet_id))
            return
        self.send(packets.ack(Kind.PUBREC, message.packet_id))
        while isinstance(answer := packets.parse(self.receive_packet(), self.version), Publish):
            self._set_aside.append(answer)
        assert answer == Ack(Kind.PUBREL, message.packet_id)
        self.send(packets.ack(Kind.PUBCOMP, message.packet_id))

    def take(self) -> Publish:
        """Receive one message and acknowledge it."""
        message = self.receive_a(Publish)
        self.acknowledge(message)
        return message

    def ping(self) -> None:
        """Ask for a sign of life; whatever was written to us before stands before the answer."""
        self.send(packets.PACKET_PINGREQ)
        self.receive_a(PingResp)

    def leave(self) -> None:
        """Say DISCONNECT and wait until the server has closed."""
        self.send(packets.PACKET_DISCONNECT)
        self.expect_closed()
        self.close()

    def receive_until_closed(self) -> bytes:
        """Read everything up to the close, which must come."""
        received = bytearray()
        with suppress(ConnectionResetError):  # a close with bytes of ours unread
            while chunk := self._socket.recv(65_536):
                received += chunk
        return bytes(received)

    def expect_end(self, *reasons: int) -> None:
        """Wait for the server to end it: for one of these reasons in MQTT 5, silently before."""
        if self.version == Version.V5:
            reason = self.receive_a(Disconnect).reason
            assert reason in reasons, f"ended with {reason:#04x}"
        self.expect_closed()
