"""The whole product as a person starts it: `quantumqtt serve` in a process of its own."""

from collections.abc import Iterator

import pytest

from tests.harness.node_process import NodeProcess

SHARDS = "2"


@pytest.fixture(scope="module")
def server() -> Iterator[NodeProcess]:
    """Run one server for a file of tests; its log is scanned for errors when it ends."""
    with NodeProcess("--durability", "memory", "--shards", SHARDS) as process:
        yield process
