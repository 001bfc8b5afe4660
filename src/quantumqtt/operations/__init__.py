"""What an operator sees and does: logs and the words at the start."""

from quantumqtt.operations.banner import Banner, Door
from quantumqtt.operations.logs import configure_logs, set_log_level

__all__ = ["Banner", "Door", "configure_logs", "set_log_level"]
