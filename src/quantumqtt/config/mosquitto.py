"""Reading `mosquitto.conf`: the options that have a meaning here, and a clear list of the others.

Rules of this room:

- What has a meaning here becomes settings, with Mosquitto's defaults: whoever starts with such a
  file expects `allow_anonymous false` once a listener is written, and passwords over plain TCP.
- What has none is *ignored*, and said so with file, line and reason.
- What would make the broker more open, or its topics others, than the file says is *refused*:
  ignoring a lock is worse than not starting.
- A word that Mosquitto does not know either is refused too; it is probably a slip.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from quantumqtt.config.limits import (
    DAY_S,
    GIB,
    PACKET_BYTES_CEILING,
    PACKET_BYTES_DEFAULT,
)
from quantumqtt.config.mosquitto_words import IGNORED, REFUSED, is_bridge_word, is_plugin_word
from quantumqtt.config.problems import KeyPath, Problem, nearest, to_error
from quantumqtt.errors import ConfigError

CONF_FILE_BYTES_MAX: Final = 1_048_576
INCLUDED_FILES_MAX: Final = 1_000

_SECONDS: Final = {"h": 3_600, "d": DAY_S, "w": 7 * DAY_S, "m": 30 * DAY_S, "y": 365 * DAY_S}
_EXPIRY_MAX_S: Final = 7 * DAY_S
_SYS_INTERVAL_MAX_S: Final = 86_400
_QUEUE_COUNT_MAX: Final = 1_000_000_000
_QUEUE_BYTES_MAX: Final = 1_024 * GIB
_WINDOW_MAX: Final = 1_024
_CLIENTS_MAX: Final = 4_194_304

# Options of a listener and the key of a listener table that means the same.
_TLS: Final = {
    "certfile": "certificate",
    "keyfile": "key",
    "cafile": "client_ca",
    "crlfile": "crl",
}
_TLS_SWITCHES: Final = ("require_certificate", "use_identity_as_username")
_OF_A_LISTENER: Final = ("listener_allow_anonymous", "enable_proxy_protocol", "websockets_origin")
# Mosquitto believes whoever speaks to such a listener.
_EVERYBODY: Final = ("0.0.0.0/0", "::/0")


@dataclass(frozen=True, slots=True)
class Option:
    """One line of the file."""

    word: str
    value: str
    file: Path
    line: int

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class _Door:
    """One listener while it is gathered."""

    option: Option
    host: str
    port: str
    protocol: str = "mqtt"
    is_named_by_certificate: bool = False
    extras: dict[str, object] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def say(self, key: str, value: object, option: Option) -> None:
        """Remember a setting of its own, and where it was written."""
        self.extras[key] = value
        self.places[key] = option.place

    def url(self) -> str:
        """Write its place as a listen URL."""
        if self.host.startswith("/"):
            return f"unix://{self.host}"
        schemes = {"mqtt": ("tcp", "tls"), "websockets": ("ws", "wss")}
        scheme = schemes[self.protocol]["certificate" in self.extras]
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = "/mqtt" if self.protocol == "websockets" else ""
        return f"{scheme}://{host}:{self.port}{path}"

    def table(self) -> dict[str, object]:
        """Write it as a listener table; empty when its URL says everything."""
        extras = dict(self.extras)
        if "certificate" not in extras:
            # As at Mosquitto, the other files mean nothing without a certificate.
            for key in (*_TLS.values(), "require_client_certificate", "tls_min_version"):
                extras.pop(key, None)
            return {"url": self.url(), **extras} if extras else {}
        extras.setdefault("tls_min_version", "1.2")
        extras["certificate_user"] = "cn" if self.is_named_by_certificate else "off"
        # Mosquitto asks no client for a certificate unless it must have one.
        if not extras.get("require_client_certificate"):
            extras.pop("client_ca", None)
            extras.pop("crl", None)
        return {"url": self.url(), **extras}


@dataclass(frozen=True, slots=True)
class MosquittoLayer:
    """Settings from a `mosquitto.conf`, and what was left out of them."""

    values: dict[str, object]
    places: Mapping[KeyPath, str]
    ignored: tuple[str, ...]
    file: Path

    def origin_of(self, path: KeyPath) -> str:
        """Name file and line."""
        for length in range(len(path), 0, -1):
            if place := self.places.get(path[:length]):
                return place
        return str(self.file)


class _Reader:
    """Turns options into settings, one after the other."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.values: dict[str, object] = {"allow_plaintext_passwords": True}
        self.limits: dict[str, object] = {"receive_maximum": 20}
        self.places: dict[KeyPath, str] = {}
        self.ignored: list[str] = []
        self.problems: list[Problem] = []
        self.doors: list[_Door] = []
        self.default_door: dict[str, Option] = {}
        self.is_persistent = False
        self.location: Option | None = None

    def read(self, options: Iterable[Option]) -> None:
        """Take every option; problems are gathered."""
        in_bridge = False
        for option in options:
            if option.word in {"connection", "listener"}:
                in_bridge = option.word == "connection"
            try:
                if is_bridge_word(option.word) or (in_bridge and option.word in _TLS):
                    self._ignore(option, "there are no bridges")
                else:
                    self._take(option)
            except ConfigError as error:
                self._problem(option, str(error), error.hint or "repair the line")

    def finish(self) -> MosquittoLayer:
        """Put together what depends on several lines."""
        if self.default_door:
            self._add_default_door()
        has_doors = bool(self.doors)
        if has_doors:
            self._add_doors()
            self.values.setdefault("allow_anonymous", False)
        if self.is_persistent and self.location is not None:
            self.values["data"] = self.location.value
            self.places["data",] = self.location.place
        if not self.is_persistent:
            # Mosquitto's own default; a flag or a variable may still ask for more.
            self.values.setdefault("durability", "memory")
        self.values["limits"] = self.limits
        if self.problems:
            raise to_error(self.problems)
        return MosquittoLayer(self.values, self.places, tuple(self.ignored), self.file)

    def _add_doors(self) -> None:
        """Write the listeners: URLs as far as those say everything, tables for the others."""
        bare = [door for door in self.doors if not door.table()]
        tables = [door for door in self.doors if door.table()]
        if bare:
            self.values["listen"] = tuple(door.url() for door in bare)
            self.places["listen",] = bare[0].option.place
        if tables:
            self.values["listener"] = tuple(door.table() for door in tables)
        for number, door in enumerate(tables):
            self.places["listener", str(number)] = door.option.place
            for key, place in door.places.items():
                self.places["listener", str(number), key] = place

    def _take(self, option: Option) -> None:
        word = option.word
        if word in REFUSED:
            if word == "per_listener_settings" and not _switch(option):
                return
            self._problem(option, *REFUSED[word])
        elif is_plugin_word(word):
            self._problem(option, *REFUSED["plugin"])
        elif word in IGNORED:
            self._ignore(option, IGNORED[word])
        elif word in {"listener", "port", "bind_address", "protocol"}:
            self._take_door(option)
        elif word in _TLS or word in _TLS_SWITCHES or word == "tls_version":
            self._take_tls(option)
        elif word in _OF_A_LISTENER:
            self._take_of_a_listener(option)
        elif word in {"allow_anonymous", "use_username_as_clientid"}:
            self._take_switch(option)
        elif word in {"password_file", "acl_file"}:
            self._set(option, (word,), _filled(option))
        elif word == "sys_interval":
            self._set(
                option, ("sys_interval_s",), min(max(_number(option), 0), _SYS_INTERVAL_MAX_S)
            )
        elif word in {"persistence", "persistence_location"}:
            self._take_persistence(option)
        elif word in _LIMITS:
            self._take_limit(option)
        elif word == "log_type":
            if option.value in {"all", "debug"}:
                self._set(option, ("log", "level"), "debug")
        else:
            guess = nearest(
                word,
                [
                    *(*_LIMITS, *_TLS, *_TLS_SWITCHES, *_OF_A_LISTENER, *IGNORED, *REFUSED),
                    *("listener", "acl_file"),
                ],
            )
            remedy = f"did you mean {guess}?" if guess else "remove the line"
            self._problem(option, "unknown to Mosquitto and to us", remedy)

    def _take_door(self, option: Option) -> None:
        if option.word == "listener":
            port, _, host = option.value.partition(" ")
            place = _place(host.strip() or "0.0.0.0", port)
            self.doors.append(_Door(option, place, _port(port)))
        elif option.word == "protocol":
            if option.value not in {"mqtt", "websockets"}:
                raise ConfigError("is no protocol", hint="write mqtt or websockets")
            if self.doors:
                self.doors[-1].protocol = option.value
        else:
            self.default_door[option.word] = option

    def _add_default_door(self) -> None:
        port, host = self.default_door.get("port"), self.default_door.get("bind_address")
        first = port or host
        if first is None:
            return
        try:
            number = _port(port.value) if port else "1883"
        except ConfigError as error:
            self._problem(first, str(error), error.hint or "")
            return
        self.doors.insert(0, _Door(first, host.value if host else "0.0.0.0", number))

    def _take_tls(self, option: Option) -> None:
        if not self.doors:
            raise ConfigError("stands before any listener", hint="write it below a listener line")
        door = self.doors[-1]
        if option.word in _TLS:
            door.say(_TLS[option.word], _filled(option), option)
        elif option.word == "require_certificate":
            door.say("require_client_certificate", _switch(option), option)
        elif option.word == "use_identity_as_username":
            door.is_named_by_certificate = _switch(option)
        elif option.value in {"tlsv1.2", "tlsv1.3"}:
            door.say("tls_min_version", option.value.removeprefix("tlsv"), option)
        else:
            raise ConfigError("is too old to be spoken", hint="write tlsv1.3 or tlsv1.2")

    def _take_of_a_listener(self, option: Option) -> None:
        if not self.doors:
            raise ConfigError("stands before any listener", hint="write it below a listener line")
        door = self.doors[-1]
        if option.word == "listener_allow_anonymous":
            door.say("allow_anonymous", _switch(option), option)
        elif option.word == "enable_proxy_protocol":
            if option.value not in {"1", "2"}:
                raise ConfigError("is no version of the PROXY protocol", hint="write 1 or 2")
            door.say("proxy_protocol", f"v{option.value}", option)
            door.say("proxy_trusted", _EVERYBODY, option)
        else:
            known = door.extras.get("origins", ())
            assert isinstance(known, tuple), "only this line writes it"
            door.say("origins", (*known, _filled(option)), option)

    def _take_switch(self, option: Option) -> None:
        is_on = _switch(option)
        if option.word == "allow_anonymous":
            self._set(option, ("allow_anonymous",), is_on)
        elif is_on:
            self._set(option, ("client_id_rule",), "user_name")

    def _take_persistence(self, option: Option) -> None:
        if option.word == "persistence_location":
            self.location = option
            return
        self.is_persistent = _switch(option)
        if not self.is_persistent:
            self._set(option, ("durability",), "memory")

    def _take_limit(self, option: Option) -> None:
        if option.word == "max_connections" and self.doors:
            number = _number(option)
            if number > 0:
                self.doors[-1].say("connections_max", min(number, _CLIENTS_MAX), option)
            return
        key, unlimited, ceiling = _LIMITS[option.word]
        number = _seconds(option) if key == "session_expiry_s_max" else _number(option)
        wanted = unlimited if number <= 0 else min(number, ceiling)
        if wanted is not None:
            self._set(option, ("limits", key), wanted)
        if number > ceiling:
            self.ignored.append(f"{option.place}: {option.word} {option.value}: {ceiling} is used")

    def _set(self, option: Option, path: KeyPath, value: object) -> None:
        if path[0] == "limits":
            self.limits[path[1]] = value
        elif len(path) == 1:
            self.values[path[0]] = value
        else:
            self.values[path[0]] = {path[1]: value}
        self.places[path] = option.place

    def _ignore(self, option: Option, why: str) -> None:
        self.ignored.append(f"{option.place}: {_shown(option.word)}: ignored, {why}")

    def _problem(self, option: Option, message: str, remedy: str) -> None:
        self.problems.append(
            Problem(key=_shown(option.word), message=message, remedy=remedy, origin=option.place)
        )


