"""`quantumqtt serve`: run one broker until a signal says to stop.

Order of a life: read settings, claim the ground (umask, logs), start the broker, start the admin
endpoint, say `ready`, wait. SIGTERM and SIGINT drain; a second one ends at once, without draining:
the operating system closes what is open, and nothing on disk depends on an orderly end. SIGHUP
reads the configuration again and takes over what can change while clients stay.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self

import typer

from quantumqtt import __version__
from quantumqtt.api import open_admin
from quantumqtt.api.view import NodeFacts
from quantumqtt.cli.failures import ExitCode, exit_code_of, report
from quantumqtt.cli.log_door import LogDoor, open_log_door
from quantumqtt.cli.ready import ReadyLine
from quantumqtt.config import (
    Settings,
    load_settings,
    read_mosquitto_conf,
    suspicious_variables,
)
from quantumqtt.errors import ConfigError, QuantuMQTTError, TransportError
from quantumqtt.node import Broker, NodeState, build_facts, load_contexts
from quantumqtt.operations import Banner, Door, JobReport, configure_logs, set_log_level
from quantumqtt.policy import Access

if TYPE_CHECKING:
    from quantumqtt.api.server import AdminServer

_log = logging.getLogger(__name__)

_UMASK_PRIVATE: Final = 0o077
# Where `serve` keeps its log when nobody says; in the working directory, as `.gitignore` knows.
_DATA_DEFAULT: Final = Path("data")
# What SIGHUP takes over; every other key needs a restart.
_RELOADED: Final = frozenset({"log", "password_file", "acl_file", "flight_readers", "tls"})
# Flags whose parameter has the name of the key they set, and those that set a key of a table.
_SAME_KEY: Final = (
    "durability",
    "shards",
    "data",
    "admin",
    "flight",
    "flight_readers",
    "allow_anonymous",
    "password_file",
    "acl_file",
    "allow_plaintext_passwords",
    "profile",
)
_TABLE_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "tls": {
        "certificate": "cert",
        "key": "key",
        "client_ca": "cafile",
        "require_client_certificate": "require_certificate",
    },
    "log": {"level": "log_level", "format": "log_format"},
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """What the command line asked for, kept to be read again on SIGHUP."""

    config_file: Path | None
    json_ready: bool
    mosquitto_conf: Path | None = None
    flags: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, flags: Mapping[str, object]) -> Self:
        """Gather what the flags of `serve` say, by the names of its parameters."""
        asked = {name: flags.get(name) for name in _SAME_KEY}
        asked["listen"] = flags.get("listen") or None
        for table, keys in _TABLE_KEYS.items():
            said = {key: flags.get(name) for key, name in keys.items()}
            asked[table] = {key: value for key, value in said.items() if value is not None} or None
        config, conf = flags.get("config"), flags.get("mosquitto_conf")
        return cls(
            config_file=config if isinstance(config, Path) else None,
            json_ready=bool(flags.get("json_ready")),
            mosquitto_conf=conf if isinstance(conf, Path) else None,
            flags={key: value for key, value in asked.items() if value is not None},
        )

    def settings(self) -> Settings:
        """Gather settings from every source."""
        return load_settings(
            file=self.config_file,
            mosquitto_conf=self.mosquitto_conf,
            flags=self.flags,
            data_default=_DATA_DEFAULT,
        )

    def ignored(self) -> tuple[str, ...]:
        """List what a `mosquitto.conf` says that has no meaning here."""
        if self.mosquitto_conf is None:
            return ()
        return read_mosquitto_conf(self.mosquitto_conf).ignored


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file to read.")
    ] = None,
    mosquitto_conf: Annotated[
        Path | None,
        typer.Option(
            "--mosquitto-conf", metavar="FILE", help="mosquitto.conf to read, with its defaults."
        ),
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Where to serve MQTT: tcp://127.0.0.1:1883, tls://…, ws://…/mqtt, wss://…/mqtt,"
            " unix:///PATH; repeatable, port 0 takes a free one.",
        ),
    ] = None,
    cert: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The server's certificate and its chain, for TLS."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="FILE", help="The private key of the certificate.")
    ] = None,
    cafile: Annotated[
        str | None, typer.Option(metavar="FILE", help="Authorities of client certificates.")
    ] = None,
    require_certificate: Annotated[
        bool | None,
        typer.Option("--require-certificate", help="Turn clients away that have no certificate."),
    ] = None,
    durability: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="strict, group or memory.")
    ] = None,
    shards: Annotated[
        str | None, typer.Option(metavar="N", help="Native threads; default: usable CPUs.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="DIR", help="Directory of this node.")] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to serve metrics, health and the live page,"
            " or off; default: 127.0.0.1:8080.",
        ),
    ] = None,
    flight: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to serve the message log over Arrow Flight, grpc+tls://HOST:PORT to"
            " encrypt, or off; default: 127.0.0.1:8815.",
        ),
    ] = None,
    flight_readers: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Who may read the log by a token; see `log token`."),
    ] = None,
    allow_anonymous: Annotated[
        bool | None,
        typer.Option(help="Let clients in without credentials; default: on loopback only."),
    ] = None,
    password_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Users and their hashed passwords.")
    ] = None,
    acl_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Who may read and write which topics.")
    ] = None,
    allow_plaintext_passwords: Annotated[
        bool | None,
        typer.Option(
            "--allow-plaintext-passwords",
            help="Take passwords on listeners that are neither encrypted nor on loopback.",
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="embedded or production.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="text or json.")] = None,
    json_ready: Annotated[
        bool, typer.Option("--json", help="Print the ready line as one JSON object.")
    ] = False,
    check_only: Annotated[
        bool,
        typer.Option("--check-config", help="Judge all of the above and the files; start nothing."),
    ] = False,
) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    # First of all, while there is nothing in here but the flags.
    invocation = Invocation.of(locals())
    raise typer.Exit(check(invocation) if check_only else run(invocation))


def check(invocation: Invocation) -> ExitCode:
    """Judge every source of settings, and the users and rules they name."""
    try:
        settings = invocation.settings()
        Access.load(settings)
        load_contexts(settings)
        for left_out in invocation.ignored():
            print(f"note: {left_out}")
    except QuantuMQTTError as error:
        report(error)
        return exit_code_of(error)
    print("ok")
    return ExitCode.OK


def run(invocation: Invocation, company: "Company | None" = None) -> ExitCode:
    """Run a broker, and what keeps it company; returns when all of it has ended."""
    os.umask(_UMASK_PRIVATE)
    try:
        settings = invocation.settings()
        configure_logs(level=settings.log.level, log_format=settings.log.format)
        for name, guess in suspicious_variables():
            _log.warning("unknown environment variable", extra={"variable": name, "meant": guess})
        for left_out in invocation.ignored():
            _log.warning("an option of mosquitto.conf is left out", extra={"option": left_out})
        service = _Service(invocation, settings, company or Company())
        code = asyncio.run(service.live())
        if service.is_held_up:
            # Everything of ours is stopped and on disk; what is left would never end.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code
    except QuantuMQTTError as error:
        report(error)
        return exit_code_of(error)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What runs once the broker is ready, for those who keep it company."""

    settings: Settings
    broker: Broker
    log_url: str | None
    admin_url: str | None


