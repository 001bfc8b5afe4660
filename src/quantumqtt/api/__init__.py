"""The admin endpoint: metrics, health, statistics, and the live page.

Needs the `server` extra; `open_admin` says so when it is missing. Everything else of this room is
imported only behind it.
"""

from typing import TYPE_CHECKING, Final

from quantumqtt.config import Address
from quantumqtt.errors import ConfigError

if TYPE_CHECKING:
    from quantumqtt.api.server import AdminServer
    from quantumqtt.api.view import BrokerView, NodeFacts

__all__ = ["open_admin"]

_EXTRA: Final = ("starlette", "uvicorn", "prometheus_client")


def open_admin(
    broker: "BrokerView",
    facts: "NodeFacts",
    *,
    address: Address,
    host_names: tuple[str, ...] = (),
) -> "AdminServer":
    """Make the admin server; nothing is bound before its `start`.

    Raises:
        ConfigError: The `server` extra is not installed.
    """
    try:
        from quantumqtt.api.server import AdminServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise ConfigError(
            f"the admin endpoint needs {error.name}, which is not installed",
            hint="pip install 'quantumqtt[server]', or --admin off",
        ) from error
    return AdminServer(broker, facts, address=address, host_names=host_names)
