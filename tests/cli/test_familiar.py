"""What our `pub`, `sub` and `rr` promise by themselves: transports, endings, JSON, quick starts."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.programs import DEADLINE_S, OURS, Programs
from tests.harness.mosquitto_broker import MosquittoBroker
from tests.harness.node_process import clean_environment
from tests.harness.ports import LOOPBACK, free_port

pytestmark = pytest.mark.requirement("GEN-01")


def new_topic() -> str:
    return f"cli/{uuid4().hex}"


@contextmanager
def running(*arguments: str, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of ours beside the test, and end it with the test."""
    process = subprocess.Popen(
        [*OURS, *arguments],
        env=clean_environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def read_line(process: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    """Read lines until one begins as wanted."""
    assert process.stdout is not None
    give_up_at = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_at:
        line = process.stdout.readline()
        if line.startswith(wanted):
            return line
        if not line:
            break
    raise AssertionError(f"no line with {wanted!r}")


def test_they_start_without_what_they_do_not_need() -> None:
    """No server room, no asyncio, no command-line library: that is most of their life otherwise."""
    script = (
        "import sys; sys.argv = ['quantumqtt', 'pub', '--help']\n"
        "from quantumqtt.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)\n"
    )
    ran = subprocess.run(
        [OURS[0], "-c", script],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    loaded = set(ran.stdout.splitlines()[-1].split())
    heavy = {"asyncio", "typer", "pydantic", "rich", "dataclasses", "inspect", "ssl", "json"}
    assert loaded.isdisjoint(heavy)
    rooms = {name for name in loaded if name.startswith("quantumqtt.")}
    allowed = ("quantumqtt.__main__", "quantumqtt._core", "quantumqtt.cli", "quantumqtt.errors")
    assert all(name.startswith(allowed) for name in rooms), rooms


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("sub", "-t", "a", "--retain-onyl"), "did you mean --retained-only?"),
        (("pub", "-t", "a", "-m", "x", "--repeet", "2"), "did you mean --repeat?"),
        (("sub", "-t", "a", "-l"), "-l belongs to quantumqtt pub"),
        (("pub", "-t", "a", "-m", "x", "-S"), "dig +short SRV"),
        (("pub", "-t", "a", "-m", "x", "--tls-engine", "e"), "PEM files"),
        (("pub", "-t", "a", "-m", "x", "-D", "publish", "content-typ", "y"), "content-type"),
    ],
    ids=str,
)
def test_a_slip_is_met_with_a_remedy(
    programs: Programs, arguments: tuple[str, ...], hint: str
) -> None:
    ran = programs.run(OURS, *arguments)
    assert ran.code == 1
    assert hint in ran.complaint


@pytest.mark.parametrize("command", ["pub", "sub", "rr"])
def test_help_is_the_same_by_both_ways(programs: Programs, command: str) -> None:
    quick = programs.run(OURS, command, "--help")
    whole = programs.run((OURS[0], "-m", "quantumqtt.cli.main"), command, "--help")
    assert quick == whole
    assert quick.code == 0
    assert b"Exit codes:" in quick.output


def test_json_lines_tell_everything(programs: Programs) -> None:
    topic = new_topic()
    sent = programs.ours("pub", "-t", topic, "-r", "-q", "2", "--json", "-m", "größer")
    report = {"topic": topic, "qos": 2, "published": 1, "acknowledged": 1, "reason_codes": []}
    assert json.loads(sent.output) == {"ok": True, **report}
    line = json.loads(programs.ours("sub", "-t", topic, "-C", "1", "--json").output)
    assert line.pop("time").startswith("20")
    assert line == {"topic": topic, "qos": 0, "retain": True, "payload": "größer"}
    programs.ours("pub", "-t", topic, "-r", "-s", stdin=b"\xff\x00")
    line = json.loads(programs.ours("sub", "-t", topic, "-C", "1", "--json").output)
    assert line["payload_base64"] == "/wA="


def test_a_request_is_answered(programs: Programs) -> None:
    topic = new_topic()
    listen = ("sub", "-p", str(programs.port), "-V", "5", "-t", topic, "-C", "1", "-d")
    with running(*listen, "-F", "%R %p") as s:
        read_line(s, b"Subscribed")
        ask = ("rr", "-p", str(programs.port), "-t", topic, "-e", f"{topic}/answer", "-m", "ask")
        with running(*ask) as asking:
            assert read_line(s, topic.encode()) == f"{topic}/answer ask\n".encode()
            programs.ours("pub", "-t", f"{topic}/answer", "-m", "said")
            assert asking.communicate(timeout=DEADLINE_S)[0] == b"said\n"
            assert asking.returncode == 0


