"""What an operator sees and does: logs, the words at the start, jobs beside the broker."""

from quantumqtt.operations.banner import Banner, Door
from quantumqtt.operations.jobs import ChildJob, JobReport, Pauses
from quantumqtt.operations.logs import configure_logs, set_log_level
from quantumqtt.operations.terminal import Painter

__all__ = [
    "Banner",
    "ChildJob",
    "Door",
    "JobReport",
    "Painter",
    "Pauses",
    "configure_logs",
    "set_log_level",
]
