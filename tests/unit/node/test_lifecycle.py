"""The life of a node: which arrows exist, and that no other can be followed."""

import asyncio

import pytest

from quantumqtt.errors import InternalError
from quantumqtt.node.lifecycle import Lifecycle, NodeState

USUAL_LIFE = [NodeState.STARTING, NodeState.READY, NodeState.DRAINING, NodeState.STOPPED]


def lived(*states: NodeState) -> Lifecycle:
    life = Lifecycle()
    for state in states:
        life.advance(state)
    return life


def test_a_usual_life() -> None:
    assert lived(*USUAL_LIFE).state is NodeState.STOPPED


@pytest.mark.parametrize("length", range(4))
def test_stop_is_possible_from_everywhere(length: int) -> None:
    life = lived(*USUAL_LIFE[:length])
    life.advance(NodeState.STOPPED)
    assert life.state is NodeState.STOPPED


@pytest.mark.parametrize(
    ("life", "to"),
    [
        (lived(), NodeState.READY),
        (lived(), NodeState.FAILED),
        (lived(*USUAL_LIFE[:2]), NodeState.STARTING),
        (lived(*USUAL_LIFE[:3]), NodeState.READY),
        (lived(*USUAL_LIFE), NodeState.STARTING),
        (lived(*USUAL_LIFE), NodeState.STOPPED),
    ],
)
def test_other_arrows_are_refused(life: Lifecycle, to: NodeState) -> None:
    before = life.state
    with pytest.raises(InternalError, match=f"from {before} to {to}"):
        life.advance(to)
    assert life.state is before


def test_the_first_failure_is_kept() -> None:
    life = lived(NodeState.STARTING, NodeState.READY)
    life.fail("shard 1 panicked")
    life.fail("shard 2 panicked")
    life.advance(NodeState.STOPPED)
    assert life.failure == "shard 1 panicked"


def test_a_stopped_node_cannot_fail() -> None:
    life = lived(*USUAL_LIFE)
    life.fail("too late")
    assert life.state is NodeState.STOPPED
    assert life.failure is None


@pytest.mark.parametrize("by_failure", [True, False])
def test_waiting_ends_with_failure_and_with_stop(*, by_failure: bool) -> None:
    async def scenario() -> None:
        life = lived(NodeState.STARTING, NodeState.READY)
        waiting = asyncio.create_task(life.wait_ended())
        await asyncio.sleep(0)
        assert not waiting.done()
        if by_failure:
            life.fail("gone")
        else:
            life.advance(NodeState.STOPPED)
        await waiting

    asyncio.run(scenario())