def test_lines_leave_while_more_may_come(programs: Programs) -> None:
    topic, port = new_topic(), str(programs.port)
    with (
        running("sub", "-p", port, "-t", topic, "-d") as listener,
        running("pub", "-p", port, "-t", topic, "-l", stdin=subprocess.PIPE) as publisher,
    ):
        read_line(listener, b"Subscribed")
        assert publisher.stdin is not None
        for line in (b"first\n", b"second\n"):
            publisher.stdin.write(line)
            publisher.stdin.flush()
            assert read_line(listener, line) == line
        publisher.stdin.close()
        assert publisher.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_many_lines_arrive_whole_and_in_order(programs: Programs, qos: str) -> None:
    topic, port = new_topic(), str(programs.port)
    lines = [b"%d" % number for number in range(5000)]
    with running("sub", "-p", port, "-t", topic, "-q", qos, "-d", "-C", "5000", "-F", "> %p") as s:
        read_line(s, b"Subscribed")
        sent = programs.ours("pub", "-t", topic, "-q", qos, "-l", stdin=b"\n".join(lines))
        assert sent.code == 0
        output, _ = s.communicate(timeout=DEADLINE_S)
        assert [line[2:] for line in output.splitlines() if line[:1] == b">"] == lines


def test_retained_messages_are_removed(programs: Programs) -> None:
    topic = new_topic()
    for name in ("a", "b", "keep"):
        assert programs.ours("pub", "-t", f"{topic}/{name}", "-r", "-m", name).code == 0
    wanted = ("-t", f"{topic}/#", "-T", f"{topic}/keep", "-v")
    removed = programs.ours("sub", *wanted, "--remove-retained", "-C", "2")
    assert sorted(removed.output.split()[1::2]) == [b"a", b"b"]
    left = programs.ours("sub", "-t", f"{topic}/#", "-v", "-W", "1")
    assert left.output == f"{topic}/keep keep\n".encode()


def test_retained_only_ends_with_the_first_that_is_new(programs: Programs) -> None:
    topic, port = new_topic(), str(programs.port)
    assert programs.ours("pub", "-t", topic, "-r", "-m", "kept").code == 0
    with running("sub", "-p", port, "-t", topic, "--retained-only") as listener:
        assert read_line(listener, b"kept")
        assert programs.ours("pub", "-t", topic, "-m", "new").code == 0
        assert listener.communicate(timeout=DEADLINE_S)[0] == b""
        assert listener.returncode == 0


def test_a_hundred_of_a_hundred_are_all(programs: Programs) -> None:
    topic = new_topic()
    assert programs.ours("pub", "-t", topic, "-r", "-m", "kept").code == 0
    drawn = programs.ours("sub", "-t", topic, "-C", "1", "--random-filter", "100")
    assert drawn.output == b"kept\n"


# --- endings -------------------------------------------------------------------------------------


