"""`$SYS/…`: what the broker says of itself, with Mosquitto's names.

Theory of operation. Every `sys_interval_s` one snapshot of the counters is turned into messages,
and those that changed go to the native half in one crossing. Load averages are moving ones over 1,
5 and 15 minutes, as Mosquitto computes them: what came since the last time, per minute, smoothed.
Who comes and goes is told as it happens, one crossing for each batch of events.

Counts of messages are counts of PUBLISH packets. Nobody but the broker may publish there, nothing
of it is in the log, and a filter has to spell `$SYS`.
"""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from quantumqtt.node.native import NativeEvent, NativeNode, Statistics

MINUTES: Final = (1, 5, 15)
Said = tuple[str, bytes, bool]
_NEVER_IN_A_LEVEL: Final = ("/", "+", "#", "\0")
_PRESENCE: Final = {"session_opened": "connected", "session_closed": "disconnected"}
_LOADS: Final = (
    "connections",
    "sockets",
    "messages/received",
    "messages/sent",
    "publish/received",
    "publish/sent",
    "publish/dropped",
    "bytes/received",
    "bytes/sent",
)


@dataclass(slots=True)
class Load:
    """The moving averages of one counter."""

    counted: float = 0
    averages: tuple[float, ...] = (0.0,) * len(MINUTES)

    def take(self, counter: float, elapsed_s: float) -> None:
        """Let the counter have come this far, so long after the last time."""
        per_minute = (counter - self.counted) * 60 / elapsed_s
        self.counted = counter
        self.averages = tuple(
            per_minute + math.exp(-elapsed_s / (60 * minutes)) * (before - per_minute)
            for minutes, before in zip(MINUTES, self.averages, strict=True)
        )


class Report:
    """Turns snapshots into messages; remembers what was said."""

    def __init__(self, version: str) -> None:
        """Nothing was said yet."""
        self._version = f"quantumqtt version {version}"
        self._loads = {name: Load() for name in _LOADS}
        self._connected_max = 0
        self._said: dict[str, bytes] = {}

    def changes(self, now: Statistics, *, elapsed_s: float) -> list[Said]:
        """Say what is different from the last time."""
        values = {
            f"$SYS/broker/{name}": str(value).encode()
            for name, value in {**self._sizes(now), **self._averages(now, elapsed_s)}.items()
        }
        changed = [
            (topic, value, True)
            for topic, value in values.items()
            if self._said.get(topic) != value
        ]
        self._said = values
        return changed

    def _sizes(self, now: Statistics) -> Mapping[str, object]:
        away = max(0, now.sessions_stored - now.sessions_attached)
        self._connected_max = max(self._connected_max, now.connections)
        received, sent = sum(now.publishes_received_total), sum(now.publishes_sent_total)
        return {
            "version": self._version,
            "uptime": f"{now.uptime_ms // 1000} seconds",
            "clients/connected": now.connections,
            "clients/active": now.connections,
            "clients/disconnected": away,
            "clients/inactive": away,
            "clients/total": now.connections + away,
            "clients/maximum": self._connected_max,
            "clients/expired": now.sessions_expired_total,
            "messages/received": received,
            "messages/sent": sent,
            "messages/stored": now.retained + now.queued,
            "store/messages/count": now.retained + now.queued,
            "store/messages/bytes": now.retained_bytes + now.queued_bytes,
            "publish/messages/received": received,
            "publish/messages/sent": sent,
            "publish/messages/dropped": sum(now.drops_total.values()),
            "bytes/received": now.bytes_received_total,
            "bytes/sent": now.bytes_sent_total,
            "retained messages/count": now.retained,
            "subscriptions/count": now.subscriptions,
        }

    def _averages(self, now: Statistics, elapsed_s: float) -> Mapping[str, object]:
        received, sent = sum(now.publishes_received_total), sum(now.publishes_sent_total)
        counters = {
            "connections": now.connections_total,
            "sockets": now.connections_total,
            "messages/received": received,
            "messages/sent": sent,
            "publish/received": received,
            "publish/sent": sent,
            "publish/dropped": sum(now.drops_total.values()),
            "bytes/received": now.bytes_received_total,
            "bytes/sent": now.bytes_sent_total,
        }
        found: dict[str, object] = {}
        for name, load in self._loads.items():
            load.take(counters[name], elapsed_s)
            for minutes, average in zip(MINUTES, load.averages, strict=True):
                found[f"load/{name}/{minutes}min"] = f"{average:.2f}"
        return found


class SystemTopics:
    """Says what there is to say, at intervals and when clients come and go."""

    def __init__(
        self,
        node: NativeNode,
        *,
        interval_s: float,
        version: str,
        node_name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember for whom to speak; nothing is said yet."""
        self._node = node
        self._interval_s = interval_s
        self._report = Report(version)
        self._prefix = f"$SYS/brokers/{node_name}/clients"
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Say the first of it, then go on at intervals on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve(), name="system-topics")

    async def stop(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def on_events(self, events: Iterable[NativeEvent]) -> None:
        """Say who came and who went; not kept, for it would be a list of everybody ever seen."""
        said: list[Said] = []
        for event in events:
            word = _PRESENCE.get(event.kind)
            topic = None if word is None else self._topic_of(event.client_id or "", word)
            if topic is not None:
                said.append((topic, _presence(event), False))
        if said:
            self._node.say(said)

    def _topic_of(self, client_id: str, word: str) -> str | None:
        """Name the topic; a client id that cannot be part of one is left out."""
        # Searched natively: an id may have 65,535 characters, and each connection comes by here.
        if not client_id or any(mark in client_id for mark in _NEVER_IN_A_LEVEL):
            return None
        return f"{self._prefix}/{client_id}/{word}"

    async def _serve(self) -> None:
        last_s, elapsed_s = self._clock(), self._interval_s
        while True:
            said = self._report.changes(self._node.statistics(), elapsed_s=elapsed_s)
            if said:
                self._node.say(said)
            await asyncio.sleep(self._interval_s)
            now_s = self._clock()
            last_s, elapsed_s = now_s, max(now_s - last_s, 0.001)


def _presence(event: NativeEvent) -> bytes:
    facts: dict[str, object] = {
        "client_id": event.client_id,
        "user_name": event.user_name,
        "at_ms": event.at_ms,
        "peer": event.peer,
        "listener": event.listener,
        "protocol": event.protocol,
    }
    if event.kind == "session_closed":
        facts["reason"] = event.reason
    return json.dumps(facts).encode()
