"""What the flags of `pub`, `sub` and `rr` come to, checked as far as that needs no broker."""

import os
from typing import Final

from quantumqtt import _core
from quantumqtt.cli.mosquitto.properties import PropertyLists
from quantumqtt.cli.mosquitto.usage import number, refuse
from quantumqtt.errors import LocalProtocolError

PUB: Final = "pub"
SUB: Final = "sub"
RR: Final = "rr"
V31: Final = 3
V311: Final = 4
V5: Final = 5
NEVER_EXPIRES: Final = 0xFFFF_FFFF
PORT: Final = 1883
PORT_TLS: Final = 8883
_VERSIONS: Final = {
    "31": V31,
    "mqttv31": V31,
    "311": V311,
    "mqttv311": V311,
    "5": V5,
    "mqttv5": V5,
}
_SUBSCRIBE_NO_RETAINED: Final = 0x20
_SUBSCRIBE_RETAIN_AS_PUBLISHED: Final = 0x08


class Proxy:
    """A SOCKS5 proxy, which also looks up the name of the broker."""

    def __init__(self, host: str, port: int, user_name: str | None, password: str | None) -> None:
        self.host = host
        self.port = port
        self.user_name = user_name
        self.password = password


class Options:
    """Everything one command was told.

    Plain attributes with the defaults of Mosquitto's clients; `flags.py` says which flag sets what.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        # where
        self.host: str | None = None
        self.port: int | None = None
        self.unix: str | None = None
        self.bind: str | None = None
        self.proxy: Proxy | None = None
        self.nodelay = False
        # TLS
        self.cafile: str | None = None
        self.capath: str | None = None
        self.cert: str | None = None
        self.key: str | None = None
        self.keyform: str | None = None
        self.ciphers: str | None = None
        self.tls_version: str | None = None
        self.tls_alpn: str | None = None
        self.tls_use_os_certs = False
        self.insecure = False
        self.psk: str | None = None
        self.psk_identity: str | None = None
        # who
        self.client_id: str | None = None
        self.client_id_prefix: str | None = None
        self.user_name: str | None = None
        self.password: str | None = None
        # session
        self.version = V5 if command == RR else V311
        self.clean = True
        self.expiry_s: int | None = None
        self.keep_alive_s = 60
        self.inflight_max = 20
        self.will_topic: str | None = None
        self.will_payload: bytes | None = None
        self.will_qos = 0
        self.will_retain = False
        self.properties = PropertyLists()
        # what
        self.topic: str | None = None
        self.topics: list[str] = []
        self.response_topic: str | None = None
        self.filters_out: list[str] = []
        self.unsubscribes: list[str] = []
        self.qos = 0
        self.retain = False
        self.source: str | None = None  # message, file, lines, stdin or null
        self.message: bytes | None = None
        self.file: str | None = None
        self.repeat_count = 1
        self.repeat_delay_s = 0.0
        # how long, which, how it looks
        self.count_max = 0
        self.timeout_s = 0
        self.exit_after_subscribing = False
        self.skip_retained = False
        self.retained_only = False
        self.remove_retained = False
        self.retain_as_published = False
        self.print_percent = 100.0
        self.format: str | None = None
        self.pretty = False
        self.verbose = False
        self.end_of_line = True
        self.json = False
        self.debug = False
        self.quiet = False

    # --- setting ------------------------------------------------------------------------------

    def set_source(self, source: str, value: str | None = None) -> None:
        """Say where the message comes from; that can be said once."""
        if self.source is not None:
            refuse("only one of -f, -l, -m, -n and -s says what is sent")
        self.source = source
        if source == "message" and value is not None:
            self.message = os.fsencode(value)
        elif source == "file":
            self.file = value

    def set_version(self, text: str) -> None:
        """Take `-V`."""
        if text not in _VERSIONS:
            refuse(f"-V {text!r}", "one of mqttv5, mqttv311, mqttv31, or 5, 311, 31")
        self.version = _VERSIONS[text]

    def set_expiry(self, text: str) -> None:
        """Take `-x`, where -1 and ∞ mean a session that stays."""
        seconds = -1 if text == "∞" else number("-x", text, -1, NEVER_EXPIRES)
        self.expiry_s = NEVER_EXPIRES if seconds == -1 else seconds

    def set_url(self, text: str) -> None:
        """Take `-L mqtt(s)://[user[:password]@]host[:port]/topic`."""
        scheme, separator, rest = text.partition("://")
        if not separator or scheme.lower() not in ("mqtt", "mqtts"):
            refuse(f"-L {text!r}: unsupported scheme", "begin with mqtt:// or mqtts://")
        if scheme.lower() == "mqtts":
            self.tls_use_os_certs = True
        place, slash, topic = rest.partition("/")
        if not slash:
            refuse(f"-L {text!r}: the topic is missing", "append /topic to the address")
        self.add_topic(topic, "-L")
        credentials, at, place = place.rpartition("@")
        if at:
            self.user_name, colon, password = credentials.partition(":")
            self.password = password if colon else self.password
        host, self.port = split_port(place, PORT_TLS if self.tls_use_os_certs else PORT)
        self.host = host
        self.unix = None

    def set_proxy(self, text: str) -> None:
        """Take `--proxy socks5h://[user[:password]@]host[:port]`."""
        scheme, separator, place = text.partition("://")
        if not separator or scheme.lower() != "socks5h":
            refuse(f"--proxy {text!r}: unsupported scheme", "begin with socks5h://")
        credentials, at, place = place.rpartition("@")
        user_name, colon, password = credentials.partition(":")
        host, port = split_port(place, 1080)
        self.proxy = Proxy(
            host, port, _unquoted(user_name) if at else None, _unquoted(password) if colon else None
        )

    def add_topic(self, topic: str, flag: str) -> None:
        """Take a topic to publish to, or a filter to subscribe to."""
        if self.command == SUB:
            check_filter(flag, topic)
            self.topics.append(topic)
        else:
            check_topic(flag, topic)
            self.topic = topic

    # --- asking -------------------------------------------------------------------------------

    @property
    def is_encrypted(self) -> bool:
        """Whether anything asks for TLS."""
        return bool(
            self.cafile
            or self.capath
            or self.psk
            or self.tls_use_os_certs
            or (self.port == PORT_TLS and self.unix is None)
        )

    @property
    def subscribe_options(self) -> int:
        """The options byte behind every filter; before MQTT 5 only the QoS exists."""
        if self.version != V5 or self.command == RR:
            return self.qos
        return (
            self.qos
            | (_SUBSCRIBE_NO_RETAINED if self.skip_retained else 0)
            | (_SUBSCRIBE_RETAIN_AS_PUBLISHED if self.retain_as_published else 0)
        )

    def finish(self) -> None:
        """Judge what only all flags together show, and fill in what follows from them.

        Raises:
            UsageError: They contradict each other, or something is missing.
        """
        if self.will_topic is None and (self.will_payload is not None or self.will_retain):
            refuse("a will without a topic", "add --will-topic")
        if (self.cert is None) != (self.key is None):
            refuse("--cert and --key belong together", "give both or none")
        if self.keyform is not None and self.key is None:
            refuse("--keyform without --key")
        if self.psk is not None and (self.cafile or self.capath):
            refuse("--psk does not go with --cafile or --capath", "choose one kind of TLS")
        if self.psk is not None and self.psk_identity is None:
            refuse("--psk without --psk-identity")
        self._finish_session()
        self.properties.check()
        if self.command == SUB:
            if not self.topics:
                refuse("no topic to subscribe to", "name one with -t")
            if self.skip_retained and self.retained_only:
                refuse("-R and --retained-only together leave nothing to print")
        elif self.topic is None or self.source is None:
            refuse("both topic and message are needed", "add -t and one of -f, -l, -m, -n, -s")
        if self.command == RR:
            if self.response_topic is None:
                refuse("no response topic", "name one with -e")
            self.properties.add_response_topic(self.response_topic)

    def _finish_session(self) -> None:
        id_is_chosen = self.client_id is not None and self.client_id_prefix is None
        if self.version == V5:
            if not self.clean and self.expiry_s is None:
                self.expiry_s = NEVER_EXPIRES
            if self.expiry_s == NEVER_EXPIRES and not id_is_chosen:
                refuse("a session that never expires needs a client id", "choose one with -i")
        elif not self.clean and not id_is_chosen:
            refuse("-c needs a client id", "choose one with -i")
        elif self.password is not None and self.user_name is None:
            refuse("before MQTT 5 a password needs a user name", "add -u, or -V 5")
        if self.client_id_prefix is not None:
            self.client_id = f"{self.client_id_prefix}{os.getpid()}"


def check_topic(flag: str, topic: str) -> None:
    """Refuse what no PUBLISH may carry.

    Raises:
        UsageError: The topic breaks MQTT.
    """
    try:
        _core.validate_topic(topic)
    except (LocalProtocolError, UnicodeEncodeError) as error:
        refuse(f"{flag} {topic!r}: no topic to publish to", str(error))


def check_filter(flag: str, topic_filter: str) -> None:
    """Refuse what no SUBSCRIBE may carry.

    Raises:
        UsageError: The filter breaks MQTT.
    """
    try:
        _core.validate_filter(topic_filter)
    except (LocalProtocolError, UnicodeEncodeError) as error:
        refuse(f"{flag} {topic_filter!r}: no filter to subscribe to", str(error))


def split_port(place: str, default: int) -> tuple[str, int]:
    """Split `host:port`; an address of IPv6 may stand in brackets."""
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    if not host:
        refuse(f"{place!r}: the host is missing")
    return host, number("port", port, 1, 65_535) if port else default


def _unquoted(text: str) -> str:
    for code, character in (("%3a", ":"), ("%3A", ":"), ("%40", "@"), ("%25", "%")):
        text = text.replace(code, character)
    return text
