"""Certificates of a test's own: a stock broker takes them, and so does our client."""

from pathlib import Path

import pytest

from quantumqtt.client import SyncClient
from quantumqtt.errors import ConfigError, ConnectionLost, TransportError
from quantumqtt.testing import Certificates
from tests.harness.mosquitto_broker import MosquittoBroker
from tests.harness.ports import LOOPBACK, free_port

DEADLINE_S = 20.0


@pytest.mark.needs_program("mosquitto")
def test_both_sides_prove_who_they_are(tmp_path: Path, broker_certificates: Certificates) -> None:
    certificate, key = broker_certificates.server
    port = free_port()
    lines = (
        f"listener {port} {LOOPBACK}",
        f"certfile {certificate}",
        f"keyfile {key}",
        f"cafile {broker_certificates.authority}",
        "require_certificate true",
    )
    url = f"mqtts://localhost:{port}"
    with MosquittoBroker(tmp_path, *lines):
        mine = broker_certificates.context(broker_certificates.sign("me"))
        with SyncClient(url, tls=mine) as client:
            client.publish("a", b"x", qos=1).wait(DEADLINE_S)
        with pytest.raises((TransportError, ConnectionLost)):
            SyncClient(url, tls=broker_certificates.context(), version="5").connect()


def test_without_the_program_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no program openssl") as failed:
        Certificates(tmp_path)
    assert failed.value.hint
