"""The settings of one node as frozen values.

Nothing here reads the world: files, environment and flags are gathered by `sources.load_settings`.
So a `Broker` inside a test or a program is not changed by the shell that started it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from quantumqtt.config.limits import Count, Limits
from quantumqtt.config.listen import Address, parse_admin, parse_listen
from quantumqtt.config.problems import Relation, refuse, refuse_relations
from quantumqtt.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "QUANTUMQTT_"
ENVIRONMENT_NESTING: Final = "__"
SHARDS_MAX: Final = 64
LISTENERS_MAX: Final = 64

Durability = Literal["strict", "group", "memory"]
Profile = Literal["embedded", "production"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
DeniedPublish = Literal["disconnect", "answer"]
ReceiveMaximumExceeded = Literal["disconnect", "tolerate"]
ClientIdRule = Literal["any", "user_name"]


@dataclass(frozen=True, slots=True)
class Flag:
    """The command-line flag that sets a key; stands in the field's annotation."""

    name: str


@dataclass(frozen=True, slots=True)
class DefaultText:
    """How the reference shows a default that is worked out when the node starts."""

    text: str


def cpus_usable() -> int:
    """Count the CPUs this process may run on, which a container may have narrowed."""
    return min(SHARDS_MAX, max(1, len(os.sched_getaffinity(0))))


def _listen_address(value: object) -> Address:
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise refuse("is not a listen URL", 'write "tcp://127.0.0.1:1883"')
    try:
        return parse_listen(value)
    except ConfigError as error:
        raise refuse(str(error), error.hint or "") from error


def _admin_address(value: object) -> Address | None:
    if value is None or isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise refuse("is not HOST:PORT or off", 'write "127.0.0.1:8080" or "off"')
    try:
        return parse_admin(value)
    except ConfigError as error:
        raise refuse(str(error), error.hint or "") from error


def _comma_separated(value: object) -> object:
    # One string is one entry, or several with commas: an environment variable has no lists.
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _file(value: object) -> object:
    if isinstance(value, str) and (not value or "\0" in value):
        raise refuse("is not a file name", "write a path, or remove the key")
    return value


def _directory(value: object) -> object:
    if isinstance(value, str) and (not value or "\0" in value):
        raise refuse("is not a directory name", "write a path, or remove the key")
    return value


