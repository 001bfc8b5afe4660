"""The pytest plugin that comes with the package: fixtures for tests of programs that speak MQTT.

pytest loads this file in every run of every project that has the package installed. So it imports
nothing of ours until a fixture is asked for.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from quantumqtt.testing import BrokerProcess, Certificates, Recorder

_MARKER: Final = "quantumqtt"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for those who are strict about markers."""
    config.addinivalue_line(
        "markers", f"{_MARKER}(*flags): flags of `quantumqtt serve` for the broker of this test"
    )


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: "Path") -> Iterator["BrokerProcess"]:
    """A broker of this test's own; `broker.url` is where it is."""
    from quantumqtt.testing import BrokerProcess

    with BrokerProcess(tmp_path / "broker", *_flags(request)) as process:
        yield process


@pytest.fixture(scope="session")
def broker_certificates(tmp_path_factory: pytest.TempPathFactory) -> "Certificates":
    """An authority for the whole run, and what it signed; `.context()` is for clients."""
    from quantumqtt.testing import Certificates

    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker_tls(
    request: pytest.FixtureRequest, tmp_path: "Path", broker_certificates: "Certificates"
) -> Iterator["BrokerProcess"]:
    """A broker behind TLS; clients take `tls=broker_certificates.context()`."""
    from quantumqtt.config.listen import SCHEMES
    from quantumqtt.testing import BrokerProcess

    if "tls" not in SCHEMES:
        pytest.skip("this release of the broker has no tls:// listeners yet")
    certificate, key = broker_certificates.server
    flags = (*_flags(request), "--cert", str(certificate), "--key", str(key))
    with BrokerProcess(tmp_path / "broker-tls", *flags, scheme="tls") as process:
        yield process


@pytest.fixture
def kill_and_restart(broker: "BrokerProcess") -> Callable[[], None]:
    """Kill the test's broker as a power cut would, and start it again in its place."""
    return broker.kill_and_restart


@pytest.fixture
def record(broker: "BrokerProcess") -> Iterator[Callable[..., "Recorder"]]:
    """Begin to record at the test's broker; gives a function that takes filters and a QoS."""
    from quantumqtt.testing import Recorder

    with ExitStack() as recorders:

        def begin(*topic_filters: str, qos: int = 2) -> Recorder:
            return recorders.enter_context(Recorder(broker.url, *topic_filters, qos=qos))

        yield begin


def _flags(request: pytest.FixtureRequest) -> tuple[str, ...]:
    marker = request.node.get_closest_marker(_MARKER)
    return tuple(map(str, marker.args)) if marker is not None else ()
