"""The service over connections that are encrypted, and over ones that break."""

import asyncio
import subprocess
from collections.abc import Iterator

import pytest

from quantumqtt.errors import NotAuthorized, TlsFailed, TransportError
from quantumqtt.flight import LogService, Reader, ServiceTls, TokenGate
from quantumqtt.logreader import LogReader, Retries
from tests.flight.conftest import QUICK
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.stand_in_log import StandInLog

TOKEN = "a-token-of-sixteen-or-more"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ServiceTls:
    """A certificate of its own for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "c.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return ServiceTls(chain=(folder / "c.pem").read_bytes(), key=(folder / "key.pem").read_bytes())


@pytest.fixture
def encrypted(certificate: ServiceTls) -> Iterator[LogService]:
    log = StandInLog()
    log.append("default", 0, 10)
    gate = TokenGate({TOKEN: Reader(name="reports")})
    service = LogService(log, gate=gate, host="localhost", tls=certificate)
    yield service
    service.shutdown()


def test_rows_and_tokens_travel_encrypted(encrypted: LogService, certificate: ServiceTls) -> None:
    endpoint = f"grpc+tls://localhost:{encrypted.port}"
    reader = LogReader(endpoint, token=TOKEN, tls_roots=certificate.chain)
    assert reader.read(0, 0).read_all().num_rows == 10
    with pytest.raises(NotAuthorized):
        LogReader(endpoint, token="x" * 20, tls_roots=certificate.chain).partitions()


def test_service_that_cannot_prove_itself_is_not_spoken_to(encrypted: LogService) -> None:
    endpoint = f"grpc+tls://localhost:{encrypted.port}"
    with pytest.raises(TlsFailed):
        LogReader(endpoint, token=TOKEN, retries=QUICK).partitions()


def test_plain_reader_and_encrypted_service_part_with_an_error(encrypted: LogService) -> None:
    endpoint = f"grpc://localhost:{encrypted.port}"
    with pytest.raises(TransportError):
        LogReader(endpoint, token=TOKEN, retries=QUICK).partitions()


def test_every_row_comes_once_over_a_wire_that_is_cut() -> None:
    served_rows = 20_000
    log = StandInLog()
    log.append("default", 0, served_rows, payload_bytes=200)
    log.rows_per_batch = 500
    service = LogService(log, gate=TokenGate({TOKEN: Reader(name="reports")}))

    def read(port: int) -> list[int]:
        retries = Retries(first_s=0.01, longest_s=0.1, give_up_s=20)
        reader = LogReader(f"grpc://127.0.0.1:{port}", token=TOKEN, retries=retries)
        offsets: list[int] = reader.read(0, 0, served_rows).read_all()["offset"].to_pylist()
        return offsets

    async def scene() -> tuple[list[int], int]:
        async with CuttingProxy(
            service.port, seed=7, bytes_min=100_000, bytes_max=900_000
        ) as proxy:
            proxy.cuts_left = 5
            return await asyncio.to_thread(read, proxy.port), proxy.cuts_total

    offsets, cuts = asyncio.run(scene())
    service.shutdown()
    assert offsets == list(range(served_rows))
    assert cuts == 5
    assert len(log.plans) > cuts
