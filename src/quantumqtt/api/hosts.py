"""Guard against DNS rebinding: a foreign page must not read a broker on somebody's loopback.

Such an attack points a name of the attacker at 127.0.0.1 and lets the browser believe it is the
same site. The browser still sends the attacker's name in `Host`. So we answer to IP addresses and
`localhost`, which no attacker can own, and to names the operator listed; to nothing else.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class HostGuard:
    """ASGI middleware that refuses requests for host names we do not go by."""

    def __init__(self, app: ASGIApp, *, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower().rstrip(".") for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with 421."""
        if scope["type"] != "http" or self.is_ours(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
            return
        refusal = JSONResponse(
            {
                "error": "this host name is not served here",
                "hint": "use the IP address, or add the name to admin_hosts",
            },
            status_code=421,
        )
        await refusal(scope, receive, send)

    def is_ours(self, header: str) -> bool:
        """Decide whether a `Host` header names this endpoint."""
        try:
            host = urlsplit(f"//{header}").hostname
        except ValueError:
            return False
        if host is None:
            return False
        if host.rstrip(".") in self._names:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True
