"""`quantumqtt serve` as a process: ready line, signals, exit codes. The process is its business."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.harness.node_process import (
    END_DEADLINE_S,
    PROGRAM,
    NodeProcess,
    clean_environment,
)
from tests.harness.ports import taken_port
from tests.harness.raw_peer import RawPeer, connect_packet, packet, text

SERVE = (*PROGRAM, "serve")
# The program's own default is a log in the working directory.
IN_MEMORY = {**clean_environment(), "QUANTUMQTT_DURABILITY": "memory"}
# The same program where one library of the `server` extra cannot be imported.
WITHOUT_EXTRA = (
    sys.executable,
    "-c",
    "import sys; sys.modules['uvicorn'] = None\nfrom quantumqtt.cli.main import main; main()",
)
CONNACK_V311 = "20 02 00 00"


QUICK_WAY = (sys.executable, "-m", "quantumqtt")


@pytest.mark.parametrize("arguments", [("--help",), ("--no-such-flag",), ("--shards", "many")])
def test_the_quick_way_says_the_same_as_the_whole_program(arguments: tuple[str, ...]) -> None:
    quick, whole = (
        subprocess.run(
            [*program, "serve", *arguments],
            env=IN_MEMORY,
            capture_output=True,
            text=True,
            timeout=END_DEADLINE_S,
            check=False,
        )
        for program in (QUICK_WAY, PROGRAM)
    )
    assert (quick.returncode, quick.stdout, quick.stderr) == (
        whole.returncode,
        whole.stdout,
        whole.stderr,
    )
    assert quick.stdout or quick.stderr


def test_the_quick_way_loads_no_other_command() -> None:
    loaded = "import sys\nimport quantumqtt.cli.serving\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True, env=IN_MEMORY
    )
    modules = set(ran.stdout.split())
    assert "quantumqtt.cli.serve" in modules
    others = {"quantumqtt.cli.main", "quantumqtt.cli.bench", "quantumqtt.cli.torture"}
    assert not modules & {*others, "rich", "rich.console", "pyarrow", "uvicorn", "starlette"}


def refused(*arguments: str, program: Sequence[str] = PROGRAM, **environment: str) -> list[str]:
    """Run `serve` with arguments that cannot work; gives the lines on standard error."""
    ran = subprocess.run(
        [*program, "serve", *arguments],
        env={**IN_MEMORY, **environment},
        capture_output=True,
        text=True,
        timeout=END_DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert ran.stdout == "", "nothing that cannot work says ready"
    return ran.stderr.splitlines()


def test_it_says_ready_once_and_serves() -> None:
    with NodeProcess("--listen", "tcp://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0") as node:
        assert node.ready["durability"] == "memory"
        assert node.ready["pid"] == node.process_id
        assert len(node.urls) == 2
        for url in node.urls:
            with RawPeer("127.0.0.1", int(url.rpartition(":")[2])) as peer:
                peer.send(connect_packet("c1"))
                peer.expect(CONNACK_V311)
        assert node.stop() == 0
        assert len(node.output()) == 1


def test_the_text_form_of_the_ready_line() -> None:
    process = subprocess.Popen(
        [*SERVE, "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0"],
        env=IN_MEMORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    word, listener, admin_word, admin = process.stdout.readline().split()
    process.terminate()
    rest, banner = process.communicate(timeout=END_DEADLINE_S)
    assert (word, admin_word) == ("ready", "admin")
    assert listener.startswith("tcp://127.0.0.1:")
    assert admin.startswith("http://127.0.0.1:")
    assert rest == ""
    assert process.returncode == 0
    port = listener.rpartition(":")[2]
    assert "acknowledgements are not on disk" in banner
    assert f"mosquitto_sub -h 127.0.0.1 -p {port} " in banner
    assert f"mosquitto_pub -h 127.0.0.1 -p {port} " in banner
    assert f"{admin}/" in banner


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_tells_clients_and_ends_with_zero(number: signal.Signals) -> None:
    with NodeProcess() as node, RawPeer("127.0.0.1", node.port) as peer:
        peer.send(connect_packet("c5", level=5))
        assert peer.receive_packet()[0] == 0x20
        node.signal(number)
        disconnect = peer.receive_packet()
        assert disconnect[0] == 0xE0
        assert disconnect[2] == 0x8B, "server shutting down"
        peer.expect_closed()
        assert node.wait_ended() == 0
        with pytest.raises(ConnectionRefusedError):
            RawPeer("127.0.0.1", node.port)


def test_a_second_signal_ends_at_once_while_a_client_holds_up_the_drain() -> None:
    """A client that reads nothing keeps bytes waiting, so the drain would take its whole time."""
    with NodeProcess() as node, RawPeer("127.0.0.1", node.port) as sleeper:
        sleeper.send(connect_packet("sleeper"), packet(0x82, "00 01", text("big"), "00"))
        sleeper.expect(CONNACK_V311, "90 03 00 01 00")
        with RawPeer("127.0.0.1", node.port, deadline_s=2.0) as speaker:
            speaker.send(connect_packet("speaker"))
            speaker.expect(CONNACK_V311)
            publish = packet(0x30, text("big"), bytes(1 << 20))
            # More than socket buffers hold; a broker that slows the speaker has enough by then.
            with suppress(TimeoutError):
                for _ in range(24):
                    speaker.send(publish)
        node.signal(signal.SIGTERM)
        node.wait_log("draining")
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 130
        node.wait_log("second signal")


def test_a_reload_changes_the_log_level_and_keeps_clients(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[log]\nlevel = "info"\n')
    with NodeProcess("--config", str(file)) as node, RawPeer("127.0.0.1", node.port) as peer:
        peer.send(connect_packet("stays"))
        peer.expect(CONNACK_V311)
        file.write_text('shards = 1\n[log]\nlevel = "debug"\n')
        node.signal(signal.SIGHUP)
        reloaded = json.loads(node.wait_log("configuration reloaded"))
        assert reloaded["log_level"] == "debug"
        with RawPeer("127.0.0.1", node.port) as other:
            other.send(connect_packet("seen"))
            other.expect(CONNACK_V311)
            assert json.loads(node.wait_log("client connected"))["client_id"] == "seen"
        peer.send("c0 00")
        peer.expect("d0 00")


def test_a_bad_reload_is_told_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("")
    with NodeProcess(
        "--config", str(file), announced_errors=["configuration not reloaded"]
    ) as node:
        file.write_text("shards = 0\n")
        node.signal(signal.SIGHUP)
        why = json.loads(node.wait_log("configuration not reloaded"))["why"]
        assert f"{file}:1: shards = 0" in why
        with RawPeer("127.0.0.1", node.port) as peer:
            peer.send(connect_packet("c1"))
            peer.expect(CONNACK_V311)


def test_the_admin_endpoint_sees_what_clients_do() -> None:
    with NodeProcess("--admin", "127.0.0.1:0") as node:
        with RawPeer("127.0.0.1", node.port) as peer:
            peer.send(connect_packet("c1"), packet(0x30, text("demo/a"), b"hello"), "c0 00")
            peer.expect(CONNACK_V311, "d0 00")
            document = httpx.get(f"{node.admin_url}/v1/statistics", trust_env=False).json()
            metrics = httpx.get(f"{node.admin_url}/metrics", trust_env=False).text
        assert document["statistics"]["connections_total"] == 1
        assert document["listeners"][0]["url"] == node.urls[0]
        assert "quantumqtt_connections_opened_total 1.0" in metrics
        assert 'quantumqtt_drops_total{reason="slow_subscriber"} 0.0' in metrics
        assert httpx.get(f"{node.admin_url}/readyz", trust_env=False).status_code == 200


def test_nonsense_on_the_admin_port_is_survived_and_logged_in_form() -> None:
    with NodeProcess("--admin", "127.0.0.1:0") as node:
        with RawPeer("127.0.0.1", int(node.admin_url.rpartition(":")[2])) as peer:
            peer.send(b"\x10\x0d\x00\x04MQTT\r\n\r\n")
            assert b"400" in peer.receive_exactly(12)
        assert httpx.get(f"{node.admin_url}/livez", trust_env=False).status_code == 200
        assert json.loads(node.wait_log("Invalid HTTP request"))["level"] == "warning"


@pytest.mark.hardening("log-lines")
def test_hostile_client_ids_do_not_break_the_log() -> None:
    hostile = 'a\r\n{"level": "error"}\x1b[2J'
    with NodeProcess("--log-level", "debug") as node:
        with RawPeer("127.0.0.1", node.port) as peer:
            peer.send(connect_packet(hostile))
            peer.receive_exactly(1)
            line = node.wait_log("client connected")
        assert json.loads(line)["client_id"] == hostile
        node.stop()
        assert all(json.loads(line) for line in node.logs())


def test_a_taken_port_is_named_with_its_remedy() -> None:
    with taken_port() as port:
        complaint, remedy = refused("--listen", f"tcp://127.0.0.1:{port}", "--admin", "off")
    assert f"127.0.0.1:{port}" in complaint
    assert "choose another port" in remedy


def test_a_taken_admin_port_stops_the_start_only_when_asked_for() -> None:
    with taken_port() as port:
        told = refused("--listen", "tcp://127.0.0.1:0", "--admin", f"127.0.0.1:{port}")
    assert f"http://127.0.0.1:{port}" in told[-2]
    assert "--admin off" in told[-1]


def test_a_taken_default_admin_port_only_turns_admin_off() -> None:
    with socket.socket() as holder:
        # Taken by us or by somebody else already: either way the broker cannot have it.
        with suppress(OSError):
            holder.bind(("127.0.0.1", 8080))
            holder.listen(1)
        with NodeProcess(admin_unasked=True) as node:
            assert node.ready["admin"] is None
            warning = json.loads(node.wait_log("admin is off"))
            assert "http://127.0.0.1:8080" in warning["why"]
            assert "--admin" in warning["remedy"]


def test_a_missing_extra_turns_admin_off_with_one_line_that_names_it() -> None:
    with NodeProcess(program=WITHOUT_EXTRA, admin_unasked=True) as node:
        assert node.ready["admin"] is None
        node.stop()
        warnings = [line for line in node.logs() if "admin is off" in line]
    assert len(warnings) == 1
    assert "quantumqtt[server]" in warnings[0]


def test_asking_for_admin_without_the_extra_is_refused() -> None:
    complaint, remedy = refused(
        "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", program=WITHOUT_EXTRA
    )
    assert "the admin endpoint needs uvicorn" in complaint
    assert "quantumqtt[server]" in remedy


def test_a_data_directory_belongs_to_one_running_broker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess("--data", str(data)) as node:
        assert data.stat().st_mode & 0o777 == 0o700
        complaint, remedy = refused("--listen", "tcp://127.0.0.1:0", "--data", str(data))
        assert f"{data} is in use by a running broker (process {node.process_id})" in complaint
        assert "--data" in remedy
        node.kill()
    with NodeProcess("--data", str(data)):
        pass


@pytest.mark.requirement("OPS-13")
def test_every_mistake_of_flags_and_environment_is_told_at_once() -> None:
    told = refused(
        *("--shards", "0", "--durability", "strictly", "--admin", "nowhere"),
        QUANTUMQTT_LIMITS__RECEIVE_MAXIMUM="many",
    )
    text_of = "\n".join(told)
    for place in ("--shards", "--durability", "--admin", "QUANTUMQTT_LIMITS__RECEIVE_MAXIMUM"):
        assert f"error: {place}: " in text_of
    assert text_of.count("remedy: ") == 4


@pytest.mark.parametrize(
    ("arguments", "complaint", "remedy"),
    [
        (["--durability", "sure"], "is not one of the choices", "memory"),
        (["--profile", "production"], "is plaintext", "embedded"),
        (["--listen", "tls://127.0.0.1:8883"], "needs a certificate", "--cert FILE --key FILE"),
        (["--listen", "quic://127.0.0.1:14567"], "not in this release", "tls://"),
        (["--listen", "tcp://192.0.2.1:1883"], "192.0.2.1:1883", "address"),
        (["--config", "/nowhere/broker.toml"], "cannot be read", "check the path"),
        # Nobody may write there, root included.
        (["--data", "/proc/nowhere"], "/proc/nowhere cannot be used", "right to write there"),
    ],
)
def test_what_cannot_work_is_refused_with_a_remedy(
    arguments: list[str], complaint: str, remedy: str
) -> None:
    told = refused("--admin", "off", *arguments)
    assert complaint in told[-2]
    assert remedy in told[-1]


def test_too_few_descriptors_are_named_with_the_command() -> None:
    told = refused("--admin", "off", QUANTUMQTT_LIMITS__CONNECTIONS_MAX="4000000")
    assert "limits.connections_max = 4000000 needs" in told[-2]
    assert "ulimit -n" in told[-1]


def test_strangers_are_kept_out_beyond_loopback_and_the_log_says_so() -> None:
    with NodeProcess("--listen", "tcp://0.0.0.0:0") as node:
        warning = json.loads(node.wait_log("nobody can connect here"))
        assert warning["remedy"] == "--password-file FILE, or --allow-anonymous"
        with RawPeer("127.0.0.1", node.port) as peer:
            peer.send(connect_packet("stranger"))
            peer.expect("20 02 00 05")
            peer.expect_closed()
        refusal = json.loads(node.wait_log("connection refused"))
        assert refusal["client_id"] == "stranger"
        assert refusal["reason"] == "anonymous_not_allowed"


def test_closed_output_does_not_stop_the_broker() -> None:
    reader, writer = socket.socketpair()
    reader.close()
    with writer:
        process = subprocess.Popen(
            [*SERVE, "--log-format", "json", "--listen", "tcp://127.0.0.1:0", "--admin", "off"],
            env=IN_MEMORY,
            stdout=writer.fileno(),
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.stderr is not None
    said = iter(process.stderr)
    assert any("standard output is closed" in line for line in said)
    process.terminate()
    process.communicate(timeout=END_DEADLINE_S)
    assert process.returncode == 0
