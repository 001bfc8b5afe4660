"""Every flag of `pub`, `sub` and `rr`: its names, what it takes, who knows it, what it does.

The command line is read by hand instead of by a library: a flag and its value are always two
words, `-h` is a host, `-D` takes two or three words more, and reading must cost next to nothing.
"""

import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, NoReturn

from quantumqtt.cli.mosquitto.options import (
    PUB,
    RR,
    SUB,
    Options,
    check_filter,
    check_topic,
)
from quantumqtt.cli.mosquitto.output import check_format
from quantumqtt.cli.mosquitto.usage import decimal, number, refuse

_INT_MAX: Final = 2**31 - 1
_ALL: Final = (PUB, SUB, RR)
_PRINTING: Final = (SUB, RR)

Set = Callable[[Options, str], object]


class Flag(NamedTuple):
    """One flag; `value` is what its value is called, None for a switch."""

    group: str
    names: tuple[str, ...]
    value: str | None
    commands: tuple[str, ...]
    help: str
    set: Set


def _text(attribute: str) -> Set:
    return lambda options, value: setattr(options, attribute, value)


def _switch(attribute: str, state: bool = True) -> Set:
    return lambda options, _: setattr(options, attribute, state)


def _number(attribute: str, flag: str, low: int, high: int = _INT_MAX) -> Set:
    return lambda options, value: setattr(options, attribute, number(flag, value, low, high))


def _set_host(options: Options, value: str) -> None:
    options.host, options.unix = value, None


def _set_id(options: Options, value: str) -> None:
    if options.client_id_prefix is not None:
        refuse("-i and -I exclude each other")
    options.client_id = value


def _set_prefix(options: Options, value: str) -> None:
    if options.client_id is not None:
        refuse("-i and -I exclude each other")
    options.client_id_prefix = value


def _set_keep_alive(options: Options, value: str) -> None:
    options.keep_alive_s = number("-k", value, 5, 65_535)


def _set_response_topic(options: Options, value: str) -> None:
    check_topic("-e", value)
    options.response_topic = value


def _set_will_topic(options: Options, value: str) -> None:
    check_topic("--will-topic", value)
    options.will_topic = value


def _set_will_payload(options: Options, value: str) -> None:
    options.will_payload = os.fsencode(value)


def _add_filter_out(options: Options, value: str) -> None:
    check_filter("-T", value)
    options.filters_out.append(value)


def _add_unsubscribe(options: Options, value: str) -> None:
    check_filter("-U", value)
    options.unsubscribes.append(value)


def _set_format(options: Options, value: str) -> None:
    check_format(os.fsencode(value))
    options.format = value


def _set_percent(options: Options, value: str) -> None:
    options.print_percent = decimal("--random-filter", value, 0.1, 100.0)


def _set_repeat_delay(options: Options, value: str) -> None:
    options.repeat_delay_s = decimal("--repeat-delay", value, 0.0, 86_400.0)


def _set_keyform(options: Options, value: str) -> None:
    if value != "pem":
        _no_engines(options, value)
    options.keyform = value


def _no_engines(_options: Options, _value: str) -> None:
    refuse(
        "OpenSSL engines cannot be used from Python",
        "give certificate and key as PEM files with --cert and --key",
    )


def _no_srv(_options: Options, _value: str) -> None:
    refuse(
        "-S: DNS SRV records cannot be looked up without a resolver of our own",
        "look the broker up (`dig +short SRV _mqtt._tcp.example.com`) and give -h and -p",
    )


def _source(name: str) -> Set:
    return lambda options, value: options.set_source(name, value)


WHERE: Final = "Where the broker is"
TLS: Final = "TLS"
WHO: Final = "Who we are"
SESSION: Final = "Session"
WHAT: Final = "What is said"
WHICH: Final = "Which messages, and how long"
LOOKS: Final = "How it looks"

