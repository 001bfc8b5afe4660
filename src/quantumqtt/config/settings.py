"""The settings of one node as frozen values.

Nothing here reads the world: files, environment and flags are gathered by `sources.load_settings`.
So a `Broker` inside a test or a program is not changed by the shell that started it.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from quantumqtt.config.limits import (
    DAY_S,
    GIB,
    KIB,
    MIB,
    PACKET_BYTES_DEFAULT,
    Count,
    Limits,
)
from quantumqtt.config.listen import Address, parse_admin, parse_flight
from quantumqtt.config.listeners import (
    ListenerSettings,
    TlsSettings,
    comma_separated,
    file_name,
    listen_address,
    lower_case,
    tls_relations,
)
from quantumqtt.config.marks import DefaultText, Flag
from quantumqtt.config.problems import Relation, refuse, refuse_relations
from quantumqtt.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "QUANTUMQTT_"
ENVIRONMENT_NESTING: Final = "__"
SHARDS_MAX: Final = 64
LISTENERS_MAX: Final = 64
# An entry holds a packet and what was gathered before it; a segment holds several entries.
ENTRY_MARGIN_BYTES: Final = 256 * KIB
ENTRIES_PER_SEGMENT: Final = 4

Durability = Literal["strict", "group", "memory"]
Profile = Literal["embedded", "production"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
DeniedPublish = Literal["disconnect", "answer"]
ReceiveMaximumExceeded = Literal["disconnect", "tolerate"]
ClientIdRule = Literal["any", "user_name"]


def cpus_usable() -> int:
    """Count the CPUs this process may run on, which a container may have narrowed."""
    return min(SHARDS_MAX, max(1, len(os.sched_getaffinity(0))))


def _admin_address(value: object) -> Address | None:
    if value is None or isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise refuse("is not HOST:PORT or off", 'write "127.0.0.1:8080" or "off"')
    try:
        return parse_admin(value)
    except ConfigError as error:
        raise refuse(str(error), error.hint or "") from error


def _flight_address(value: object) -> Address | None:
    if value is None or isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise refuse("is not HOST:PORT or off", 'write "127.0.0.1:8815" or "off"')
    try:
        return parse_flight(value)
    except ConfigError as error:
        raise refuse(str(error), error.hint or "") from error


def _directory(value: object) -> object:
    if isinstance(value, str) and (not value or "\0" in value):
        raise refuse("is not a directory name", "write a path, or remove the key")
    return value


def _tables(value: object) -> object:
    # An environment variable holds a JSON array of objects.
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise refuse("cannot be decoded", 'write [{"url": "tcp://127.0.0.1:1883"}]') from error


def _durability_default(known: dict[str, object]) -> Durability:
    # Whoever names a place on disk wants what is acknowledged to be there.
    return "memory" if known.get("data") is None else "strict"


class StorageSettings(BaseModel):
    """How the log is kept on disk; without meaning under `memory`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", validate_default=True
    )

    segment_bytes: Count = Field(
        default=80 * MIB,
        ge=MIB,
        le=GIB,
        description="Size of one file of the log; files are made ahead and used again.",
    )
    group_delay_ms: Count = Field(
        default=2,
        ge=1,
        le=5,
        description="Longest wait for more to write at once under `group`.",
    )
    checkpoint_interval_s: Count = Field(
        default=300,
        ge=1,
        le=DAY_S,
        description="A checkpoint of the state is written at least this often while the log "
        "grows; a start reads the latest one and the log behind it.",
    )
    checkpoint_log_bytes: Count = Field(
        default=256 * MIB,
        ge=MIB,
        le=64 * GIB,
        description="A checkpoint is written when the log has grown by this much.",
    )
    retention_age_s: Count = Field(
        default=7 * DAY_S,
        ge=1,
        le=36_500 * DAY_S,
        description="How long committed messages can be read from the message log.",
    )
    retention_bytes: Count = Field(
        default=16 * GIB,
        ge=MIB,
        le=1_048_576 * GIB,
        description="How much of the message log stays on disk; the oldest goes first. A file "
        "goes as a whole, so up to one file more than this stays.",
    )
    chunk_bytes: Count = Field(
        default=8 * MIB,
        ge=64 * KIB,
        le=32 * MIB,
        description="The message log is written in files of about this size, and these are joined "
        "to larger ones later.",
    )
    scrub_bytes_per_s: Count = Field(
        default=8 * MIB,
        ge=0,
        le=GIB,
        description="How fast files at rest are read again in the background to find damage; 0 "
        "never reads them.",
    )
    scrub_interval_s: Count = Field(
        default=DAY_S // 4,
        ge=1,
        le=7 * DAY_S,
        description="From the beginning of one such round to that of the next.",
    )
    disk_bytes_max: Count | None = Field(
        default=None,
        ge=16 * MIB,
        le=1024 * 1024 * GIB,
        description="What the directory may take, where that is less than the disk has. From 80 % "
        "on credits are halved and the log is cut; from 90 % on nothing new is taken.",
    )
    accept_unsafe: bool = Field(
        default=False,
        description="Whether profile `production` starts on storage that looks as if it kept "
        "nothing: memory, no barriers, a container's layer, a network. Written down in "
        "`storage.json` in the data directory.",
    )
    key_file: Annotated[
        Path | None, BeforeValidator(file_name), DefaultText("`keys` in the data directory")
    ] = Field(
        default=None,
        description="The node's keys: the log is encrypted with them and unreadable without. Made "
        "at the first start with mode 0600; keep a copy elsewhere.",
    )


