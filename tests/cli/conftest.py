"""A broker for the command line's clients, and how to run them beside Mosquitto's."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Programs
from tests.harness.node_process import NodeProcess


@pytest.fixture(scope="session")
def our_port() -> Iterator[int]:
    with NodeProcess("--durability", "memory", "--shards", "1") as process:
        yield process.port


@pytest.fixture
def programs(our_port: int, tmp_path: Path) -> Programs:
    return Programs(our_port, tmp_path)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    file, key = folder / "server.pem", folder / "server.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(file)),
        ],
        check=True,
        capture_output=True,
        timeout=20,
    )
    return file, key
