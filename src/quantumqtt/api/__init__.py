"""The admin endpoint: metrics, health, statistics, and the live page.

Needs the `server` extra; `open_admin` says so when it is missing. The extra itself is loaded by the
thread that serves, because it takes longer to load than all the rest of a start.
"""

from importlib.util import find_spec
from typing import Final

from quantumqtt.api.server import AdminServer
from quantumqtt.api.view import BrokerView, Jobs, NodeFacts, no_jobs
from quantumqtt.config import Address
from quantumqtt.errors import ConfigError

__all__ = ["open_admin"]

_EXTRA: Final = ("starlette", "uvicorn", "prometheus_client")


def open_admin(
    broker: BrokerView,
    facts: NodeFacts,
    *,
    address: Address,
    host_names: tuple[str, ...] = (),
    jobs: Jobs = no_jobs,
) -> AdminServer:
    """Make the admin server; nothing is bound before its `start`.

    Raises:
        ConfigError: The `server` extra is not installed.
    """
    for name in _EXTRA:
        if not _is_installed(name):
            raise ConfigError(
                f"the admin endpoint needs {name}, which is not installed",
                hint="pip install 'quantumqtt[server]', or --admin off",
            )
    return AdminServer(broker, facts, address=address, host_names=host_names, jobs=jobs)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # Python's word for a module that was declared absent
        return False
