"""What `quantumqtt bench` was asked for, made whole: defaults that depend on the scenario.

A plan is data without I/O. Its words are those of the command line; `native()` says the same in the
words of the load generator.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from quantumqtt._core import LoadSpec
from quantumqtt.errors import ConfigError

DURATION_S_DEFAULT: Final = 10.0
LATENCY_RATE_DEFAULT: Final = 5000.0
WINDOW_QOS0_DEFAULT: Final = 1000
WINDOW_DEFAULT: Final = 100
# Beyond what was asked for: connecting a million clients takes its time, hanging for ever does not.
DEADLINE_EXTRA_S: Final = 3600.0

VersionName = Literal["3.1", "3.1.1", "5.0"]
_VERSIONS: Final[dict[str, VersionName]] = {
    "3": "3.1",
    "3.1": "3.1",
    "4": "3.1.1",
    "3.1.1": "3.1.1",
    "5": "5.0",
    "5.0": "5.0",
}


class Scenario(StrEnum):
    """The shape of the traffic."""

    CONN = "conn"
    PUB = "pub"
    SUB = "sub"
    PAIRS = "pairs"
    FAN_IN = "fan-in"
    FAN_OUT = "fan-out"
    IDLE = "idle"
    LATENCY = "latency"


_CONNECTS_ONLY: Final = (Scenario.CONN, Scenario.IDLE)
_FANS: Final = (Scenario.FAN_IN, Scenario.FAN_OUT)
_COUNT_DEFAULTS: Final = {
    Scenario.CONN: 1000,
    Scenario.IDLE: 1000,
    Scenario.FAN_IN: 8,
    Scenario.FAN_OUT: 1,
}
_COUNT_DEFAULT: Final = 10
_SUBSCRIBERS_DEFAULTS: Final = {Scenario.FAN_IN: 1, Scenario.FAN_OUT: 50}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The command line as it was written; None is "not said"."""

    scenario: Scenario
    host: str = "127.0.0.1"
    port: int = 1883
    version: str = "5"
    count: int | None = None
    subscribers: int | None = None
    start_number: int = 0
    interval_ms: int = 0
    message_interval_ms: float | None = None
    rate: float | None = None
    topic: str | None = None
    topics: int = 1
    payload_bytes: int = 64
    qos: int = 0
    window: int | None = None
    limit: int = 0
    duration_s: float | None = None
    retain: str = "false"
    clean: str = "true"
    expiry_s: int | None = None
    keep_alive_s: int = 300
    user_name: str | None = None
    password: str | None = None
    prefix: str = "bench"
    source_addresses: str | None = None
    single_writes: bool = False
    threads: int = 1
    patience_s: float = 5.0
    broker_pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A wish with everything settled."""

    wish: Wish
    version: VersionName
    publishers: int
    subscribers: int
    messages_each: int
    duration_s: float
    rate: float | None
    window: int
    retain: bool
    clean: bool
    expiry_s: int
    source_addresses: tuple[str, ...]

    @property
    def clients(self) -> int:
        """How many connections the run opens."""
        return self.publishers + self.subscribers

    def native(self) -> LoadSpec:
        """Say the same to the load generator."""
        wish = self.wish
        try:
            return LoadSpec(
                host=wish.host,
                port=wish.port,
                version=self.version,
                scenario=wish.scenario.value,
                publishers=self.publishers,
                subscribers=self.subscribers,
                topics=wish.topics,
                start_number=wish.start_number,
                topic=wish.topic,
                qos=wish.qos,
                window=self.window,
                payload_bytes=wish.payload_bytes,
                messages=self.messages_each,
                duration_s=self.duration_s,
                rate=self.rate,
                connect_interval_ms=wish.interval_ms,
                one_message_per_write=wish.single_writes,
                retain=self.retain,
                clean=self.clean,
                expiry_s=self.expiry_s,
                keep_alive_s=wish.keep_alive_s,
                user_name=wish.user_name,
                password=wish.password,
                client_id_prefix=wish.prefix,
                source_addresses=self.source_addresses,
                broker_pid=wish.broker_pid,
                threads=wish.threads,
                patience_s=wish.patience_s,
                deadline_s=self.duration_s + DEADLINE_EXTRA_S,
            )
        except (ValueError, OverflowError) as error:
            raise ConfigError(str(error), "see `quantumqtt bench --help`") from error


def plan_run(wish: Wish) -> RunPlan:
    """Settle what was not said and refuse what contradicts itself.

    Raises:
        ConfigError: The wish cannot be fulfilled; names the option.
    """
    publishers, subscribers = _client_counts(wish)
    messages_each = -(-wish.limit // max(publishers or subscribers, 1))
    return RunPlan(
        wish=wish,
        version=_version(wish.version),
        publishers=publishers,
        subscribers=subscribers,
        messages_each=messages_each,
        duration_s=_duration_s(wish),
        rate=_rate(wish, publishers),
        window=_window(wish),
        retain=_truth("-r/--retain", wish.retain),
        clean=_truth("-C/--clean", wish.clean),
        expiry_s=3600 if wish.expiry_s is None else wish.expiry_s,
        source_addresses=_addresses(wish.source_addresses),
    )


def _client_counts(wish: Wish) -> tuple[int, int]:
    scenario = wish.scenario
    if wish.subscribers is not None and scenario not in _FANS:
        raise ConfigError(
            f"--subscribers has no meaning for {scenario}",
            "say how many clients with -c; only fan-in and fan-out have two counts",
        )
    count = _COUNT_DEFAULTS.get(scenario, _COUNT_DEFAULT) if wish.count is None else wish.count
    match scenario:
        case Scenario.SUB:
            return 0, count
        case Scenario.PAIRS | Scenario.LATENCY:
            return count, count
        case Scenario.FAN_IN | Scenario.FAN_OUT:
            default = _SUBSCRIBERS_DEFAULTS[scenario]
            return count, default if wish.subscribers is None else wish.subscribers
        case Scenario.CONN | Scenario.IDLE | Scenario.PUB:
            return count, 0


def _duration_s(wish: Wish) -> float:
    if wish.duration_s is not None:
        return wish.duration_s
    bounded = wish.limit > 0 and wish.scenario is not Scenario.IDLE
    # Without a bound, `conn` connects every client once and is done.
    return 0.0 if bounded or wish.scenario is Scenario.CONN else DURATION_S_DEFAULT


def _rate(wish: Wish, publishers: int) -> float | None:
    if wish.rate is not None and wish.message_interval_ms is not None:
        raise ConfigError(
            "--rate and -I/--interval_of_msg both say how often messages leave",
            "keep one: --rate counts all publishers together, -I is the pause of each",
        )
    asked = wish.rate is not None or wish.message_interval_ms is not None
    if asked and (wish.scenario in _CONNECTS_ONLY or wish.scenario is Scenario.SUB):
        raise ConfigError(
            f"nothing is published by {wish.scenario}, so it has no rate",
            "leave out --rate and -I; -i sets the pace of connecting",
        )
    if wish.rate is not None:
        return wish.rate
    if wish.message_interval_ms is not None:
        if wish.message_interval_ms <= 0:
            return None
        return publishers * 1000 / wish.message_interval_ms
    return LATENCY_RATE_DEFAULT if wish.scenario is Scenario.LATENCY else None


def _window(wish: Wish) -> int:
    if wish.window is not None:
        return wish.window
    if wish.scenario in _CONNECTS_ONLY:
        return 0
    return WINDOW_DEFAULT if wish.qos > 0 else WINDOW_QOS0_DEFAULT


def _version(name: str) -> VersionName:
    try:
        return _VERSIONS[name]
    except KeyError:
        raise ConfigError(
            f"-V/--version {name} is no version of MQTT", "say 3 (3.1), 4 (3.1.1) or 5"
        ) from None


def _truth(option: str, word: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    try:
        return words[word.lower()]
    except KeyError:
        raise ConfigError(f"{option} {word} is neither true nor false", "say true or false") from (
            None
        )


def _addresses(listed: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (listed or "").split(",") if part.strip())


_OPTIONS: Final = {
    "publishers": "-c/--count",
    "subscribers": "--subscribers",
    "threads": "--threads",
    "duration": "--duration",
    "deadline": "--duration",
    "payload_bytes": "-s/--size",
    "topics": "--topics",
    "topic": "-t/--topic",
    "rate": "--rate",
}
_REMEDIES: Final = {
    "publishers": "take fewer clients, or raise the hard limit of open files (ulimit -Hn)",
    "payload_bytes": "take a larger -s: every message carries who sent it, which one, and when",
    "topic": "put %i (the number of the publisher) into the topic as a level of its own",
    "rate": "give messages per second, such as --rate 5000",
}


def in_words_of_options(error: ConfigError) -> ConfigError:
    """Rename the generator's field at the start of a message to the option that sets it."""
    field, colon, rest = str(error).partition(": ")
    if not colon or field not in _OPTIONS:
        return error
    hint = error.hint or _REMEDIES.get(field) or "see `quantumqtt bench --help`"
    return ConfigError(f"{_OPTIONS[field]}: {rest}", hint)
