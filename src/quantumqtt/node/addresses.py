"""From configured addresses to addresses a socket can be bound to."""

import socket

from quantumqtt.config import Address, Settings
from quantumqtt.errors import ConfigError
from quantumqtt.node.certificates import load_contexts
from quantumqtt.node.native import ListenerPlan


def plan_listeners(settings: Settings) -> tuple[ListenerPlan, ...]:
    """Resolve every listener, read its certificates and decide who may come in by it.

    Reads files and may ask the resolver, so it can block.

    Raises:
        ConfigError: A name does not resolve, or a certificate file cannot be used.
    """
    contexts = load_contexts(settings)
    return tuple(
        ListenerPlan(
            name=f"{listener.url.scheme}-{number}",
            host=resolve(listener.url),
            port=listener.url.port,
            allow_anonymous=settings.anonymous_allowed(listener),
            allow_passwords=settings.passwords_allowed(listener),
            scheme=listener.url.scheme,
            path=listener.url.path,
            socket_mode=listener.socket_mode if listener.url.scheme == "unix" else None,
            tls=context,
            origins=listener.origins,
            proxy_protocol=None if listener.proxy_protocol == "off" else listener.proxy_protocol,
            proxies=listener.proxy_trusted,
            connections_max=listener.connections_max,
            packet_bytes_max=listener.packet_bytes_max,
        )
        for number, (listener, context) in enumerate(
            zip(settings.listeners, contexts, strict=True), start=1
        )
    )


def resolve(address: Address) -> str:
    """Turn the host of an address into an IP address; the path of a Unix socket stays.

    Raises:
        ConfigError: The name does not resolve.
    """
    if address.scheme == "unix":
        return address.host
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
