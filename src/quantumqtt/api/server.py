"""The admin endpoint on its own thread and event loop.

A slow scrape or a browser must not delay verdicts on the main loop, and a busy main loop must not
delay a health check. So HTTP gets a thread and a loop of its own, and reads the broker only through
`BrokerView`, whose methods may be called from any thread.

Rules: the socket is bound in `start`, by the caller, so that a taken port is an exception there and
not a log line later. The libraries are loaded by the thread: requests that come meanwhile wait in
the socket's queue, and the broker is ready so much earlier. `stop` waits for the thread.
"""

import asyncio
import errno
import logging
import socket
import threading
from typing import TYPE_CHECKING, Final

from quantumqtt.api.view import BrokerView, Jobs, NodeFacts, no_jobs
from quantumqtt.config import Address
from quantumqtt.errors import TransportError

if TYPE_CHECKING:
    import uvicorn

_log = logging.getLogger(__name__)

BACKLOG: Final = 128
CONNECTIONS_MAX: Final = 256
STOP_TIMEOUT_S: Final = 5
KEEP_ALIVE_S: Final = 15


class AdminServer:
    """Serves the admin application of one broker."""

    def __init__(
        self,
        broker: BrokerView,
        facts: NodeFacts,
        *,
        address: Address,
        host_names: tuple[str, ...] = (),
        jobs: Jobs = no_jobs,
    ) -> None:
        self._broker = broker
        self._facts = facts
        self._address = address
        self._host_names = (address.host, *host_names)
        self._jobs = jobs
        self._stop_wanted = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._bound = address

    @property
    def address(self) -> Address:
        """Where it listens; after `start` port 0 has become a real port."""
        return self._bound

    def start(self) -> None:
        """Bind and start the thread: from here on requests are answered, the first ones late.

        Raises:
            TransportError: The address cannot be bound.
        """
        bound = _bind(self._address)
        self._bound = Address("http", self._address.host, int(bound.getsockname()[1]))
        self._stop_wanted.clear()
        self._thread = threading.Thread(
            target=self._run, args=(bound,), name="quantumqtt-admin", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it. Idempotent; blocks for a moment."""
        if self._thread is not None:
            self._stop_wanted.set()
            if self._server is not None:
                self._server.should_exit = True
            self._thread.join(STOP_TIMEOUT_S * 2)
            self._thread = self._server = None

    def _run(self, bound: socket.socket) -> None:
        try:
            with bound:
                server = self._server = self._load()
                # `stop` either saw the server or was seen here.
                if not self._stop_wanted.is_set():
                    asyncio.run(server.serve(sockets=[bound]))
        except Exception:
            # The thread ends here; the broker goes on without its admin endpoint.
            _log.exception("the admin endpoint failed")

    def _load(self) -> "uvicorn.Server":
        import uvicorn

        from quantumqtt.api.app import admin_app

        app = admin_app(
            self._broker,
            self._facts,
            host_names=self._host_names,
            explains_rules=self._address.is_loopback,
            jobs=self._jobs,
        )
        config = uvicorn.Config(
            app,
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
        return uvicorn.Server(config)


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
