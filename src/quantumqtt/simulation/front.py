"""The side of a broker that holds connections: packets become commands, effects find their way.

It stands in for shards and sockets of `crates/node`, as plainly as can be. A connection is a pair
of queues; what is in them when it breaks is lost. Commands carry the epoch their connection was
opened with, whatever has happened to the session since: it is the machine that must refuse them.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from quantumqtt.simulation import commands, effects, packets
from quantumqtt.simulation.bugs import Bug
from quantumqtt.simulation.commands import Command, Origin
from quantumqtt.simulation.device import Device
from quantumqtt.simulation.effects import Effect
from quantumqtt.simulation.packets import Packet

COMMANDS_PER_ENTRY_MAX: Final = 6
NOWHERE: Final = "nowhere"
"""A topic that only a seeded bug publishes to."""


@dataclass(slots=True)
class Connection:
    """One network connection and what is on its way."""

    origin: Origin
    device: Device
    to_broker: deque[Packet] = field(default_factory=deque)
    to_device: deque[Effect] = field(default_factory=deque)
    session_epoch: int = 0
    incarnation: int = 0
    is_opened: bool = False
    is_asked: bool = False
    """CONNECT was read; nothing more is, until CONNACK."""
    is_ended: bool = False
    is_heard: bool = True
    """Whether the device still looks at this connection."""
    is_superseded: bool = False
    """Another connection has the session; whoever reads this one was not told yet."""


class Front:
    """All connections of one life of the node."""

    def __init__(
        self,
        dice: random.Random,
        bug: Bug | None,
        *,
        on_sent: Callable[[Connection, Effect], None],
        on_goodbye: Callable[[Connection], None],
    ) -> None:
        """Begin without connections; `on_sent` sees every packet that leaves."""
        self._dice = dice
        self._bug = bug
        self._on_sent = on_sent
        self._on_goodbye = on_goodbye
        self._next = 1
        self._own: list[Command] = []
        self._later: list[Command] = []
        self.connections: dict[Origin, Connection] = {}
        self.known_clients: set[str] = set()

    def accept(self, device: Device, connect: packets.Connect, *, life: int) -> Connection:
        """Take a new connection, whose first packet is its CONNECT."""
        connection = Connection((1, 0, life * 10_000 + self._next), device)
        self._next += 1
        connection.to_broker.append(connect)
        self.connections[connection.origin] = connection
        return connection

    def of(self, device: Device) -> Connection | None:
        """The connection the device talks over."""
        for connection in reversed(self.connections.values()):
            if connection.device is device and connection.is_heard:
                return connection
        return None

    def cut(self, connection: Connection) -> None:
        """Break the connection: both ways are empty at once."""
        self._end(connection, fire_will=True)
        self._leave(connection)

    def _end(self, connection: Connection, *, fire_will: bool) -> None:
        if connection.is_ended:
            return
        connection.is_ended = True
        connection.to_broker.clear()
        connection.to_device.clear()
        if connection.is_opened or not connection.is_asked:
            del self.connections[connection.origin]
            self._lose(connection, fire_will=fire_will)

    def _lose(self, connection: Connection, *, fire_will: bool) -> None:
        if connection.session_epoch == 0:
            return
        fires = fire_will and self._bug is not Bug.WILL_FORGOTTEN
        client_id, epoch = connection.device.name, connection.session_epoch
        self._own.append(
            commands.ConnectionLost(client_id=client_id, session_epoch=epoch, fire_will=fires)
        )

    def gather(self) -> list[list[Command]]:
        """Read some of what devices sent: the commands of this turn, as entries."""
        batch: list[Command] = [*self._own, *self._later]
        self._own = []
        self._later = []
        for connection in list(self.connections.values()):
            if connection.is_superseded and self._dice.random() < 0.4:
                self._end(connection, fire_will=True)
            for _ in range(self._dice.randint(0, 3)):
                if not connection.to_broker or self._waits(connection):
                    break
                batch.extend(self._read(connection, connection.to_broker.popleft()))
        entries = []
        while batch:
            size = self._dice.randint(1, COMMANDS_PER_ENTRY_MAX)
            entries.append(batch[:size])
            batch = batch[size:]
        return entries

    @staticmethod
    def _waits(connection: Connection) -> bool:
        return connection.is_asked and not connection.is_opened

    def _read(self, connection: Connection, packet: Packet) -> Iterable[Command]:
        device, origin = connection.device, connection.origin
        session_epoch = self._epoch_of(connection)
        match packet:
            case packets.Connect():
                connection.is_asked = True
                return self._open(connection, packet)
            case packets.Disconnect():
                self._on_goodbye(connection)
                self._end(connection, fire_will=False)
                own, self._own = self._own, []
                return own
            case packets.Subscribe(packet_id=packet_id, filter=text, qos=qos):
                asked = commands.SubscribeFilter(filter=text, qos=qos)
                return [
                    commands.Subscribe(
                        origin=origin,
                        client_id=device.name,
                        session_epoch=session_epoch,
                        packet_id=packet_id,
                        filters=(asked,),
                    )
                ]
            case packets.Unsubscribe(packet_id=packet_id, filter=text):
                return [
                    commands.Unsubscribe(
                        origin=origin,
                        client_id=device.name,
                        session_epoch=session_epoch,
                        packet_id=packet_id,
                        filters=(text,),
                    )
                ]
            case packets.Publish():
                return self._publish(connection, packet)
            case packets.Release(packet_id=packet_id):
                return [
                    commands.PubRel(
                        origin=origin,
                        client_id=device.name,
                        session_epoch=session_epoch,
                        packet_id=packet_id,
                    )
                ]
            case packets.Acknowledge(kind=kind, packet_id=packet_id):
                return [
                    commands.ClientAck(
                        client_id=device.name,
                        session_epoch=session_epoch,
                        packet_id=packet_id,
                        kind=kind,
                    )
                ]

    def _epoch_of(self, connection: Connection) -> int:
        """The epoch the connection was opened with."""
        if self._bug is Bug.FENCE_IGNORED and connection.session_epoch != 0:
            epochs = [
                other.session_epoch
                for other in self.connections.values()
                if other.device is connection.device
            ]
            return max(epochs)
        return connection.session_epoch

    def _open(self, connection: Connection, packet: packets.Connect) -> list[Command]:
        device = connection.device
        if not device.is_stored:
            connection.is_opened = True
            self._send(connection, _connack(connection, is_present=False))
            return []
        return [
            commands.OpenSession(
                origin=connection.origin,
                client_id=device.name,
                clean_start=packet.clean_start,
                expiry_s=packet.expiry_s,
                receive_maximum=packet.receive_maximum,
                will=packet.will,
            )
        ]

    def _publish(self, connection: Connection, packet: packets.Publish) -> list[Command]:
        message = packet.message
        publish = commands.Publish(
            origin=connection.origin,
            client_id=connection.device.name,
            topic=message.topic,
            payload=message.payload,
            qos=message.qos,
            packet_id=packet.packet_id,
            session_epoch=self._epoch_of(connection),
            incarnation=connection.incarnation,
            retain=message.retain,
            dup=packet.dup,
        )
        if message.qos != 2:
            return [publish]
        if self._bug is Bug.REPEATS_NOT_KNOWN:
            forget = commands.PubRel(
                origin=connection.origin,
                client_id=connection.device.name,
                session_epoch=connection.session_epoch,
                packet_id=packet.packet_id,
            )
            return [forget, publish]
        if self._bug is Bug.ID_APART_FROM_MESSAGE and not packet.dup:
            alone = replace(
                publish, client_id=NOWHERE, qos=1, packet_id=0, incarnation=0, session_epoch=0
            )
            self._later.append(alone)
            return [replace(publish, topic=NOWHERE, payload=b"", retain=False)]
        return [publish]

    def dispatch(self, done: Iterable[Effect]) -> None:
        """Carry effects to the connections they are for."""
        for effect in done:
            match effect:
                case effects.SessionOpened():
                    self._opened(effect)
                case effects.SessionEnded(origin=origin, session_epoch=epoch):
                    ended = None if origin is None else self.connections.get(origin)
                    if ended is not None and ended.session_epoch == epoch:
                        self._close(ended)
                case effects.Append():
                    pass
                case _:
                    connection = self.connections.get(effect.origin)
                    if connection is not None and connection.is_opened:
                        self._send(connection, effect)

    def _opened(self, effect: effects.SessionOpened) -> None:
        previous = None if effect.previous is None else self.connections.get(effect.previous)
        if previous is not None:
            previous.is_superseded = True
            previous.to_device.clear()
            self._leave(previous)
        connection = self.connections.get(effect.origin)
        if connection is None:
            return
        connection.is_opened = True
        connection.session_epoch = effect.session_epoch
        connection.incarnation = effect.incarnation
        if connection.is_ended:
            del self.connections[connection.origin]
            self._lose(connection, fire_will=True)
            return
        if self._bug is Bug.SESSION_PRESENT_GUESSED:
            is_known = effect.client_id in self.known_clients
            effect = replace(effect, session_present=is_known)
        self.known_clients.add(effect.client_id)
        self._send(connection, effect)

    def _close(self, connection: Connection) -> None:
        connection.is_ended = True
        self.connections.pop(connection.origin, None)
        self._leave(connection)

    @staticmethod
    def _leave(connection: Connection) -> None:
        if connection.is_heard:
            connection.is_heard = False
            connection.device.on_disconnected()

    def _send(self, connection: Connection, effect: Effect) -> None:
        self._on_sent(connection, effect)
        if self._bug is Bug.BACKLOG_REVERSED and isinstance(effect, effects.Deliver):
            connection.to_device.appendleft(effect)
            return
        connection.to_device.append(effect)

    def drop_all(self) -> None:
        """The process is gone, and every connection with it."""
        for connection in self.connections.values():
            self._leave(connection)
        self.connections.clear()
        self._own = []
        self._later = []


def _connack(connection: Connection, *, is_present: bool) -> effects.SessionOpened:
    return effects.SessionOpened(
        origin=connection.origin,
        client_id=connection.device.name,
        session_present=is_present,
        session_epoch=0,
        incarnation=0,
        subscriptions=(),
        previous=None,
    )
