"""What an operator sees and does: logs and the words at the start."""

from quantumqtt.operations.banner import Banner, Door
from quantumqtt.operations.logs import configure_logs, set_log_level
from quantumqtt.operations.terminal import Painter

__all__ = ["Banner", "Door", "Painter", "configure_logs", "set_log_level"]
