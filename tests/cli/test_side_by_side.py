"""Our `pub`, `sub` and `rr` beside Mosquitto's: the same words in, the same bytes out."""

import re
from uuid import uuid4

import pytest

from tests.cli.programs import Programs, Ran

pytestmark = [
    pytest.mark.needs_program("mosquitto_pub", "mosquitto_sub", "mosquitto_rr"),
    pytest.mark.requirement("GEN-01", "WIRE-22"),
]
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?")
JSON = '{"b": [1, 2.50, -3e2, 1e20, "\\u00e9\\n", {}], "a": null, "a": true, "n": 12345678901}'


def new_topic() -> str:
    return f"cli/{uuid4().hex}"


def same(stock: Ran, ours: Ran) -> None:
    """Compare what both said on standard output, and how they ended."""
    stock_output, our_output = (_TIME.sub(b"<time>", ran.output) for ran in (stock, ours))
    assert our_output == stock_output
    assert ours.code == stock.code, ours.complaint


FORMATS = [
    (),
    ("-v",),
    ("-N",),
    ("-v", "-N"),
    ("-F", "%t|%p|%l|%q|%r|%m"),
    ("-F", "%x|%X|%6x|%-12X|%012x|"),
    ("-F", "[%20t][%-20t][%.3t][%8.3t][%-8.3t]"),
    ("-F", "[%10p][%-10p][%010p][%3p][%5l][%05l][%-5l]"),
    ("-F", "[%A][%4A][%C][%6C][%-9C][%.2C][%D][%E][%6E][%06E][%F][%3F][%P][%R][%9R][%S][%3S]"),
    ("-F", r"\\ \t\n\r\0\a\e\v @@ %%"),
    ("-F", "%I %-30I| %.10I @Y-@m-@dT@H:@M:@S"),
    ("-F", "%j"),
    ("-F", "%j", "--pretty"),
    ("-F", "%J"),
    ("-F", "%J", "--pretty"),
    ("-F", ""),
]
PAYLOADS = ["plain", "", 'with "quotes" \\ and\ttabs', "größer ✓", JSON, "[]", "{}", "1.5", "NaN"]


VERSIONS = ("311", "5")
PROPERTIES = (
    *("-D", "publish", "content-type", "text/plain", "-D", "publish", "user-property", "a"),
    *("b c", "-D", "publish", "user-property", "a", "2", "-D", "publish", "response-topic"),
    *("re/ply", "-D", "publish", "correlation-data", "id 7"),
    *("-D", "publish", "payload-format-indicator", "1"),
)


def session(topic: str, who: str, version: str, number: int) -> tuple[str, ...]:
    """A session that one program resumes to print one format."""
    return ("-V", version, "-c", "-i", f"{who}-{version}-{number}", "-q", "2", "-t", topic)


