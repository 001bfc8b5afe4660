"""The options of the source `quantumqtt`: their names, defaults, meaning, and every complaint.

Spark hands options over as texts with names in any case. A wrong one is refused before anything is
read, and so is an unknown one: `startingOffset` without its `s` would otherwise read everything.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from quantumqtt.errors import ConfigError
from quantumqtt.logreader.place import LogPlace, read_roots
from quantumqtt.logreader.retries import Retries
from quantumqtt.logwire.tickets import OFFSET_MAX, TOPICS_MAX

ROWS_PER_TASK: Final = 500_000

# A position is a word, an offset, or a moment in microseconds since 1970.
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class Moment:
    """The first record not older than this."""

    ts_us: int


Position = str | int | Moment


@dataclass(frozen=True, slots=True)
class Positions:
    """Where every partition starts or ends: one position for all, and exceptions by number."""

    default: Position
    each: tuple[tuple[int, Position], ...] = ()

    def of(self, partition: int) -> Position:
        """Choose a partition's position."""
        return dict(self.each).get(partition, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What was asked for, checked. Picklable; the token travels to executors, which need it."""

    place: LogPlace
    tenant: str = "default"
    topics: tuple[str, ...] = ()
    starting: Positions
    ending: Positions = Positions(LATEST)
    fail_on_data_loss: bool = True
    records_per_trigger: int | None = None
    bytes_per_trigger: int | None = None
    rows_per_task: int = ROWS_PER_TASK
    push_filters: bool = False
    retries: Retries = field(default_factory=Retries)


# Name as documented: what it means. The order is that of the documentation.
OPTIONS: Final[Mapping[str, str]] = {
    "endpoint": "address of the log service, grpc://host:port or grpc+tls://host:port; needed",
    "tenant": "whose log to read (default: default)",
    "token": "bearer token, where the service asks for one",
    "tlsRoots": "PEM file with the certificates of the service's authority",
    "topicFilter": "MQTT filter, or a JSON list of them; rows that match none are not sent",
    "startingOffsets": "where a new query starts: earliest, latest, a moment in ISO 8601 with"
    " time zone, or a JSON object of these and of offsets by partition; partitions that it does"
    " not name start at earliest (default: earliest)",
    "endingOffsets": "where a batch ends, in the same words (default: latest)",
    "failOnDataLoss": "false goes on at the earliest row left when retention was quicker, and logs"
    " a warning with the range; true stops the query with OffsetExpired (default: true)",
    "maxRecordsPerTrigger": "most rows of one micro-batch, over all partitions",
    "maxBytesPerTrigger": "about how many bytes of the log one micro-batch may read",
    "rowsPerTask": f"most rows of one task; longer ranges are split (default: {ROWS_PER_TASK})",
    "pushFilters": "true lets a batch leave unread what the query's filters on partition, offset,"
    " ts and topic exclude; only for a DataFrame that is used in one query (default: false)",
    "retrySeconds": "how long to wait for a service that stays away (default: 30)",
}
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}
_TRUTH: Final = {"true": True, "false": False}


def parse_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check options as Spark hands them over.

    Raises:
        ConfigError: One is missing, unknown or wrong; the message names it.
    """
    options = _known(given)
    if "endpoint" not in options:
        raise ConfigError(
            "option endpoint is missing", hint='add .option("endpoint", "grpc://127.0.0.1:8815")'
        )
    if streaming and "pushFilters" in options:
        raise ConfigError(
            "option pushFilters is for batches; Spark asks no stream",
            hint="say in topicFilter what a stream shall read",
        )
    if streaming and "endingOffsets" in options:
        raise ConfigError(
            "option endingOffsets is for batches; a stream goes on",
            hint="leave it out, and use trigger(availableNow=True) to stop at what is there now",
        )
    return SourceOptions(
        place=LogPlace(
            endpoint=options["endpoint"],
            token=options.get("token"),
            tls_roots=read_roots(options.get("tlsRoots")),
        ),
        tenant=options.get("tenant", "default"),
        topics=parse_topics(options.get("topicFilter")),
        starting=parse_positions("startingOffsets", options.get("startingOffsets", EARLIEST)),
        ending=parse_positions("endingOffsets", options.get("endingOffsets", LATEST)),
        fail_on_data_loss=_truth(options, "failOnDataLoss", default=True),
        records_per_trigger=_number(options, "maxRecordsPerTrigger"),
        bytes_per_trigger=_number(options, "maxBytesPerTrigger"),
        rows_per_task=_number(options, "rowsPerTask") or ROWS_PER_TASK,
        push_filters=_truth(options, "pushFilters", default=False),
        retries=Retries(give_up_s=float(_number(options, "retrySeconds", at_least=0) or 0))
        if "retrySeconds" in options
        else Retries(),
    )


def parse_topics(text: str | None) -> tuple[str, ...]:
    """Read `topicFilter`: one filter as it is, or a JSON list. "#" alone means every topic."""
    if text is None:
        return ()
    filters: list[object] = [text]
    if text.startswith("["):
        try:
            filters = json.loads(text)
        except ValueError as error:
            raise _wrong("topicFilter", text, 'write ["plant/#", "office/+/door"]') from error
    topics = tuple(each for each in filters if isinstance(each, str) and is_filter(each))
    if not filters or len(topics) != len(filters) or len(topics) > TOPICS_MAX:
        raise _wrong(
            "topicFilter",
            text,
            f"write an MQTT filter, or a JSON list of at most {TOPICS_MAX}; + and # stand for"
            " whole levels, # only at the end",
        )
    return topics


def is_filter(text: str) -> bool:
    """Tell a filter that MQTT allows [MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.7.3-1].

    The native check is not asked: executors and drivers need no native module.
    """
    levels = text.split("/")
    return (
        0 < len(text.encode(errors="replace")) <= 65_535
        and "\0" not in text
        and all(level == "#" or "#" not in level for level in levels)
        and all(level == "+" or "+" not in level for level in levels)
        and "#" not in levels[:-1]
        and not text.startswith("$share/")
    )


def parse_positions(name: str, text: str) -> Positions:
    """Read `startingOffsets` or `endingOffsets`."""
    if not text.startswith("{"):
        return Positions(_position(name, text))
    try:
        pairs = json.loads(text, object_pairs_hook=list)
        each = tuple(sorted((_partition(name, n), _position(name, at)) for n, at in pairs))
    except (TypeError, ValueError) as error:
        raise _wrong(name, text, 'write {"0": 1500, "1": "earliest"}') from error
    if len({number for number, _ in each}) < len(each):
        raise _wrong(name, text, "name each partition once")
    return Positions(EARLIEST if name == "startingOffsets" else LATEST, each)


def _partition(name: str, text: str) -> int:
    if not text.isdecimal():
        raise _wrong(name, text, "partitions are numbers in quotes, as JSON wants its keys")
    return int(text)


def _position(name: str, at: object) -> Position:
    if at in (EARLIEST, LATEST):
        return str(at)
    if type(at) is int and 0 <= at <= OFFSET_MAX:
        return at
    if isinstance(at, str):
        try:
            moment = datetime.fromisoformat(at)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            return Moment(int(moment.timestamp() * 1_000_000))
    raise _wrong(
        name,
        at,
        "write earliest, latest, an offset by partition, or a moment with its time zone such as"
        " 2026-11-19T08:00:00Z",
    )


def _known(given: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in given.items():
        name = _BY_LOWER.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), _BY_LOWER, n=1)
            raise ConfigError(
                f"option {key} is unknown",
                hint=f"did you mean {_BY_LOWER[near[0]]}?"
                if near
                else f"there are {', '.join(OPTIONS)}",
            )
        options[name] = value
    return options


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in _TRUTH:
        raise _wrong(name, text, "write true or false")
    return _TRUTH[text.lower()]


def _number(options: Mapping[str, str], name: str, *, at_least: int = 1) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or not at_least <= int(text) <= OFFSET_MAX:
        raise _wrong(name, text, f"write a whole number of at least {at_least}")
    return int(text)


def _wrong(name: str, value: object, remedy: str) -> ConfigError:
    return ConfigError(f"option {name} is {value!r}", hint=remedy)
