"""A whole `Broker` in this process, on a thread and loop of its own, for tests that block.

Tests talk to it over sockets and call `reload` and `statistics` from their own thread.
"""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Self, TypeVar

from quantumqtt import Broker
from quantumqtt.config import Settings
from quantumqtt.node import BrokerEvent, Listener, Statistics
from quantumqtt.policy import Hooks
from tests.harness import packets
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.packets import NO_PROPERTIES, ConnAck, Properties, Version, Will
from tests.harness.waiting import wait_until

_T = TypeVar("_T")
DEADLINE_S = 20.0


class LiveBroker:
    """A running broker and the peers a test has connected to it."""

    def __init__(self, settings: Settings, *, hooks: Hooks | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._broker = Broker(settings, hooks=hooks)
        self._peers: list[MqttPeer] = []
        self.events: list[BrokerEvent] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._broker.on_event(self.events.append)
        try:
            self.run(self._broker.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close_peers_but()
        self.run(self._broker.stop())
        self._end()
        failed = [event.reason for event in self.events if event.kind == "shard_failed"]
        assert not failed, f"a shard died: {failed}"

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    def run(self, work: Coroutine[object, object, _T]) -> _T:
        """Run something on the broker's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def reload(self) -> None:
        """Read users and rules again, as SIGHUP does."""
        self.run(self._broker.reload_access())

    def drain(self) -> None:
        """Ask every client to leave and wait until all have."""
        assert self.run(self._broker.drain(deadline_ms=int(DEADLINE_S * 1000)))

    def statistics(self) -> Statistics:
        """Take a snapshot of the counters."""
        return self._broker.statistics()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Every listener, as it is bound."""
        return self._broker.listeners

    @property
    def port(self) -> int:
        """Where the first listener is bound."""
        return self._broker.listeners[0].port

    def peer(self, version: Version = Version.V5) -> MqttPeer:
        """Connect a socket and say nothing yet."""
        listener = self._broker.listeners[0]
        peer = MqttPeer(listener.host, listener.port, version)
        self._peers.append(peer)
        return peer

    def close_peers_but(self, *kept: MqttPeer) -> None:
        """Drop every other connection of the test without a word."""
        for peer in self._peers:
            if peer not in kept:
                peer.close()
        self._peers = list(kept)

    def client(
        self,
        client_id: str,
        user_name: str | None = None,
        *,
        version: Version = Version.V5,
        clean: bool = True,
        will: Will | None = None,
        properties: Properties = NO_PROPERTIES,
    ) -> MqttPeer:
        """Open a session, which must succeed; the password of a user is its name."""
        peer = self.peer(version)
        peer.open(
            client_id,
            clean=clean,
            will=will,
            user_name=user_name,
            password=None if user_name is None else user_name.encode(),
            properties=properties,
        )
        return peer

    def knock(
        self,
        client_id: str,
        user_name: str | None = None,
        password: bytes | None = None,
        *,
        version: Version = Version.V5,
        clean: bool = True,
        will: Will | None = None,
    ) -> int:
        """Try to come in; gives CONNACK's code. Whoever is refused must also be closed."""
        with self.peer(version) as peer:
            peer.send(
                packets.connect(
                    client_id,
                    version=version,
                    clean=clean,
                    will=will,
                    user_name=user_name,
                    password=password,
                )
            )
            reason = peer.receive_a(ConnAck).reason
            if reason != 0:
                peer.expect_closed()
            return reason

    def wait_event(self, kind: str, **wanted: object) -> BrokerEvent:
        """Wait for an event with these fields."""

        def found() -> BrokerEvent | None:
            for event in list(self.events):
                if event.kind == kind and all(
                    getattr(event, name) == value for name, value in wanted.items()
                ):
                    return event
            return None

        wait_until(lambda: found() is not None, what=f"{kind} {wanted}")
        event = found()
        assert event is not None
        return event
