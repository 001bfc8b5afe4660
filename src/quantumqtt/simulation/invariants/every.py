"""Every invariant there is, in the order in which they are asked: the closest to the disk first."""

from typing import Final

from quantumqtt.simulation.invariants.acknowledged_is_durable import AcknowledgedIsDurable
from quantumqtt.simulation.invariants.bit_rot import BitRot
from quantumqtt.simulation.invariants.compaction import Compaction
from quantumqtt.simulation.invariants.delivered_once import DeliveredOnce
from quantumqtt.simulation.invariants.fence import Fence
from quantumqtt.simulation.invariants.fresh_salts import FreshSalts
from quantumqtt.simulation.invariants.invariant import Invariant
from quantumqtt.simulation.invariants.order import Order
from quantumqtt.simulation.invariants.recovers import Recovers
from quantumqtt.simulation.invariants.retained import Retained
from quantumqtt.simulation.invariants.same_state import SameState
from quantumqtt.simulation.invariants.session_present import SessionPresent
from quantumqtt.simulation.invariants.stops import Stops
from quantumqtt.simulation.invariants.wills import Wills

ALL: Final[tuple[type[Invariant], ...]] = (
    Recovers,
    BitRot,
    AcknowledgedIsDurable,
    SameState,
    Stops,
    Fence,
    SessionPresent,
    DeliveredOnce,
    Order,
    Retained,
    Wills,
    Compaction,
    FreshSalts,
)