@contextmanager
def scripted(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """A broker that says one thing to one client."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.settimeout(DEADLINE_S)
                link.recv(1000)
                answer(link)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(DEADLINE_S)


@pytest.mark.parametrize(
    ("version", "answer", "code"),
    [("311", b"\x20\x02\x00\x05", 5), ("31", b"\x20\x02\x00\x01", 1)]
    + [("5", bytes([0x20, 0x03, 0x00, code, 0x00]), code) for code in (0x86, 0x87, 0x97, 0x9C)]
    + [("5", b"\x20\x02\x00\x01", 0x84)],
    ids=str,
)
@pytest.mark.parametrize("command", ["pub", "sub"])
def test_a_refusal_is_the_exit_code(
    programs: Programs, command: str, version: str, answer: bytes, code: int
) -> None:
    what = ("-m", "x") if command == "pub" else ()
    with scripted(lambda link: link.sendall(answer)) as port:
        ran = programs.run(OURS, command, "-p", str(port), "-t", "a", "-V", version, *what)
    assert ran.code == code
    assert "connection refused" in ran.complaint
    assert ran.output == b""


@pytest.mark.parametrize(
    ("answer", "code"), [(b"", 7), (b"\x30\x03\x00\x01a", 2), (b"\xff\xff\xff\xff\xff", 2)]
)
def test_a_broker_that_misbehaves_is_told(programs: Programs, answer: bytes, code: int) -> None:
    with scripted(lambda link: link.sendall(answer)) as port:
        ran = programs.run(OURS, "pub", "-p", str(port), "-t", "a", "-m", "x")
    assert ran.code == code
    assert ran.complaint.startswith("error: ")
    assert "Traceback" not in ran.complaint


def test_a_lost_connection_is_made_again(programs: Programs) -> None:
    """`sub` goes on listening, as Mosquitto's does; the session is its own each time."""
    topic = new_topic()
    arguments = ("-p", str(programs.port), "-t", topic, "-i", "twice", "-d", "-C", "1")
    with running("sub", *arguments) as listener:
        read_line(listener, b"Subscribed")
        # The second client of an id ends the first.
        assert programs.ours("pub", "-t", topic + "/other", "-i", "twice", "-m", "x").code == 0
        read_line(listener, b"Subscribed")
        assert programs.ours("pub", "-t", topic, "-m", "later").code == 0
        assert read_line(listener, b"later")
        assert listener.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_goodbye(programs: Programs, number: signal.Signals) -> None:
    with running("sub", "-p", str(programs.port), "-t", new_topic(), "-d") as listener:
        read_line(listener, b"Subscribed")
        listener.send_signal(number)
        assert read_line(listener, b"Client").endswith(b"sending DISCONNECT\n")
        assert listener.wait(DEADLINE_S) == 0


def test_nobody_reading_is_an_end(programs: Programs) -> None:
    topic = new_topic()
    with running("sub", "-p", str(programs.port), "-t", topic, "-d") as listener:
        read_line(listener, b"Subscribed")
        assert listener.stdout is not None
        listener.stdout.close()
        assert programs.ours("pub", "-t", topic, "-m", "x").code == 0
        assert listener.wait(DEADLINE_S) == 141
        assert listener.stderr is not None
        assert listener.stderr.read() == b""


# --- transports ----------------------------------------------------------------------------------


@pytest.mark.needs_program("mosquitto")
def test_tls_and_a_unix_socket(
    programs: Programs, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    file, key = certificate
    port, path = free_port(), tmp_path / "mqtt.sock"
    lines = (
        *(f"listener {port} {LOOPBACK}", f"certfile {file}", f"keyfile {key}", f"cafile {file}"),
        *("require_certificate true", f"listener 0 {path}"),
    )
    ours = ("--cafile", str(file), "--cert", str(file), "--key", str(key))
    with MosquittoBroker(tmp_path, *lines):
        secure = ("-h", "localhost", "-p", str(port), *ours)
        big = b"x" * 3_000_000
        sent = programs.run(OURS, "pub", *secure, "-t", "a", "-r", "-q", "1", "-s", stdin=big)
        assert sent.code == 0, sent.complaint
        got = programs.run(OURS, "sub", *secure, "-t", "a", "-C", "1", "-N")
        assert got.output == big
        got = programs.run(OURS, "sub", "--unix", str(path), "-t", "a", "-C", "1", "-F", "%l")
        assert got.output == b"3000000\n"
        wrong = programs.run(OURS, "sub", "-p", str(port), "-t", "a", "--tls-use-os-certs")
        assert wrong.code == 1
        assert "TLS" in wrong.complaint
        assert "--cafile" in wrong.complaint


def test_a_proxy_leads_there(programs: Programs) -> None:
    """A SOCKS5 proxy that wants a name and a password, and is told the broker's name."""
    told: list[bytes] = []

    def serve(link: socket.socket) -> None:
        link.sendall(b"\5\2")
        told.append(link.recv(100))
        link.sendall(b"\1\0")
        told.append(link.recv(100))
        link.sendall(b"\5\0\0\1\0\0\0\0\0\0")
        with socket.create_connection((LOOPBACK, programs.port)) as broker:
            for _ in range(20):
                ready, _, _ = select.select([link, broker], [], [], DEADLINE_S)
                for end in ready:
                    data = end.recv(4096)
                    (broker if end is link else link).sendall(data)
                    if not data:
                        return

    with scripted(serve) as port:
        proxy = f"socks5h://me:a%40b@127.0.0.1:{port}"
        where = ("-h", "broker.example", "-p", "1883", "--proxy", proxy)
        ran = programs.run(OURS, "pub", *where, "-t", "a", "-m", "x", "-q", "1")
    assert ran.code == 0, ran.complaint
    assert told == [b"\1\2me\3a@b", b"\5\1\0\3\x0ebroker.example\x07\x5b"]


def test_colours_are_for_terminals_only(programs: Programs) -> None:
    topic = new_topic()
    assert programs.ours("pub", "-t", topic, "-r", "-m", "kept").code == 0
    arguments = ("sub", "-p", str(programs.port), "-t", topic, "-v", "-C", "1")
    assert programs.run(OURS, *arguments).output == f"{topic} kept\n".encode()
    for no_color, expected in (("", f"\x1b[36m{topic}\x1b[0m kept"), ("1", f"{topic} kept")):
        leader, follower = pty.openpty()
        environment = {**clean_environment(), "NO_COLOR": no_color}
        process = subprocess.Popen([*OURS, *arguments], env=environment, stdout=follower)
        os.close(follower)
        assert os.read(leader, 1000).decode().strip() == expected
        assert process.wait(DEADLINE_S) == 0
        os.close(leader)