class Company:
    """What runs beside a broker, from ready to drain; `serve` has none, `up` has."""

    log_token: str | None = None

    def prepare(self, settings: Settings) -> None:
        """Judge what was asked for, before anything starts.

        Raises:
            ConfigError: It cannot be.
        """

    def jobs(self) -> Sequence[JobReport]:
        """Tell how the jobs are doing; asked from any thread."""
        return ()

    async def start(self, around: Surroundings) -> None:
        """Begin; the broker accepts clients."""

    async def stop(self) -> None:
        """End; the broker and its log are still there."""

    def kill(self) -> None:
        """End at once; the process is about to leave."""


class _Service:
    """One broker with its admin endpoint, its log service and its signals."""

    def __init__(self, invocation: Invocation, settings: Settings, company: Company) -> None:
        self._invocation = invocation
        self._settings = settings
        self._company = company
        self._broker = Broker(settings)
        self._log_door: LogDoor | None = None
        self.is_held_up = False
        self._stop_wanted = asyncio.Event()
        self._reload_wanted = asyncio.Event()

    async def live(self) -> ExitCode:
        """Start, wait, drain, stop."""
        self._watch_signals()
        self._company.prepare(self._settings)
        broker = self._broker
        await broker.start()
        admin = None
        try:
            admin = await asyncio.to_thread(self._start_admin)
            admin_url = None if admin is None else admin.address.url
            # Its libraries take longer to load than all the rest of a start: clients do not wait
            # for a log service that nobody asked for.
            is_asked = "flight" in self._settings.model_fields_set
            if is_asked:
                await asyncio.to_thread(self._open_log_door)
            self._announce(admin_url, self._log_url)
            if not is_asked:
                await asyncio.to_thread(self._open_log_door)
                if self._log_url is not None:
                    _log.info("the log is served", extra={"url": self._log_url})
            await self._company.start(
                Surroundings(self._settings, broker, self._log_url, admin_url)
            )
            await self._wait_until_over()
            await self._company.stop()
            if broker.state is NodeState.READY:
                await self._drain()
        finally:
            await self._company.stop()
            if self._log_door is not None:
                self.is_held_up = not await asyncio.to_thread(self._log_door.close)
            if admin is not None:
                await asyncio.to_thread(admin.stop)
            await broker.stop()
        if broker.failure is not None:
            _log.error("stopped after a failure", extra={"reason": broker.failure})
            return ExitCode.FAILED
        _log.info("stopped")
        return ExitCode.OK

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: self._on_stop_signal,
            signal.SIGINT: self._on_stop_signal,
            signal.SIGHUP: self._reload_wanted.set,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)

    def _on_stop_signal(self) -> None:
        if self._stop_wanted.is_set():
            _log.warning("second signal: stopping at once")
            sys.stderr.flush()
            self._company.kill()
            # Native threads may be deep in a drain; only leaving the process is "at once".
            os._exit(ExitCode.INTERRUPTED)
        self._stop_wanted.set()

    async def _reload_whenever_wanted(self) -> None:
        """Follow SIGHUP, one reload at a time; a signal during one means one more after it."""
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            await self._reload()

    async def _reload(self) -> None:
        """Take over what can change while clients stay; all of it, or nothing."""
        try:
            settings = await asyncio.to_thread(self._invocation.settings)
            await self._broker.reload_access(settings)
            if self._log_door is not None:
                await asyncio.to_thread(self._log_door.reload, settings)
        except QuantuMQTTError as error:
            _log.error(
                "configuration not reloaded, the old one stays",
                extra={"why": str(error), "remedy": error.hint},
            )
            return
        set_log_level(settings.log.level)
        self._broker.note_log_level()
        old, new = _settled_at_start(self._settings), _settled_at_start(settings)
        changed = [name for name, value in new.items() if value != old[name]]
        access = self._broker.access
        _log.info(
            "configuration reloaded",
            extra={
                "log_level": settings.log.level,
                "users": None if access.users is None else len(access.users),
                "rules": None if access.rules is None else len(access.rules.rules),
            },
        )
        if changed:
            _log.warning("these keys need a restart", extra={"keys": ", ".join(changed)})

    def _start_admin(self) -> "AdminServer | None":
        """Start the admin endpoint; only an explicit wish for it may stop the broker."""
        settings = self._settings
        if settings.admin is None:
            return None
        facts = NodeFacts(__version__, settings.durability, build_facts())
        try:
            server = open_admin(
                self._broker,
                facts,
                address=settings.admin,
                host_names=settings.admin_hosts,
                jobs=self._company.jobs,
            )
            server.start()
        except (ConfigError, TransportError) as error:
            if "admin" in settings.model_fields_set:
                raise
            _log.warning("admin is off", extra={"why": str(error), "remedy": error.hint})
            return None
        return server

    @property
    def _log_url(self) -> str | None:
        return None if self._log_door is None else self._log_door.url

    def _open_log_door(self) -> None:
        """Serve the message log; only an explicit wish for it may stop the broker."""
        settings = self._settings
        log = None if settings.flight is None else self._broker.message_log()
        if log is None:
            return
        try:
            self._log_door = open_log_door(
                settings, self._broker, [log], own_token=self._company.log_token
            )
        except (ConfigError, TransportError) as error:
            if "flight" in settings.model_fields_set:
                raise
            _log.warning("the log is not served", extra={"why": str(error), "remedy": error.hint})

    def _announce(self, admin_url: str | None, log_url: str | None) -> None:
        """Tell people on standard error, programs on standard output."""
        settings = self._settings
        doors = [
            Door(one.url, one.host, one.port, one.allow_anonymous, one.scheme)
            for one in self._broker.listeners
        ]
        if settings.log.format == "text":
            Banner(__version__, doors, settings.durability, admin_url, log_url).show(sys.stderr)
        else:
            urls = [door.url for door in doors]
            _log.info("listening", extra={"urls": urls, "admin": admin_url, "log": log_url})
        for door in doors:
            if not door.allow_anonymous and self._broker.access.users is None:
                _log.warning(
                    "nobody can connect here: anonymous clients are not allowed and there are no"
                    " users",
                    extra={
                        "listener": door.url,
                        "remedy": "--password-file FILE, or --allow-anonymous",
                    },
                )
        ready = ReadyLine(
            self._broker.listeners,
            admin_url,
            log_url,
            settings.durability,
            os.getpid(),
            __version__,
        )
        try:
            print(ready.json() if self._invocation.json_ready else ready.text(), flush=True)
        except OSError as error:
            # Nobody reads our output any more; the broker serves clients all the same.
            _log.warning("standard output is closed", extra={"why": str(error)})

    async def _wait_until_over(self) -> None:
        """Wait for a signal, or for the broker to fail."""
        waits = [
            asyncio.create_task(self._stop_wanted.wait()),
            asyncio.create_task(self._broker.wait_ended()),
            asyncio.create_task(self._reload_whenever_wanted()),
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _drain(self) -> None:
        _log.info("draining", extra={"deadline_ms": self._settings.limits.drain_timeout_ms})
        if not await self._broker.drain():
            _log.warning("some clients did not leave in time and were cut off")


def _settled_at_start(settings: Settings) -> dict[str, object]:
    """Gather what a running broker cannot take over; of listeners that is all but certificates."""
    found: dict[str, object] = {
        name: getattr(settings, name) for name in Settings.model_fields if name not in _RELOADED
    }
    found["listener"] = [one.without_certificates() for one in settings.listener]
    return found
