"""From configured addresses to addresses a socket can be bound to."""

import socket

from quantumqtt.config import Address, Settings
from quantumqtt.errors import ConfigError
from quantumqtt.node.native import ListenerPlan


def plan_listeners(settings: Settings) -> tuple[ListenerPlan, ...]:
    """Resolve every listener and decide who may come in by it.

    May ask the resolver, so it can block for names; addresses never do.

    Raises:
        ConfigError: A name does not resolve.
    """
    return tuple(
        ListenerPlan(
            name=f"{address.scheme}-{number}",
            host=resolve(address),
            port=address.port,
            allow_anonymous=settings.anonymous_allowed(address),
            allow_passwords=settings.passwords_allowed(address),
        )
        for number, address in enumerate(settings.listen, start=1)
    )


def resolve(address: Address) -> str:
    """Turn the host of an address into an IP address.

    Raises:
        ConfigError: The name does not resolve.
    """
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{address.url}: the host {address.host!r} does not resolve ({error})",
            hint="write an IP address of this machine, or 0.0.0.0 for every interface",
        ) from error
    # IPv4 first: a name with both is reached by old clients too.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])
