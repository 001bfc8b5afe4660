"""The admin endpoint on its own thread and event loop.

A slow scrape or a browser must not delay verdicts on the main loop, and a busy main loop must not
delay a health check. So HTTP gets a thread and a loop of its own, and reads the broker only through
`BrokerView`, whose methods may be called from any thread.

Rules: the socket is bound in `start`, by the caller, so that a taken port is an exception there and
not a log line later; `start` returns when requests are served; `stop` waits for the thread.
"""

import asyncio
import errno
import logging
import socket
import threading
from typing import Final

import uvicorn

from quantumqtt.api.app import admin_app
from quantumqtt.api.view import BrokerView, NodeFacts
from quantumqtt.config import Address
from quantumqtt.errors import TransportError

_log = logging.getLogger(__name__)

BACKLOG: Final = 128
CONNECTIONS_MAX: Final = 256
START_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 5
KEEP_ALIVE_S: Final = 15


class _SignalledServer(uvicorn.Server):
    """Uvicorn, telling a waiting thread that it serves."""

    def __init__(self, config: uvicorn.Config, serving: threading.Event) -> None:
        super().__init__(config)
        self._serving = serving

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, then say so."""
        await super().startup(sockets)
        self._serving.set()


class AdminServer:
    """Serves the admin application of one broker."""

    def __init__(
        self,
        broker: BrokerView,
        facts: NodeFacts,
        *,
        address: Address,
        host_names: tuple[str, ...] = (),
    ) -> None:
        self._address = address
        self._app = admin_app(broker, facts, host_names=(address.host, *host_names))
        self._serving = threading.Event()
        self._server: _SignalledServer | None = None
        self._thread: threading.Thread | None = None
        self._bound = address

    @property
    def address(self) -> Address:
        """Where it listens; after `start` port 0 has become a real port."""
        return self._bound

    def start(self) -> None:
        """Bind, start the thread, return when requests are served.

        Raises:
            TransportError: The address cannot be bound.
        """
        bound = _bind(self._address)
        self._bound = Address("http", self._address.host, int(bound.getsockname()[1]))
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            date_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
        )
        server = self._server = _SignalledServer(config, self._serving)
        self._thread = threading.Thread(
            target=self._run, args=(server, bound), name="quantumqtt-admin", daemon=True
        )
        self._thread.start()
        if not self._serving.wait(START_TIMEOUT_S):
            self.stop()
            raise TransportError(
                f"the admin endpoint at {self._bound.url} did not start",
                hint="see the log for the reason",
            )

    def stop(self) -> None:
        """End the thread and wait for it. Idempotent; blocks for a moment."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(STOP_TIMEOUT_S * 2)
            self._thread = None

    def _run(self, server: uvicorn.Server, bound: socket.socket) -> None:
        try:
            with bound:
                asyncio.run(server.serve(sockets=[bound]))
        except Exception:
            # The thread ends here; the broker goes on without its admin endpoint.
            _log.exception("the admin endpoint failed")


def _bind(address: Address) -> socket.socket:
    try:
        family, kind, protocol, _name, target = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise _cannot_bind(address, error) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(target)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise _cannot_bind(address, error) from error
    return bound


def _cannot_bind(address: Address, error: OSError | UnicodeError) -> TransportError:
    number = error.errno if isinstance(error, OSError) else None
    hint = {
        errno.EADDRINUSE: "another program has this port: choose one with --admin HOST:PORT,"
        " or --admin off",
        errno.EACCES: "ports below 1024 need a privilege: choose a higher one",
        errno.EADDRNOTAVAIL: "this machine has no such address",
    }.get(number or 0, "choose another address with --admin HOST:PORT, or --admin off")
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return TransportError(f"cannot serve {address.url}: {reason.lower()}", hint=hint)
