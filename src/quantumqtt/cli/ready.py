"""The one line on standard output that says: clients may come.

Programs wait for it, so its form is a contract: `ready`, the bound addresses, `admin` and the admin
address or `off`, and, when `--flight` asked for it, `log` and where the message log is served; or
the same as one JSON object.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from quantumqtt.node import Listener


@dataclass(frozen=True, slots=True)
class ReadyLine:
    """What is known once the broker accepts."""

    listeners: Sequence[Listener]
    admin_url: str | None
    log_url: str | None
    durability: str
    process_id: int
    version: str

    def text(self) -> str:
        """The line for people and shell scripts."""
        urls = " ".join(listener.url for listener in self.listeners)
        log = "" if self.log_url is None else f" log {self.log_url}"
        return f"ready {urls} admin {self.admin_url or 'off'}{log}"

    def json(self) -> str:
        """The line for programs."""
        return json.dumps(
            {
                "ready": True,
                "listeners": [listener.url for listener in self.listeners],
                "admin": self.admin_url,
                "log": self.log_url,
                "durability": self.durability,
                "pid": self.process_id,
                "version": self.version,
            }
        )