class LogSettings(BaseModel):
    """What is logged, and how it looks."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    level: Annotated[LogLevel, BeforeValidator(lower_case), Flag("--log-level")] = Field(
        default="info",
        description="Lowest level that is logged. Read again on SIGHUP.",
    )
    format: Annotated[LogFormat, BeforeValidator(lower_case), Flag("--log-format")] = Field(
        default="text",
        description="`text` for people, `json` for machines: one object per line.",
    )


class Settings(BaseModel):
    """All that one node is told by its operator; frozen once it is read."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", validate_default=True
    )

    profile: Annotated[Profile, BeforeValidator(lower_case), Flag("--profile")] = Field(
        default="embedded",
        description="`embedded` lets a newcomer in on loopback; `production` refuses whatever is "
        "not encrypted.",
    )
    listen: Annotated[
        tuple[Annotated[Address, PlainValidator(listen_address)], ...],
        BeforeValidator(comma_separated),
        Flag("--listen"),
    ] = Field(
        default=(Address("tcp", "127.0.0.1", 1883),),
        max_length=LISTENERS_MAX,
        description="Where MQTT is served: a list of URLs (`tcp://`, `tls://`, `ws://…/mqtt`, "
        "`wss://…/mqtt`, `unix:///PATH`). Port 0 takes a free port.",
    )
    listener: Annotated[tuple[ListenerSettings, ...], BeforeValidator(_tables)] = Field(
        default=(),
        max_length=LISTENERS_MAX,
        description="Further listeners, each a table with settings of its own. With any, the "
        "default of `listen` does not apply.",
    )
    tls: TlsSettings = Field(
        default=TlsSettings(), description="Certificates of listeners that name none."
    )
    # Before `durability`, whose default depends on it.
    data: Annotated[
        Path | None,
        BeforeValidator(_directory),
        Flag("--data"),
        DefaultText("`data` in the working directory for `quantumqtt serve`, else none"),
    ] = Field(
        default=None,
        description="Directory of this node, made with mode 0700 and locked while it runs. "
        "Optional under `memory`.",
    )
    durability: Annotated[
        Durability,
        BeforeValidator(lower_case),
        Flag("--durability"),
        DefaultText("`strict` with a data directory, else `memory`"),
    ] = Field(
        default_factory=_durability_default,
        description="When a message is acknowledged. `strict`: when it is on disk. `group`: like "
        "`strict`, but up to `storage.group_delay_ms` is waited for more to write at once. "
        "`memory`: at once, and nothing is on disk.",
    )
    shards: Annotated[Count, Flag("--shards"), DefaultText("number of usable CPUs")] = Field(
        default_factory=cpus_usable,
        ge=1,
        le=SHARDS_MAX,
        description="Native threads that own connections.",
    )
    admin: Annotated[Address | None, PlainValidator(_admin_address), Flag("--admin")] = Field(
        default=Address("http", "127.0.0.1", 8080),
        description="Where metrics, health and the live page are served, or `off`.",
    )
    admin_hosts: Annotated[tuple[str, ...], BeforeValidator(comma_separated)] = Field(
        default=(),
        max_length=64,
        description="Further host names browsers may use for the admin address; IP addresses and "
        "`localhost` always work.",
    )
    flight: Annotated[Address | None, PlainValidator(_flight_address), Flag("--flight")] = Field(
        default=Address("grpc", "127.0.0.1", 8815),
        description="Where the message log is served over Arrow Flight, or `off`. "
        "`grpc+tls://HOST:PORT` encrypts with the certificate of `[tls]`. Without meaning under "
        "`memory`, which keeps no log.",
    )
    flight_readers: Annotated[Path | None, BeforeValidator(file_name), Flag("--flight-readers")] = (
        Field(
            default=None,
            description="Who may read the message log by a token, as `quantumqtt log token` writes "
            "them. The rules of `acl_file` say which topics. Without one, readers on this machine "
            "may do what anonymous clients may. Read again on SIGHUP.",
        )
    )
    allow_anonymous: Annotated[
        bool | None, Flag("--allow-anonymous"), DefaultText("only on loopback")
    ] = Field(
        default=None,
        description="Whether clients without credentials may connect; unset allows them on "
        "listeners bound to loopback.",
    )
    password_file: Annotated[Path | None, BeforeValidator(file_name), Flag("--password-file")] = (
        Field(
            default=None,
            description="Users and their hashed passwords, as `quantumqtt passwd` or "
            "`mosquitto_passwd` write them. Read again on SIGHUP.",
        )
    )
    acl_file: Annotated[Path | None, BeforeValidator(file_name), Flag("--acl-file")] = Field(
        default=None,
        description="Who may read and write which topics, in Mosquitto's form, or in TOML if the "
        "name ends in `.toml`. Without one everybody may everything. Read again on SIGHUP.",
    )
    allow_plaintext_passwords: Annotated[bool, Flag("--allow-plaintext-passwords")] = Field(
        default=False,
        description="Whether passwords may come in on listeners that are neither encrypted nor "
        "bound to loopback.",
    )
    denied_publish: Annotated[DeniedPublish, BeforeValidator(lower_case)] = Field(
        default="disconnect",
        description="What follows when an MQTT 5 client was told that it may not publish there "
        "(QoS 1 and 2): `disconnect`, or `answer` alone. Others can only be disconnected.",
    )
    client_id_rule: Annotated[ClientIdRule, BeforeValidator(lower_case)] = Field(
        default="any",
        description="Which client ids a user may take: `any`, or only their own `user_name`.",
    )
    receive_maximum_exceeded: Annotated[ReceiveMaximumExceeded, BeforeValidator(lower_case)] = (
        Field(
            default="disconnect",
            description="What follows when an MQTT 5 client sends more publishes at once than "
            "`limits.receive_maximum` lets it: `disconnect` with 0x93, or `tolerate` for devices "
            "that never look at it.",
        )
    )
    sys_interval_s: Count = Field(
        default=10,
        ge=0,
        le=86_400,
        description="Seconds between reports under `$SYS/broker/`; 0 says nothing there, nor who "
        "comes and goes.",
    )
    log: LogSettings = Field(default=LogSettings(), description="Logging.")
    storage: StorageSettings = Field(default=StorageSettings(), description="The log on disk.")
    limits: Limits = Field(default=Limits(), description="Bounds.")

    @property
    def listeners(self) -> tuple[ListenerSettings, ...]:
        """Every listener: the URLs of `listen` first, then the tables."""
        only_tables = bool(self.listener) and "listen" not in self.model_fields_set
        urls = () if only_tables else self.listen
        return (*(ListenerSettings.of(address) for address in urls), *self.listener)

    def tls_of(self, listener: ListenerSettings) -> TlsSettings | None:
        """The certificates of a listener; None when it is not encrypted."""
        if not listener.url.is_encrypted:
            return None
        return listener.own_tls() if listener.has_own_tls else self.tls

    def anonymous_allowed(self, listener: Address | ListenerSettings) -> bool:
        """Decide whether a listener admits clients without credentials."""
        if isinstance(listener, Address):
            listener = ListenerSettings.of(listener)
        if listener.allow_anonymous is not None:
            return listener.allow_anonymous
        if self.allow_anonymous is None:
            return listener.url.is_loopback and self.profile != "production"
        return self.allow_anonymous

    def passwords_allowed(self, listener: Address | ListenerSettings) -> bool:
        """Decide whether a password may come in by a listener."""
        if isinstance(listener, Address):
            listener = ListenerSettings.of(listener)
        allowed = listener.allow_plaintext_passwords
        if allowed is None:
            allowed = self.allow_plaintext_passwords
        return not listener.url.is_plaintext or listener.url.is_loopback or allowed

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        broken = [
            *self._durability_relations(),
            *self._profile_relations(),
            *self._listen_relations(),
            *self._listener_relations(),
            *self._password_relations(),
            *self._flight_relations(),
        ]
        if broken:
            raise refuse_relations(broken)
        return self

    def _durability_relations(self) -> list[Relation]:
        broken: list[Relation] = []
        if self.durability != "memory" and self.data is None:
            broken.append(
                Relation(
                    ("durability", "data"),
                    f"{self.durability} needs a data directory to keep the log in",
                    "name one with --data DIR or data = …, or choose memory",
                )
            )
        if self.durability != "strict" and self.profile == "production":
            broken.append(
                Relation(
                    ("durability", "profile"),
                    f"profile production does not run under {self.durability}: acknowledgements"
                    " must be on disk",
                    "choose strict with a data directory, or use profile embedded",
                )
            )
        if self.durability != "memory":
            broken += self._entry_relations()
        return broken

    def _entry_relations(self) -> list[Relation]:
        """A publish is one entry of the log, and an entry stands in one segment."""
        largest = self.limits.packet_bytes_max
        if largest > PACKET_BYTES_DEFAULT:
            return [
                Relation(
                    ("limits.packet_bytes_max", "durability"),
                    f"{largest} is above {PACKET_BYTES_DEFAULT}, the largest packet the log takes",
                    f"choose {PACKET_BYTES_DEFAULT} or less, or durability memory",
                )
            ]
        wanted = (largest + ENTRY_MARGIN_BYTES) * ENTRIES_PER_SEGMENT
        if wanted > self.storage.segment_bytes:
            return [
                Relation(
                    ("storage.segment_bytes", "limits.packet_bytes_max"),
                    f"{self.storage.segment_bytes} is too small for packets of {largest} bytes",
                    f"choose segment_bytes of at least {wanted}, or a smaller packet_bytes_max",
                )
            ]
        return []

    def _profile_relations(self) -> list[Relation]:
        if self.profile != "production":
            return []
        broken: list[Relation] = []
        if self.allow_anonymous:
            broken.append(
                Relation(
                    ("allow_anonymous", "profile"),
                    "profile production lets nobody in who did not prove who they are",
                    "remove the key, or use profile embedded",
                )
            )
        for place, listener in self._places():
            if listener.url.is_plaintext:
                broken.append(
                    Relation(
                        (place, "profile"),
                        f"{listener.url.url} is plaintext, which profile production refuses",
                        "write tls://, wss:// or unix://, or use profile embedded",
                    )
                )
            if listener.allow_anonymous:
                broken.append(
                    Relation(
                        (f"{place}.allow_anonymous", "profile"),
                        "profile production lets nobody in who did not prove who they are",
                        "remove the key, or use profile embedded",
                    )
                )
            tls = self.tls_of(listener)
            if tls is not None and tls.min_version != "1.3":
                broken.append(
                    Relation(
                        (f"{place}.tls_min_version", "tls.min_version", "profile"),
                        "profile production speaks TLS 1.3 only",
                        "remove the key, or use profile embedded",
                    )
                )
        return broken

    def _places(self) -> Iterator[tuple[str, ListenerSettings]]:
        """Every listener with the path of what a person wrote for it."""
        of_urls = len(self.listeners) - len(self.listener)
        for number, listener in enumerate(self.listeners):
            yield ("listen" if number < of_urls else f"listener.{number - of_urls}"), listener

    def _listener_relations(self) -> Iterator[Relation]:
        for place, listener in self._places():
            yield from listener.broken_relations(place)
            tls = self.tls_of(listener)
            if tls is not None:
                table = place if listener.has_own_tls else "tls"
                yield from tls_relations(tls, listener.url.url, table, place)
            largest = listener.packet_bytes_max
            if largest is not None and largest > self.limits.packet_bytes_max:
                yield Relation(
                    (f"{place}.packet_bytes_max", "limits.packet_bytes_max"),
                    f"{largest} is above limits.packet_bytes_max ({self.limits.packet_bytes_max})",
                    f"choose at most {self.limits.packet_bytes_max}, or raise the limit",
                )

    def _password_relations(self) -> list[Relation]:
        if self.password_file is None:
            return []
        return [
            Relation(
                (place, "password_file"),
                f"{listener.url.url} would carry passwords that everybody on the way can read",
                "bind it to loopback, or accept that with allow_plaintext_passwords = true",
            )
            for place, listener in self._places()
            if not self.passwords_allowed(listener)
        ]

    def _flight_relations(self) -> Iterator[Relation]:
        # The default must not stand in anybody's way; what was asked for must be possible.
        if self.flight is None or "flight" not in self.model_fields_set:
            return
        if self.durability == "memory":
            yield Relation(
                ("flight", "durability"),
                "there is no message log under memory",
                "name a data directory, or remove the key",
            )
        if self.flight.is_encrypted:
            if self.tls.certificate is None or self.tls.key is None:
                yield Relation(
                    ("flight", "tls.certificate"),
                    f"{self.flight.url} needs a certificate and its key",
                    "give certificate and key: --cert FILE --key FILE, or both keys in [tls]",
                )
        elif not self.flight.is_loopback:
            yield Relation(
                ("flight",),
                f"{self.flight.url} would send rows and tokens in the clear",
                f"write {self.flight.url.replace('grpc', 'grpc+tls', 1)}, or bind it to loopback",
            )

    def _listen_relations(self) -> list[Relation]:
        # Not `min_length`: an entry that is refused would be reported as missing, too.
        if not self.listeners:
            return [Relation(("listen",), "needs at least one entry", "add one, or remove the key")]
        addresses = [listener.url for listener in self.listeners]
        fixed = [one for one in addresses if one.port != 0 or one.scheme == "unix"]
        twice = sorted({address.url for address in fixed if fixed.count(address) > 1})
        return [
            Relation(("listen",), f"{url} is listed twice", "remove one of them") for url in twice
        ]
