"""Real brokers for the client: ours and two by other people, each in its own process.

The third is not in the gate: `just third-broker` fetches it and runs the same suite against it.
"""

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.harness import hivemq_broker
from tests.harness.hivemq_broker import HivemqBroker
from tests.harness.mosquitto_broker import MosquittoBroker
from tests.harness.node_process import NodeProcess


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@dataclass(frozen=True, slots=True)
class Peer:
    """A broker to talk to, in a version of MQTT."""

    url: str
    port: int
    version: str


@pytest.fixture(scope="session")
def our_port() -> Iterator[int]:
    with NodeProcess("--durability", "memory", "--shards", "1") as process:
        yield process.port


@pytest.fixture(scope="session")
def mosquitto_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with MosquittoBroker(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker.port


@pytest.fixture(scope="session")
def hivemq_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    if not hivemq_broker.is_here():
        pytest.skip("the third broker is not here; `just third-broker` fetches it")
    with HivemqBroker(tmp_path_factory.mktemp("hivemq")) as broker:
        yield broker.port


BROKERS: tuple[tuple[str, tuple[pytest.MarkDecorator, ...]], ...] = (
    ("ours", ()),
    ("mosquitto", (pytest.mark.needs_program("mosquitto"),)),
    ("hivemq", (pytest.mark.night,)),
)


@pytest.fixture(
    params=[
        pytest.param((broker, version), marks=marks, id=f"{broker}-{version}")
        for broker, marks in BROKERS
        for version in ("3.1.1", "5")
    ]
)
def peer(request: pytest.FixtureRequest) -> Peer:
    broker, version = request.param
    port = request.getfixturevalue(f"{'our' if broker == 'ours' else broker}_port")
    return Peer(f"mqtt://127.0.0.1:{port}", port, version)
