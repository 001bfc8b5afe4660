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
    """A verdict with its reasons; no reasons means well. Details are worth a look all the same."""

    reasons: tuple[str, ...]
    details: tuple[str, ...] = ()

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
        return _health_of_the_log(broker)
    reasons = [f"the broker is {broker.state}"]
    if broker.failure is not None:
        reasons.append(broker.failure)
    return Health(tuple(reasons))


def _health_of_the_log(broker: BrokerView) -> Health:
    reasons: list[str] = []
    details = [f"storage: {finding}" for finding in broker.storage_findings]
    statistics = snapshot(broker)
    log = None if statistics is None else statistics.log
    if log is None:
        return Health((), tuple(details))
    if log.state != "ok":
        reasons.append(f"the log is {log.state}: {log.reason or 'no reason given'}")
    use = f"the log has {log.disk_used_bytes} of {log.disk_capacity_bytes} bytes"
    if log.disk_level == "full":
        reasons.append(f"the disk is full: {use}, nothing new is taken")
    elif log.disk_level == "tight":
        details.append(f"the disk is getting full: {use}, credits are halved")
    if log.scrub_damage is not None:
        details.append(f"damaged at rest: {log.scrub_damage}")
    return Health(tuple(reasons), tuple(details))
