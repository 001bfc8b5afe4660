"""What must always hold, one file each; `ALL` is what every seed is held to."""

from quantumqtt.simulation.invariants.every import ALL
from quantumqtt.simulation.invariants.invariant import Broken, Invariant, Recovery

__all__ = ["ALL", "Broken", "Invariant", "Recovery"]