FLAGS: Final = (
    Flag(WHERE, ("-h", "--host"), "HOST", _ALL, "Host; localhost by default.", _set_host),
    Flag(
        WHERE, ("-p", "--port"), "PORT", _ALL,
        "Port; 1883 by default, 8883 with TLS.",
        _number("port", "-p", 0, 65_535),
    ),
    Flag(
        WHERE, ("-L", "--url"), "URL", _ALL,
        "All at once: mqtt(s)://[user[:password]@]host[:port]/topic.",
        Options.set_url,
    ),
    Flag(WHERE, ("--unix",), "PATH", _ALL, "A Unix socket instead of a host.", _text("unix")),
    Flag(WHERE, ("-A",), "ADDRESS", _ALL, "Connect from this local address.", _text("bind")),
    Flag(
        WHERE, ("--proxy",), "URL", _ALL,
        "Go through socks5h://[user[:password]@]host[:port].",
        Options.set_proxy,
    ),
    Flag(WHERE, ("--nodelay",), None, _ALL, "Send small packets at once.", _switch("nodelay")),
    Flag(WHERE, ("-S",), None, _ALL, "Refused: no DNS SRV look-ups here.", _no_srv),
    Flag(WHO, ("-i", "--id"), "ID", _ALL, "Client id; made up by default.", _set_id),
    Flag(
        WHO, ("-I", "--id-prefix"), "PREFIX", _ALL,
        "Client id from this prefix and the process id.",
        _set_prefix,
    ),
    Flag(WHO, ("-u", "--username"), "NAME", _ALL, "User name.", _text("user_name")),
    Flag(WHO, ("-P", "--pw"), "PASSWORD", _ALL, "Password.", _text("password")),
    Flag(TLS, ("--cafile",), "FILE", _ALL, "Trust these authorities (PEM).", _text("cafile")),
    Flag(
        TLS, ("--capath",), "DIR", _ALL,
        "Trust the authorities in a hashed directory.",
        _text("capath"),
    ),
    Flag(
        TLS, ("--tls-use-os-certs",), None, _ALL,
        "Trust the system's authorities; alone, it asks for TLS.",
        _switch("tls_use_os_certs"),
    ),
    Flag(TLS, ("--cert",), "FILE", _ALL, "Our certificate (PEM).", _text("cert")),
    Flag(TLS, ("--key",), "FILE", _ALL, "Its private key (PEM).", _text("key")),
    Flag(TLS, ("--keyform",), "FORM", _ALL, "Only pem.", _set_keyform),
    Flag(
        TLS, ("--insecure",), None, _ALL,
        "Do not compare the certificate's name with the host.",
        _switch("insecure"),
    ),
    Flag(TLS, ("--ciphers",), "LIST", _ALL, "Ciphers, in OpenSSL's words.", _text("ciphers")),
    Flag(
        TLS, ("--tls-version",), "VERSION", _ALL,
        "Oldest version: tlsv1.3, tlsv1.2 (default) or tlsv1.1.",
        _text("tls_version"),
    ),
    Flag(TLS, ("--tls-alpn",), "NAME", _ALL, "Protocol to ask for by ALPN.", _text("tls_alpn")),
    Flag(
        TLS, ("--psk",), "HEX", _ALL,
        "Pre-shared key instead of certificates (Python 3.13 or newer).",
        _text("psk"),
    ),
    Flag(TLS, ("--psk-identity",), "ID", _ALL, "Who has this key.", _text("psk_identity")),
    Flag(TLS, ("--tls-engine",), "ENGINE", _ALL, "Refused: no engines here.", _no_engines),
    Flag(
        TLS, ("--tls-engine-kpass-sha1",), "SHA1", _ALL, "Refused: no engines here.", _no_engines
    ),
    Flag(
        SESSION, ("-V", "--protocol-version"), "VERSION", _ALL,
        "mqttv5, mqttv311 or mqttv31; pub and sub speak 3.1.1 by default, rr 5.",
        Options.set_version,
    ),
    Flag(
        SESSION, ("-c", "--disable-clean-session"), None, _ALL,
        "Find the session of this client id again, and leave it behind.",
        _switch("clean", state=False),
    ),
    Flag(
        SESSION, ("-x",), "SECONDS", _ALL,
        "How long the session stays (MQTT 5); -1 or ∞ for ever.",
        Options.set_expiry,
    ),
    Flag(SESSION, ("-k", "--keepalive"), "SECONDS", _ALL, "Keep alive; 60.", _set_keep_alive),
    Flag(
        SESSION, ("-M",), "COUNT", _ALL,
        "Unacknowledged publishes at once; 20.",
        _number("inflight_max", "-M", 1, 65_535),
    ),
    Flag(
        SESSION, ("--will-topic",), "TOPIC", _ALL,
        "What the broker publishes if we vanish: where,",
        _set_will_topic,
    ),
    Flag(SESSION, ("--will-payload",), "TEXT", _ALL, "… what,", _set_will_payload),
    Flag(SESSION, ("--will-qos",), "QOS", _ALL, "… how,", _number("will_qos", "--will-qos", 0, 2)),
    Flag(SESSION, ("--will-retain",), None, _ALL, "… and kept.", _switch("will_retain")),
    Flag(
        SESSION, ("-D", "--property"), "PACKET NAME VALUE", _ALL,
        "A property of MQTT 5, for connect, publish, subscribe, unsubscribe, disconnect or will; "
        "user-property takes a name and a value.",
        lambda _options, _value: None,  # several words; see `read`
    ),
    Flag(
        WHAT, ("-t", "--topic"), "TOPIC", _ALL,
        "Topic to publish to; for sub, a filter, as often as needed.",
        lambda options, value: options.add_topic(value, "-t"),
    ),
    Flag(WHAT, ("-e",), "TOPIC", (RR,), "Topic the response comes on.", _set_response_topic),
    Flag(WHAT, ("-q", "--qos"), "QOS", _ALL, "QoS: 0, 1 or 2.", _number("qos", "-q", 0, 2)),
    Flag(WHAT, ("-m", "--message"), "TEXT", (PUB, RR), "Send this.", _source("message")),
    Flag(WHAT, ("-f", "--file"), "FILE", (PUB, RR), "Send what is in a file.", _source("file")),
    Flag(
        WHAT, ("-s", "--stdin-file"), None, (PUB, RR),
        "Send standard input as one message.",
        _source("stdin"),
    ),
    Flag(
        WHAT, ("-l", "--stdin-line"), None, (PUB,),
        "Send each line of standard input.",
        _source("lines"),
    ),
    Flag(
        WHAT, ("-n", "--null-message"), None, (PUB, RR),
        "Send an empty message; with -r it removes a retained one.",
        _source("null"),
    ),
    Flag(WHAT, ("-r", "--retain"), None, (PUB,), "Have the broker keep it.", _switch("retain")),
    Flag(
        WHAT, ("--repeat",), "COUNT", (PUB,),
        "Send it so many times.",
        _number("repeat_count", "--repeat", 1),
    ),
    Flag(
        WHAT, ("--repeat-delay",), "SECONDS", (PUB,),
        "Wait so long in between.",
        _set_repeat_delay,
    ),
    Flag(
        WHICH, ("-C",), "COUNT", (SUB,),
        "End after so many messages.",
        _number("count_max", "-C", 1),
    ),
    Flag(
        WHICH, ("-W",), "SECONDS", _PRINTING,
        "End after so long, with exit code 27.",
        _number("timeout_s", "-W", 1),
    ),
    Flag(
        WHICH, ("-E",), None, (SUB,),
        "End once the broker has granted the subscriptions.",
        _switch("exit_after_subscribing"),
    ),
    Flag(
        WHICH, ("-R",), None, _PRINTING,
        "Leave out messages the broker had kept.",
        _switch("skip_retained"),
    ),
    Flag(
        WHICH, ("--retained-only",), None, (SUB,),
        "Only those; end with the first that is new.",
        _switch("retained_only"),
    ),
    Flag(
        WHICH, ("--remove-retained",), None, (SUB,),
        "Remove every kept message that came; mind -T.",
        _switch("remove_retained"),
    ),
    Flag(
        WHICH, ("--retain-as-published",), None, _PRINTING,
        "Show the retain flag as it was published (MQTT 5).",
        _switch("retain_as_published"),
    ),
    Flag(WHICH, ("-T", "--filter-out"), "FILTER", (SUB,), "Leave these out.", _add_filter_out),
    Flag(
        WHICH, ("-U", "--unsubscribe"), "FILTER", (SUB,),
        "Unsubscribe, after subscribing; for sessions that stay.",
        _add_unsubscribe,
    ),
    Flag(
        WHICH, ("--random-filter",), "PERCENT", (SUB,),
        "Print only so many of a hundred, by chance.",
        _set_percent,
    ),
    Flag(LOOKS, ("-F",), "FORMAT", _PRINTING, "Print each message so; see below.", _set_format),
    Flag(LOOKS, ("-v", "--verbose"), None, _PRINTING, "Topic and payload.", _switch("verbose")),
    Flag(
        LOOKS, ("-N",), None, _PRINTING,
        "No end of line behind a message.",
        _switch("end_of_line", state=False),
    ),
    Flag(LOOKS, ("--pretty",), None, _PRINTING, "Spread %j and %J over lines.", _switch("pretty")),
    Flag(
        LOOKS, ("--json",), None, _ALL,
        "One JSON object per message; for pub, one about what was published.",
        _switch("json"),
    ),
    Flag(LOOKS, ("-d", "--debug"), None, _ALL, "Tell every packet.", _switch("debug")),
    Flag(LOOKS, ("--quiet",), None, _ALL, "No errors of the run.", _switch("quiet")),
)  # fmt: skip


