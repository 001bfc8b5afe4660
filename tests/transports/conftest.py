"""Brokers with listeners of every kind, and certificates for them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from quantumqtt.config import FlagLayer, settings_from
from tests.harness.certificates import Authority
from tests.harness.live_broker import LiveBroker

StartBroker = Callable[..., LiveBroker]


@pytest.fixture
def start() -> Iterator[StartBroker]:
    """Start a broker: `start(listener=[{"url": "tls://127.0.0.1:0", …}])`."""
    with ExitStack() as running:

        def start_one(**keys: object) -> LiveBroker:
            settings = settings_from([FlagLayer({"shards": 2, **keys}, spoken_by_caller=True)])
            return running.enter_context(LiveBroker(settings))

        yield start_one


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One whom servers and clients of the tests share."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def own_authority(tmp_path: Path) -> Authority:
    """One of a single test, which may revoke."""
    return Authority(tmp_path, "own")
