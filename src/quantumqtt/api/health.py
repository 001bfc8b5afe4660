"""Health: is the process alive, and should it be sent work.

`/livez` fails when only a restart can help; an orchestrator restarts on it. `/readyz` fails while
work should go elsewhere: before start-up is complete, while draining, after a failure. Both say
why.
"""

from dataclasses import dataclass

from quantumqtt.api.view import BrokerView, snapshot
from quantumqtt.node import NodeState


@dataclass(frozen=True, slots=True)
class Health:
    """A verdict with its reasons; no reasons means well."""

    reasons: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to complain about."""
        return not self.reasons

    @property
    def status_code(self) -> int:
        """What HTTP says about it."""
        return 200 if self.is_well else 503


def liveness(broker: BrokerView) -> Health:
    """Ask whether only a restart can help."""
    if broker.state in {NodeState.FAILED, NodeState.STOPPED}:
        return Health((broker.failure or f"the broker is {broker.state}",))
    return Health(())


def readiness(broker: BrokerView) -> Health:
    """Ask whether clients should be sent here."""
    if broker.state is NodeState.READY:
        return Health(_complaints_of_the_log(broker))
    reasons = [f"the broker is {broker.state}"]
    if broker.failure is not None:
        reasons.append(broker.failure)
    return Health(tuple(reasons))


def _complaints_of_the_log(broker: BrokerView) -> tuple[str, ...]:
    statistics = snapshot(broker)
    if statistics is None or statistics.log is None or statistics.log.state == "ok":
        return ()
    return (f"the log is {statistics.log.state}: {statistics.log.reason or 'no reason given'}",)