def read(command: str, arguments: list[str], *, config: bool = True) -> Options | None:
    """Read a command line, and before it the file with its defaults; None when help is wanted.

    Raises:
        UsageError: Something in it cannot be what was meant.
    """
    options = Options(command)
    known = {name: flag for flag in FLAGS if command in flag.commands for name in flag.names}
    if config:
        for words in _configured(command):
            if not _apply(options, known, words):
                return None
    if not _apply(options, known, arguments):
        return None
    options.finish()
    return options


def _apply(options: Options, known: dict[str, Flag], words: list[str]) -> bool:
    rest = iter(words)
    for word in rest:
        if word in ("--help", "--version"):
            return False
        flag = known.get(word)
        if flag is None:
            _refuse_unknown(options.command, word, known)
        if word in ("-D", "--property"):
            _apply_property(options, word, rest)
        elif flag.value is None:
            flag.set(options, "")
        else:
            flag.set(options, _next_word(rest, word, flag.value))
    return True


def _apply_property(options: Options, word: str, rest: Iterator[str]) -> None:
    packet, name = (_next_word(rest, word, part) for part in ("PACKET", "NAME"))
    count = 2 if name == "user-property" else 1
    values = [_next_word(rest, f"{word} {packet} {name}", "VALUE") for _ in range(count)]
    options.properties.add(packet, name, values)
    options.set_version("5")


