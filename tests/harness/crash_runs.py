"""Runs of `quantumqtt torture` from tests: any broker by its command, judged in this process."""

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from quantumqtt.cli.crash.disk import PlainDisk, SmallDisk
from quantumqtt.cli.crash.hurt import Fault
from quantumqtt.cli.crash.ledger import Property
from quantumqtt.cli.crash.run import Outcome, Plan, Torture
from quantumqtt.cli.crash.swarm import Shape
from quantumqtt.cli.crash.syncs import SyncVerdict, trace_serial_run
from quantumqtt.cli.crash.victim import Victim, our_command
from quantumqtt.cli.torture import open_disk, scratch
from quantumqtt.config import load_settings
from quantumqtt.errors import ConfigError, StorageError
from tools import system_packages

HOUSE: Final = Path(__file__).resolve().parents[2]
DISK_MB: Final = 64
SYNCS: Final = "fsync,fdatasync,syncfs,sync_file_range"
STUBS: Final = ("-e", f"inject={SYNCS}:retval=0")
# Mosquitto keeps state in memory and writes it now and then; here only when it ends in peace.
MOSQUITTO_CONFIG: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {data}/
autosave_interval 0
set_tcp_nodelay true
max_inflight_messages 1000
max_queued_messages 0
max_queued_bytes 0
sys_interval 0
log_type error
"""


LogJudge = Callable[[Path, Outcome], None]


@cache
def offers(durability: str) -> bool:
    """Whether this build accepts a durability level; what is asked of it begins on that day."""
    try:
        load_settings(
            flags={"durability": durability, "data": tempfile.gettempdir()}, read_environment=False
        )
    except ConfigError:
        return False
    return True


needs_strict = pytest.mark.skipif(
    not offers("strict"), reason="durability strict is not offered by this build"
)


def may_mount() -> bool:
    """Whether this process may mount file systems."""
    with scratch(None) as folder:
        try:
            SmallDisk(folder / "probe", 1 << 20).close()
            open_disk(Fault.POWER, folder / "power", DISK_MB).close()
        except StorageError:
            return False
    return True


needs_mounts = pytest.mark.usefixtures("mounts")


def ours(durability: str) -> str:
    """The command of our own broker."""
    return our_command(durability)


def journal_broker(lie: str = "none") -> str:
    """The command of the small broker that keeps every promise but one."""
    program = shlex.quote(sys.executable)
    return f"{program} -m tests.harness.journal_broker {{port}} {{data}} {lie}"


def mosquitto_config(folder: Path) -> Path:
    """Write a configuration for Mosquitto under torture."""
    file = folder / "mosquitto.conf"
    user = "user root\n" if os.geteuid() == 0 else ""
    file.write_text(MOSQUITTO_CONFIG + user, "utf-8")
    return file


def mosquitto() -> str:
    """The command of Mosquitto, for a configuration file."""
    return f"{system_packages.find_program('mosquitto')} -c {{config}}"


def torture(
    command: str,
    fault: Fault,
    *,
    rounds: int = 2,
    rate: int = 300,
    seed: int = 1,
    traffic_s: float = 0.6,
    settle_s: float = 5.0,
    config: Path | None = None,
    stops_at: Property | None = None,
    syncs_are_stubbed: bool = False,
    judge_log: LogJudge | None = None,
) -> Outcome:
    """Torture a broker; `settle_s` is only waited for where something is missing.

    `judge_log` gets the data directory when all is over, and nobody runs on it.
    With its syncs stubbed, strace answers them for the kernel: the binary is the real one, and the
    disk is never asked.
    """
    plan = Plan(
        fault=fault,
        rounds=rounds,
        seed=seed,
        shape=Shape(rate=rate),
        traffic_s=traffic_s,
        settle_s=settle_s,
        stops_at=frozenset(() if stops_at is None else (stops_at,)),
        keeps_account=judge_log is not None,
    )
    with scratch(None) as folder:
        disk = open_disk(fault, folder, DISK_MB)
        try:
            victim = Victim(command, disk.directory, folder, config=config)
            if syncs_are_stubbed:
                traced = ("-e", f"trace={SYNCS}", "-o", os.devnull)
                victim.prefix = (_strace(), "-f", "-qq", *traced, *STUBS, "--")
            outcome = asyncio.run(Torture(plan, victim, disk, lambda _: None).run())
            if judge_log is not None:
                judge_log(disk.directory, outcome)
            return outcome
        finally:
            disk.close()


class Restartable:
    """A broker for tests that use other clients: it can be killed and comes back with its data."""

    def __init__(self, command: str, folder: Path) -> None:
        self._disk = PlainDisk(folder / "data")
        self._victim = Victim(command, self._disk.directory, folder)

    def __enter__(self) -> Self:
        asyncio.run(self._victim.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._victim.kill()

    @property
    def port(self) -> int:
        """Where it listens, every time."""
        return self._victim.port

    def kill_and_restart(self) -> None:
        """What `kill -9` and a supervisor do."""
        self._victim.kill()
        asyncio.run(self._victim.start())


def _strace() -> str:
    strace = system_packages.find_program("strace")
    assert strace is not None, "needs_program names it"
    return strace


def trace_syncs(
    command: str, *, config: Path | None = None, syncs_are_stubbed: bool = False
) -> SyncVerdict:
    """Publish serially under strace."""
    with scratch(None) as folder:
        disk = PlainDisk(folder / "data")
        victim = Victim(command, disk.directory, folder, config=config)
        if syncs_are_stubbed:
            victim.prefix = STUBS
        return asyncio.run(trace_serial_run(victim, _strace()))


def broken(outcome: Outcome) -> set[Property]:
    """Which properties a run found broken."""
    return {one.property for one in outcome.ledger.violations}


def assert_kept(outcome: Outcome) -> None:
    """Nothing was broken, and enough was looked at for that to mean something."""
    ledger = outcome.ledger
    findings = "\n".join(str(one) for one in ledger.violations[:20])
    assert outcome.absence is None, f"{outcome.absence}\n{outcome.broker_log}"
    assert not ledger.violations, f"{findings}\n{outcome.broker_log}"
    for one in (
        Property.DELIVERED,
        Property.SESSION_PRESENT,
        Property.SUBSCRIPTIONS,
        Property.RETAINED,
    ):
        assert ledger.checked[one], f"nothing was looked at for {one.value!r}"