@pytest.fixture(scope="module")
def kept_topic(our_port: int, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every payload, kept for a session per program, version and format."""
    programs, topic = Programs(our_port, tmp_path_factory.mktemp("home")), new_topic()
    for who in ("stock", "ours"):
        for version in VERSIONS:
            for number in range(len(FORMATS)):
                opened = programs.stock("sub", *session(topic, who, version, number), "-E")
                assert opened.code == 0, opened.complaint
    for number, payload in enumerate(PAYLOADS):
        more = PROPERTIES if number in (0, 4) else ()
        arguments = ("-t", topic, "-q", str(1 + number % 2), "-m", payload, *more)
        assert programs.stock("pub", *arguments).code == 0
    return topic


@pytest.mark.parametrize(
    "number", range(len(FORMATS)), ids=lambda number: " ".join(FORMATS[number])
)
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_look_the_same(
    programs: Programs, kept_topic: str, version: str, number: int
) -> None:
    until = ("-C", str(len(PAYLOADS)), "-W", "5", *FORMATS[number])
    stock = programs.stock("sub", *session(kept_topic, "stock", version, number), *until)
    ours = programs.ours("sub", *session(kept_topic, "ours", version, number), *until)
    same(stock, ours)
    assert stock.code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("-C", "1"), 0),
        (("-C", "2", "-W", "1"), 27),
        (("-R", "-W", "1"), 27),
        (("-R", "-V", "5", "-W", "1"), 27),
        (("-W", "1", "-T", "{topic}"), 27),
        (("-W", "1", "-T", "{topic}/+", "-v"), 27),
        (("-E",), 0),
        (("-E", "-q", "2", "-U", "other", "-d", "-i", "debugged"), 0),
        (("-E", "-q", "1", "-d", "--quiet", "-i", "debugged"), 0),
        (("-C", "1", "-d", "-i", "debugged", "-k", "30"), 0),
        (("-C", "1", "-d", "-i", "debugged", "-V", "mqttv5", "-x", "10", "-q", "2"), 0),
        (("-C", "1", "-d", "-i", "debugged", "-V", "31", "-q", "1"), 0),
        (("-C", "1", "-t", "more/#", "-t", "+/x", "-d", "-i", "debugged"), 0),
        (("-C", "1", "--retain-as-published", "-V", "5", "-F", "%r %p"), 0),
        (("-C", "1", "-D", "subscribe", "subscription-identifier", "7", "-F", "%S %4S %p"), 0),
        (("-C", "1", "-u", "name", "-P", "secret", "-I", "prefix", "--nodelay"), 0),
        (("-C", "1", "--will-topic", "w", "--will-payload", "x", "--will-qos", "1"), 0),
        (("-C", "1", "-M", "10", "-A", "127.0.0.1"), 0),
    ],
    ids=str,
)
def test_what_is_printed_and_when_it_ends(
    programs: Programs, arguments: tuple[str, ...], code: int
) -> None:
    topic = new_topic()
    assert programs.stock("pub", "-t", topic, "-r", "-q", "1", "-m", "kept").code == 0
    filled = [word.replace("{topic}", topic) for word in arguments]
    stock, ours = programs.both("sub", "-t", topic, *filled)
    same(stock, ours)
    assert ours.code == code


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("sub", ()),
        ("sub", ("-t",)),
        ("sub", ("-t", "a", "-q", "3")),
        ("sub", ("-t", "a/#/b")),
        ("sub", ("-t", "a", "--no-such-option")),
        ("sub", ("-t", "a", "-r")),
        ("sub", ("-t", "a", "-C", "0")),
        ("sub", ("-t", "a", "-W", "0")),
        ("sub", ("-t", "a", "-F", "%y")),
        ("sub", ("-t", "a", "-F", "%")),
        ("sub", ("-t", "a", "-F", "\\q")),
        ("sub", ("-t", "a", "-F", "@")),
        ("sub", ("-t", "a", "-c")),
        ("sub", ("-t", "a", "-V", "5", "-c")),
        ("sub", ("-t", "a", "-V", "4")),
        ("sub", ("-t", "a", "-R", "--retained-only")),
        ("sub", ("-t", "a", "-k", "1")),
        ("sub", ("-t", "a", "-i", "x", "-I", "y")),
        ("sub", ("-t", "a", "-x", "soon")),
        ("sub", ("-t", "a", "--will-retain")),
        ("sub", ("-t", "a", "--will-payload", "x")),
        ("sub", ("-t", "a", "--cert", "x")),
        ("sub", ("-t", "a", "--psk", "ab")),
        ("sub", ("-t", "a", "-D", "publish")),
        ("sub", ("-t", "a", "-D", "connect", "no-such-property", "1")),
        ("sub", ("-t", "a", "-D", "subscribe", "content-type", "1")),
        ("sub", ("-t", "a", "-L", "http://127.0.0.1/a")),
        ("sub", ("-t", "a", "-L", "mqtt://127.0.0.1")),
        ("sub", ("-t", "a", "--unix", "/no/such/socket")),
        ("sub", ("-t", "a", "--cafile", "/no/such/file")),
        ("sub", ("-t", "a", "-p", "1")),
        ("pub", ("-t", "a")),
        ("pub", ("-m", "x")),
        ("pub", ("-t", "a/+", "-m", "x")),
        ("pub", ("-t", "a", "-m", "x", "-n")),
        ("pub", ("-t", "a", "-f", "/no/such/file")),
        ("pub", ("-t", "a", "-s")),
        ("pub", ("-t", "a", "-m", "x", "-C", "1")),
        ("pub", ("-t", "a", "-m", "x", "--repeat", "0")),
        ("rr", ("-t", "a", "-m", "x")),
        ("rr", ("-e", "a", "-m", "x")),
        ("rr", ("-t", "a", "-e", "b")),
        ("rr", ("-t", "a", "-e", "b/+", "-m", "x")),
    ],
    ids=str,
)
def test_what_is_refused_ends_alike(
    programs: Programs, command: str, arguments: tuple[str, ...]
) -> None:
    stock, ours = programs.both(command, *arguments)
    assert ours.code == stock.code == 1
    assert ours.output == b""
    assert ours.complaint.startswith("error: ")
    assert "Traceback" not in ours.complaint


@pytest.mark.parametrize(
    ("arguments", "stdin", "count"),
    [
        (("-m", "hello"), b"", 1),
        (("-m", "hello", "-q", "1", "-d", "-i", "debugged"), b"", 1),
        (("-m", "hello", "-q", "2", "-d", "-i", "debugged", "-V", "5"), b"", 1),
        (("-m", "hello", "-q", "2", "-d", "-i", "debugged", "-V", "31"), b"", 1),
        (("-n",), b"", 1),
        (("-s", "-q", "1"), b"one\ntwo\n\0three", 1),
        (("-l", "-q", "1"), b"one\ntwo\n\nfour", 4),
        (("-l",), b"one\ntwo\nthree\n", 3),
        (("-l", "-q", "2"), b"", 0),
        (("-f", "{file}", "-q", "1"), b"", 1),
        (("-m", "again", "--repeat", "3", "-q", "1"), b"", 3),
        (("-m", "again", "--repeat", "3", "--repeat-delay", "0.01"), b"", 3),
        (("-m", "hello", "-D", "publish", "topic-alias", "1", "--repeat", "2"), b"", 2),
        (("-m", "x", "-D", "publish", "user-property", "k", "v", "-D", "connect",
          "user-property", "a", "b", "-D", "disconnect", "user-property", "a", "b"), b"", 1),
        (("-m", "x", "-D", "publish", "message-expiry-interval", "500", "-x", "20"), b"", 1),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_published_arrives_alike(
    programs: Programs, arguments: tuple[str, ...], stdin: bytes, count: int
) -> None:
    """A stored session hears both, and one message more that says where the end is."""
    file = programs.home / "payload"
    file.write_bytes(b"from\na file")
    filled = [word.replace("{file}", str(file)) for word in arguments]
    heard: list[bytes] = []
    said: list[Ran] = []
    topic = new_topic()
    for publish in (programs.stock, programs.ours):
        listener = ("-c", "-i", topic[-12:], "-q", "2", "-V", "5", "-x", "60", "-t", topic)
        assert programs.stock("sub", *listener, "-E").code == 0
        said.append(publish("pub", "-t", topic, *filled, stdin=stdin))
        assert programs.stock("pub", "-t", topic, "-q", "2", "-m", "end").code == 0
        until = ("-C", str(count + 1), "-W", "5", "-F", "%q %r %l %E %P %p")
        heard.append(programs.stock("sub", *listener, *until).output)
    same(*said)
    assert heard[0] == heard[1]
    assert heard[0].endswith(b"end\n")
    assert said[0].code == 0


def test_a_retained_message_is_kept_and_removed_alike(programs: Programs) -> None:
    topic = new_topic()
    for publish in (programs.stock, programs.ours):
        assert publish("pub", "-t", topic, "-r", "-m", "kept").code == 0
        assert programs.stock("sub", "-t", topic, "-C", "1", "-F", "%r %p").output == b"1 kept\n"
        assert publish("pub", "-t", topic, "-r", "-n").code == 0
        assert programs.stock("sub", "-t", topic, "-W", "1").code == 27


def test_urls_go_to_the_same_place(programs: Programs) -> None:
    topic = new_topic()
    url = f"mqtt://me:secret@127.0.0.1:{programs.port}/{topic}"
    for program in (("mosquitto_pub",), ("mosquitto_pub",)):
        assert programs.run(program, "-L", url, "-r", "-m", "kept").code == 0
    stock, ours = programs.both("sub", "-L", url, "-C", "1", "-v")
    same(stock, ours)
    assert ours.output == f"{topic} kept\n".encode()


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "ask"),
        ("-m", "ask", "-v"),
        ("-m", "ask", "-V", "311", "-q", "1", "-d", "-i", "debugged"),
        ("-n", "-F", "%t %r %q %p", "-q", "2", "-d", "-i", "debugged"),
    ],
    ids=str,
)
def test_a_response_is_printed_alike(programs: Programs, arguments: tuple[str, ...]) -> None:
    """The answer is there before the question: what is retained comes at once."""
    topic = new_topic()
    assert programs.stock("pub", "-t", topic, "-r", "-q", "2", "-m", "answer").code == 0
    stock, ours = programs.both("rr", "-t", f"{topic}/ask", "-e", topic, "-W", "5", *arguments)
    # Mosquitto's ends its connection without a word, ours says goodbye.
    goodbye = b"Client debugged sending DISCONNECT\n"
    assert stock.code == ours.code == 0
    # What is asked may be sent before or after the answer is there; the answer is what counts.
    keep = re.compile(rb"^(?!Client|Subscribed).*$", re.MULTILINE)
    assert keep.findall(ours.output.replace(goodbye, b"")) == keep.findall(stock.output)


def test_silence_is_told_by_the_same_exit_code(programs: Programs) -> None:
    topic = new_topic()
    stock, ours = programs.both("rr", "-t", topic, "-e", f"{topic}/r", "-m", "x", "-W", "1")
    same(stock, ours)
    assert ours.code == 27


def test_defaults_come_from_the_same_file(programs: Programs) -> None:
    topic = new_topic()
    (programs.home / "mosquitto_sub").write_text(f"# my defaults\n-t {topic}\n-v\n-C 1\n\n")
    assert programs.stock("pub", "-t", topic, "-r", "-m", "kept").code == 0
    ours = programs.ours("sub")
    assert ours.output == f"{topic} kept\n".encode()