# Option, our key, what "no limit" becomes (None: our default), the most we take.
_LIMITS: Final[Mapping[str, tuple[str, int | None, int]]] = {
    "max_packet_size": ("packet_bytes_max", PACKET_BYTES_DEFAULT, PACKET_BYTES_CEILING),
    "max_inflight_messages": ("receive_maximum", _WINDOW_MAX, _WINDOW_MAX),
    "max_queued_messages": ("offline_count_max", _QUEUE_COUNT_MAX, _QUEUE_COUNT_MAX),
    "max_queued_bytes": ("offline_bytes_max", _QUEUE_BYTES_MAX, _QUEUE_BYTES_MAX),
    "max_keepalive": ("keep_alive_s_max", 65_535, 65_535),
    "max_topic_alias": ("topic_alias_max", 0, 65_535),
    "global_max_clients": ("connections_max", None, _CLIENTS_MAX),
    "global_max_connections": ("connections_max", None, _CLIENTS_MAX),
    "max_connections": ("connections_max", None, _CLIENTS_MAX),
    "persistent_client_expiration": ("session_expiry_s_max", _EXPIRY_MAX_S, _EXPIRY_MAX_S),
}


def read_mosquitto_conf(file: Path) -> MosquittoLayer:
    """Read a `mosquitto.conf` and the files it includes.

    Raises:
        ConfigError: A line cannot be followed; one line per problem, one remedy each.
    """
    reader = _Reader(file)
    reader.read(_options(file))
    return reader.finish()