def _next_word(rest: Iterator[str], flag: str, what: str) -> str:
    word = next(rest, None)
    if word is None:
        refuse(f"{flag} stands at the end", f"{what} belongs behind it")
    return word


def _refuse_unknown(command: str, word: str, known: dict[str, Flag]) -> NoReturn:
    import difflib

    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    elsewhere = [flag for flag in FLAGS if word in flag.names]
    if near:
        hint = f"did you mean {near[0]}?"
    elif elsewhere:
        others = ", ".join(f"quantumqtt {name}" for name in elsewhere[0].commands)
        hint = f"{word} belongs to {others}"
    else:
        hint = f"`quantumqtt {command} --help` lists them"
    refuse(f"unknown option {word!r}", hint)


def _configured(command: str) -> Iterator[list[str]]:
    """Options from `$XDG_CONFIG_HOME/mosquitto_sub` and the like: one per line, `#` comments."""
    home = os.environ.get("XDG_CONFIG_HOME")
    if not home and os.environ.get("HOME"):
        home = os.path.join(os.environ["HOME"], ".config")
    if not home:
        return
    try:
        with open(f"{home}/mosquitto_{command}", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{home}/mosquitto_{command}: {error}", "make it readable, or remove it")
    for line in lines:
        flag, _, value = line.strip().partition(" ")
        if flag and not flag.startswith("#"):
            yield [flag, value.strip()] if value.strip() else [flag]
