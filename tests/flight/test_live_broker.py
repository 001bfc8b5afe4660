"""The log of a running broker, read while it is written, over restarts, kills and refusals."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from quantumqtt.client import SyncClient
from quantumqtt.errors import NotAuthorized, QuantuMQTTError
from quantumqtt.flight import new_token, token_line
from quantumqtt.logreader import LogReader
from quantumqtt.logreader.retries import NO_RETRIES
from quantumqtt.logwire import ReadTicket
from tests.harness.certificates import Authority
from tests.harness.node_process import END_DEADLINE_S, PROGRAM, NodeProcess, clean_environment
from tests.harness.ports import taken_port
from tests.harness.waiting import wait_until

WITHOUT_EXTRA = (
    sys.executable,
    "-c",
    "import sys; sys.modules['pyarrow'] = None\nfrom quantumqtt.cli.main import main; main()",
)
KEY = ("tenant", "partition", "offset", "client_id", "session_epoch", "publish_seq")


def start(data: Path, *flags: str, **how: object) -> NodeProcess:
    where = ("--data", str(data), "--flight", "127.0.0.1:0")
    return NodeProcess(*where, *flags, **how)  # type: ignore[arg-type]


def endpoint(node: NodeProcess) -> str:
    url = node.ready["log"]
    assert isinstance(url, str)
    return url


def publish(node: NodeProcess, count: int, *, start: int = 0, topic: str = "plant/a") -> None:
    """Publish numbered messages and wait until all are acknowledged."""
    with SyncClient(f"mqtt://127.0.0.1:{node.port}", client_id="press") as client:
        tokens = [
            client.publish(f"{topic}/{number % 3}", f"{number}", qos=1 + number % 2)
            for number in range(start, start + count)
        ]
        for token in tokens:
            token.wait(END_DEADLINE_S)


def payloads(table: pa.Table) -> list[int]:
    return [int(one) for one in table["payload"].to_pylist()]


def whole(reader: LogReader) -> pa.Table:
    held = reader.partitions()[0]
    return reader.read(0, held.earliest, held.end).read_all()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One broker for the tests that only add to its log."""
    with start(tmp_path_factory.mktemp("live") / "data") as running:
        yield running


def end_of(node: NodeProcess) -> int:
    return LogReader(endpoint(node)).partitions()[0].end


def test_what_is_acknowledged_can_be_read_at_once(node: NodeProcess) -> None:
    begin = end_of(node)
    publish(node, 500)
    reader = LogReader(endpoint(node))
    rows = reader.read(0, begin).read_all()
    assert payloads(rows) == list(range(500))
    assert rows["offset"].to_pylist() == list(range(begin, begin + 500))
    assert set(rows["client_id"].to_pylist()) == {"press"}
    assert set(rows["qos"].to_pylist()) == {1, 2}
    names = ["payload", "offset"]
    filtered = reader.read(0, begin + 100, begin + 400, topics=["plant/+/1"], columns=names)
    chosen = filtered.read_all()
    assert chosen.column_names == names
    assert payloads(chosen) == [number for number in range(100, 400) if number % 3 == 1]


def test_a_tail_hears_of_new_rows(node: NodeProcess) -> None:
    begin = end_of(node)
    publish(node, 10)
    rows = LogReader(endpoint(node)).tail({0: begin})
    assert payloads(pa.Table.from_batches([next(rows)])) == list(range(10))
    publish(node, 5, start=10)
    seen: list[int] = []
    while len(seen) < 5:
        seen += payloads(pa.Table.from_batches([next(rows)]))
    assert seen == list(range(10, 15))


def test_commands_read_the_running_broker(node: NodeProcess, tmp_path: Path) -> None:
    begin = end_of(node)
    publish(node, 20)

    def log(*words: str) -> str:
        ran = subprocess.run(
            [*PROGRAM, "log", words[0], "--endpoint", endpoint(node), *words[1:]],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=END_DEADLINE_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    held = json.loads(log("offsets", "--json"))["default"]["0"]
    assert (held["earliest"], held["end"]) == (0, begin + 20)
    file = tmp_path / "rows.parquet"
    summary = log("export", str(file), "--partition", "0", "--start", str(begin), "--json")
    assert json.loads(summary)["rows"] == 20


@pytest.mark.requirement("PIPE-02")
def test_rows_and_their_keys_are_the_same_after_a_kill(tmp_path: Path) -> None:
    with start(tmp_path / "data") as node:
        publish(node, 300)
        before = whole(LogReader(endpoint(node))).select(list(KEY))
        node.kill()
    with start(tmp_path / "data") as node:
        publish(node, 50, start=300)
        reader = LogReader(endpoint(node))
        after = whole(reader)
        assert payloads(after) == list(range(350))
        assert after.select(list(KEY)).slice(0, 300).equals(before)
        assert reader.read(0, 0, 300, columns=KEY).read_all().equals(before), "again the same"
    assert len(set(before["offset"].to_pylist())) == 300


@pytest.mark.requirement("PIPE-12", "PIPE-16")
def test_readers_read_what_their_rules_allow_and_change_nothing(tmp_path: Path) -> None:
    rules = tmp_path / "rules.acl"
    rules.write_text("topic readwrite #\nuser lake\ntopic read plant/#\ntopic deny plant/b/#\n")
    token = new_token()
    readers = tmp_path / "readers"
    readers.write_text(token_line("lake", token) + "\n")
    flags = ("--acl-file", str(rules), "--flight-readers", str(readers))
    with start(tmp_path / "data", *flags) as node:
        publish(node, 30)
        publish(node, 30, start=30, topic="plant/b")
        publish(node, 30, start=60, topic="office")
        reader = LogReader(endpoint(node), token=token)
        assert payloads(reader.read(0, 0, 90, topics=["#"]).read_all()) == list(range(30))
        with pytest.raises(NotAuthorized, match="may not read every topic"):
            reader.read(0, 0, 90).read_all()
        with pytest.raises(NotAuthorized, match="a token is needed"):
            LogReader(endpoint(node)).offsets()
        client = flight.connect(endpoint(node))
        bearer = (b"authorization", b"Bearer " + token.encode())
        headers = flight.FlightCallOptions(headers=[bearer])
        with pytest.raises(pa.ArrowException):
            write_rows(client, headers)
        kinds = {action.type for action in client.list_actions(headers)}
        assert kinds == {"offsets", "offset-for-time", "wait"}, "questions, and nothing else"
        client.close()


def write_rows(client: flight.FlightClient, headers: flight.FlightCallOptions) -> None:
    schema = pa.schema([("a", pa.int8())])
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("x"), schema, headers)
    writer.close()


