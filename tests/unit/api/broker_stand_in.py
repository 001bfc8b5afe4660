"""A broker as the admin endpoint sees it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from quantumqtt.api.view import BrokerView, NodeFacts
from quantumqtt.errors import TransportError
from quantumqtt.node import Listener, NodeState
from quantumqtt.policy import Access
from tests.harness.fake_node import FakeStatistics

FACTS = NodeFacts("0.1.0", "memory", {"version": "0.1.0", "profile": "release"})

BUSY = FakeStatistics(
    uptime_ms=61_500,
    connections=3,
    connections_total=10,
    connections_refused_full_total=8,
    sessions_stored=2,
    subscriptions=5,
    publishes_received_total=(100, 20, 3),
    publishes_sent_total=(200, 40, 6),
    bytes_received_total=1_000,
    bytes_sent_total=2_000,
    entries_applied_total=7,
    commands_applied_total=70,
    drops_total={"slow_subscriber": 4, "packet_too_large": 1},
    closes_total={"normal": 6, "keep_alive_timeout": 1},
    refusals_total={"not_authorized": 2},
    events_merged_total=9,
    shards=2,
)


@dataclass
class BrokerStandIn:
    state: NodeState = NodeState.READY
    failure: str | None = None
    listeners: Sequence[Listener] = field(
        default_factory=lambda: [Listener("tcp-1", "127.0.0.1", 1883, allow_anonymous=True)]
    )
    snapshot: FakeStatistics | None = BUSY
    access: Access = field(default_factory=Access)
    storage_findings: Sequence[str] = ()

    def message_log(self) -> None:
        self.statistics()

    def statistics(self) -> FakeStatistics:
        if self.snapshot is None:
            raise TransportError("the broker is not running")
        return self.snapshot

    def digest(self) -> tuple[int, str]:
        if self.snapshot is None:
            raise TransportError("the broker is not running")
        return 12, "ab" * 16

    def session(self, client_id: str) -> dict[str, object] | None:
        if self.snapshot is None:
            raise TransportError("the broker is not running")
        return {"client_id": client_id} if client_id == "a/b ü" else None


def _view_fits(broker: BrokerStandIn) -> BrokerView:
    return broker
