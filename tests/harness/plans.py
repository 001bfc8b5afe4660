"""Small plans for nodes under test."""

from quantumqtt.config import Limits
from quantumqtt.node.native import ListenerPlan, NodePlan


def small_plan(*, ask_admission: bool = False) -> NodePlan:
    """One listener on a free port of loopback, one shard, default limits."""
    return NodePlan(
        listeners=(ListenerPlan("tcp-1", "127.0.0.1", 0, allow_anonymous=True),),
        shards=1,
        limits=Limits(),
        connections_max=100,
        ask_admission=ask_admission,
    )
