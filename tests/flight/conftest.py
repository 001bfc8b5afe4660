"""A log service on loopback over the stand-in log, for each test its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from quantumqtt.flight import FlightLimits, Gate, LogService, LoopbackGate
from quantumqtt.logreader import LogReader, Retries
from tests.harness.stand_in_log import StandInLog

QUICK = Retries(first_s=0.001, longest_s=0.01, give_up_s=0.2)


@dataclass
class Served:
    """A log, the service over it, and a reader of it."""

    log: StandInLog
    service: LogService

    @property
    def endpoint(self) -> str:
        return f"grpc://127.0.0.1:{self.service.port}"

    def reader(self, tenant: str = "default", **how: object) -> LogReader:
        how.setdefault("retries", QUICK)
        return LogReader(self.endpoint, tenant=tenant, **how)  # type: ignore[arg-type]


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start services that end with the test."""
    services: list[LogService] = []

    def start(
        log: StandInLog | None = None,
        *,
        gate: Gate | None = None,
        limits: FlightLimits | None = None,
    ) -> Served:
        log = log or StandInLog()
        service = LogService(log, gate=gate or LoopbackGate(), limits=limits)
        services.append(service)
        return Served(log, service)

    yield start
    for service in services:
        service.shutdown()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """Two tenants, three partitions, a few rows."""
    log = StandInLog()
    log.append("default", 0, 1_000)
    log.append("default", 1, 500)
    log.append("other", 0, 10)
    return serve(log)