def _lower_case(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class LogSettings(BaseModel):
    """What is logged, and how it looks."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    level: Annotated[LogLevel, BeforeValidator(_lower_case), Flag("--log-level")] = Field(
        default="info",
        description="Lowest level that is logged. Read again on SIGHUP.",
    )
    format: Annotated[LogFormat, BeforeValidator(_lower_case), Flag("--log-format")] = Field(
        default="text",
        description="`text` for people, `json` for machines: one object per line.",
    )


class Settings(BaseModel):
    """All that one node is told by its operator; frozen once it is read."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", validate_default=True
    )

    profile: Annotated[Profile, BeforeValidator(_lower_case), Flag("--profile")] = Field(
        default="embedded",
        description="`embedded` lets a newcomer in on loopback; `production` refuses whatever is "
        "not encrypted.",
    )
    listen: Annotated[
        tuple[Annotated[Address, PlainValidator(_listen_address)], ...],
        BeforeValidator(_comma_separated),
        Flag("--listen"),
    ] = Field(
        default=(Address("tcp", "127.0.0.1", 1883),),
        max_length=LISTENERS_MAX,
        description="Where MQTT is served: a list of URLs. Port 0 takes a free port.",
    )
    durability: Annotated[Durability, BeforeValidator(_lower_case), Flag("--durability")] = Field(
        default="memory",
        description="When a message is acknowledged. `memory`: at once, nothing is on disk. "
        "`strict` and `group` need the log, which this release does not have yet.",
    )
    shards: Annotated[Count, Flag("--shards"), DefaultText("number of usable CPUs")] = Field(
        default_factory=cpus_usable,
        ge=1,
        le=SHARDS_MAX,
        description="Native threads that own connections.",
    )
    data: Annotated[Path | None, BeforeValidator(_directory), Flag("--data")] = Field(
        default=None,
        description="Directory of this node, made with mode 0700 and locked while it runs. "
        "Optional under `memory`.",
    )
    admin: Annotated[Address | None, PlainValidator(_admin_address), Flag("--admin")] = Field(
        default=Address("http", "127.0.0.1", 8080),
        description="Where metrics, health and the live page are served, or `off`.",
    )
    admin_hosts: Annotated[tuple[str, ...], BeforeValidator(_comma_separated)] = Field(
        default=(),
        max_length=64,
        description="Further host names browsers may use for the admin address; IP addresses and "
        "`localhost` always work.",
    )
    allow_anonymous: Annotated[
        bool | None, Flag("--allow-anonymous"), DefaultText("only on loopback")
    ] = Field(
        default=None,
        description="Whether clients without credentials may connect; unset allows them on "
        "listeners bound to loopback.",
    )
    password_file: Annotated[Path | None, BeforeValidator(_file), Flag("--password-file")] = Field(
        default=None,
        description="Users and their hashed passwords, as `quantumqtt passwd` or `mosquitto_passwd`"
        " write them. Read again on SIGHUP.",
    )
    acl_file: Annotated[Path | None, BeforeValidator(_file), Flag("--acl-file")] = Field(
        default=None,
        description="Who may read and write which topics, in Mosquitto's form, or in TOML if the "
        "name ends in `.toml`. Without one everybody may everything. Read again on SIGHUP.",
    )
    allow_plaintext_passwords: Annotated[bool, Flag("--allow-plaintext-passwords")] = Field(
        default=False,
        description="Whether passwords may come in on listeners that are neither encrypted nor "
        "bound to loopback.",
    )
    denied_publish: Annotated[DeniedPublish, BeforeValidator(_lower_case)] = Field(
        default="disconnect",
        description="What follows when an MQTT 5 client was told that it may not publish there "
        "(QoS 1 and 2): `disconnect`, or `answer` alone. Others can only be disconnected.",
    )
    client_id_rule: Annotated[ClientIdRule, BeforeValidator(_lower_case)] = Field(
        default="any",
        description="Which client ids a user may take: `any`, or only their own `user_name`.",
    )
    receive_maximum_exceeded: Annotated[ReceiveMaximumExceeded, BeforeValidator(_lower_case)] = (
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
    limits: Limits = Field(default=Limits(), description="Bounds.")

    def anonymous_allowed(self, address: Address) -> bool:
        """Decide whether a listener admits clients without credentials."""
        if self.allow_anonymous is None:
            return address.is_loopback and self.profile != "production"
        return self.allow_anonymous

    def passwords_allowed(self, address: Address) -> bool:
        """Decide whether a password may come in by a listener."""
        return not address.is_plaintext or address.is_loopback or self.allow_plaintext_passwords

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        broken = [
            *self._durability_relations(),
            *self._profile_relations(),
            *self._listen_relations(),
            *self._password_relations(),
        ]
        if broken:
            raise refuse_relations(broken)
        return self

    def _durability_relations(self) -> list[Relation]:
        if self.durability == "memory":
            return []
        return [
            Relation(
                ("durability",),
                f"{self.durability} needs the log, which does not exist in this release",
                "choose memory: it is what there is; acknowledgements are then not on disk",
            )
        ]

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
        return broken + [
            Relation(
                ("listen", "profile"),
                f"{address.url} is plaintext, which profile production refuses",
                "listeners with TLS are not in this release yet; use profile embedded",
            )
            for address in self.listen
            if address.is_plaintext
        ]

    def _password_relations(self) -> list[Relation]:
        if self.password_file is None:
            return []
        return [
            Relation(
                ("listen", "password_file"),
                f"{address.url} would carry passwords that everybody on the way can read",
                "bind it to loopback, or accept that with allow_plaintext_passwords = true",
            )
            for address in self.listen
            if not self.passwords_allowed(address)
        ]

    def _listen_relations(self) -> list[Relation]:
        # Not `min_length`: an entry that is refused would be reported as missing, too.
        if not self.listen:
            return [Relation(("listen",), "needs at least one entry", "add one, or remove the key")]
        fixed = [address for address in self.listen if address.port != 0]
        twice = sorted({address.url for address in fixed if fixed.count(address) > 1})
        return [
            Relation(("listen",), f"{url} is listed twice", "remove one of them") for url in twice
        ]