def test_readers_do_not_hold_up_the_end(tmp_path: Path) -> None:
    """One waits for more, one has a stream open that it does not read."""
    with start(tmp_path / "data") as node:
        with SyncClient(f"mqtt://127.0.0.1:{node.port}") as client:
            # More than sockets and flow control hold.
            for token in [client.publish("big", bytes(512 * 1024), qos=1) for _ in range(40)]:
                token.wait(END_DEADLINE_S)
        reader = LogReader(endpoint(node), retries=NO_RETRIES)
        held = reader.wait({0: 0}, timeout_s=END_DEADLINE_S)
        with ThreadPoolExecutor(1) as pool, closing(flight.connect(endpoint(node))) as client_two:
            waiting = pool.submit(reader.wait, {0: held[0].end}, timeout_s=30)
            ticket = ReadTicket(tenant="default", partition=0, start=0, end=held[0].end)
            stream = client_two.do_get(flight.Ticket(ticket.to_bytes()))
            assert stream.read_chunk().data.num_rows > 0
            node.signal(signal.SIGTERM)
            assert node.wait_ended() == 0
            with suppress(QuantuMQTTError):
                waiting.result(END_DEADLINE_S)
            stream.cancel()


def refused(*flags: str, program: tuple[str, ...] = PROGRAM) -> list[str]:
    ran = subprocess.run(
        [*program, "serve", "--listen", "tcp://127.0.0.1:0", "--admin", "off", *flags],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=END_DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert ran.stdout == ""
    return ran.stderr.splitlines()


def test_a_taken_port_is_named_with_its_remedy(tmp_path: Path) -> None:
    with taken_port() as port:
        told = refused("--data", str(tmp_path / "data"), "--flight", f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in told[-2]
    assert "--flight" in told[-1]


def test_without_the_extra_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    complaint, remedy = refused(*data, "--flight", "127.0.0.1:0", program=WITHOUT_EXTRA)[-2:]
    assert "needs pyarrow" in complaint
    assert "quantumqtt[server]" in remedy
    with NodeProcess(*data, program=WITHOUT_EXTRA, flight_unasked=True) as node:
        assert node.ready["log"] is None
        warning = json.loads(node.wait_log("the log is not served"))
        assert "quantumqtt[server]" in warning["remedy"]
        node.stop()


def test_a_new_token_counts_after_a_reload(tmp_path: Path) -> None:
    readers = tmp_path / "readers"
    first, second = new_token(), new_token()
    readers.write_text(token_line("lake", first) + "\n")
    with start(tmp_path / "data", "--flight-readers", str(readers)) as node:
        LogReader(endpoint(node), token=first).offsets()
        readers.write_text(token_line("lake", second) + "\n")
        node.signal(signal.SIGHUP)
        node.wait_log("configuration reloaded")
        wait_until(lambda: admits(node, second), what="the new token is known")
        assert not admits(node, first)


def admits(node: NodeProcess, token: str) -> bool:
    try:
        LogReader(endpoint(node), token=token).offsets()
    except NotAuthorized:
        return False
    return True


def test_rows_travel_encrypted_under_the_certificate_of_the_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server()
    token = new_token()
    readers = tmp_path / "readers"
    readers.write_text(token_line("lake", token) + "\n")
    where = ("--data", str(tmp_path / "data"), "--flight", "grpc+tls://localhost:0")
    keys = ("--cert", str(server.certificate), "--key", str(server.key))
    with NodeProcess(*where, *keys, "--flight-readers", str(readers)) as node:
        publish(node, 3)
        assert endpoint(node).startswith("grpc+tls://localhost:")
        roots = authority.file.read_bytes()
        reader = LogReader(endpoint(node), token=token, tls_roots=roots)
        assert payloads(reader.read(0, 0, 3).read_all()) == [0, 1, 2]