def _options(file: Path, *, included: bool = False) -> Iterator[Option]:
    for number, raw in enumerate(_read(file).split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        word, _, value = line.partition(" ")
        option = Option(word, value.strip(), file, number)
        if word != "include_dir":
            yield option
        elif included:
            raise ConfigError(
                f"{option.place}: include_dir in an included file", hint="name it in the main file"
            )
        else:
            yield from _included(option)


def _included(option: Option) -> Iterator[Option]:
    try:
        files = sorted(Path(option.value).glob("*.conf"))
    except OSError as error:
        raise ConfigError(
            f"{option.place}: include_dir cannot be read", hint="check the path"
        ) from error
    if len(files) > INCLUDED_FILES_MAX:
        raise ConfigError(
            f"{option.place}: include_dir holds more than {INCLUDED_FILES_MAX} files",
            hint="is this really the directory that was meant?",
        )
    for file in files:
        yield from _options(file, included=True)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(CONF_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{file}: cannot be read ({reason})",
            hint="check the path and that this user may read it",
        ) from error
    if len(raw) > CONF_FILE_BYTES_MAX:
        raise ConfigError(
            f"{file}: longer than {CONF_FILE_BYTES_MAX} bytes",
            hint="is this really the configuration file?",
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8", hint="save the file as UTF-8") from error


def _shown(word: str) -> str:
    """Keep a word from breaking the line it is named in."""
    return word[:40] if word.isascii() and word.isprintable() else ascii(word[:40])


def _switch(option: Option) -> bool:
    if option.value not in {"true", "false"}:
        raise ConfigError("is neither true nor false", hint="write true or false")
    return option.value == "true"


def _filled(option: Option) -> str:
    if not option.value:
        raise ConfigError("names no file", hint="write a path, or remove the line")
    return option.value


def _place(host: str, port: str) -> str:
    """Tell a Unix socket from a host: its port is 0, and it is no address; as an absolute path."""
    if port != "0" or host == "localhost":
        return host
    try:
        ip_address(host)
    except ValueError:
        return str(Path(host).absolute())
    return host


def _port(text: str) -> str:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > 65_535:
        raise ConfigError("is no port", hint="write a number from 0 to 65535")
    return text


def _number(option: Option) -> int:
    text = option.value.removeprefix("-")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ConfigError("is no number", hint="write a whole number")
    return int(option.value)


def _seconds(option: Option) -> int:
    text, unit = option.value[:-1], option.value[-1:]
    if unit not in _SECONDS or not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ConfigError("is no time", hint="write a number and h, d, w, m or y: 14d")
    return int(text) * _SECONDS[unit]
