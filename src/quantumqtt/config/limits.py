"""Every bound of a node: name, meaning, default, range, and how the bounds depend on each other.

A bound is never off. Where a person may want "no limit", the range ends high enough to mean it;
where 0 would be a trap (a divisor, an empty buffer, a session that ends before it starts), 0 is
refused. The relations stand in `Limits.broken_relations`, beside the numbers they relate.
"""

from typing import Annotated, ClassVar, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from quantumqtt.config.problems import Relation, refuse, refuse_relations

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# MQTT's own ceiling: a remaining length of four bytes, plus the fixed header that carries it.
PACKET_BYTES_CEILING: Final = 268_435_455 + 5
DAY_S: Final = 86_400

# A PUBLISH with a 16 MiB payload must fit with the longest topic and as much again of properties.
PACKET_BYTES_DEFAULT: Final = 16 * MIB + 128 * KIB


def _not_a_truth_value(value: object) -> object:
    # `true` is 1 to Python; in a configuration it is a slip.
    if isinstance(value, bool):
        raise refuse("is not a whole number", "write a number without quotes")
    return value


Count = Annotated[int, BeforeValidator(_not_a_truth_value)]


class Limits(BaseModel):
    """Bounds of one node; what is hit is counted under the name given here."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", validate_default=True
    )

    packet_bytes_max: Count = Field(
        default=PACKET_BYTES_DEFAULT,
        ge=KIB,
        le=PACKET_BYTES_CEILING,
        description="Largest packet accepted, advertised to v5 clients as Maximum Packet Size.",
    )
    connect_timeout_ms: Count = Field(
        default=10_000,
        ge=100,
        le=60_000,
        description="Time a new connection has for its handshakes (PROXY, TLS, WebSocket) and its "
        "whole CONNECT together.",
    )
    keep_alive_s_max: Count = Field(
        default=65_535,
        ge=5,
        le=65_535,
        description="Longest keep alive granted; a v5 client that asks for more, or for none, "
        "is told this one when it is below 65535.",
    )
    receive_maximum: Count = Field(
        default=1_024,
        ge=1,
        le=1_024,
        description="Unacknowledged QoS 1 and 2 messages per connection and direction.",
    )
    session_expiry_s_max: Count = Field(
        default=7 * DAY_S,
        ge=1,
        le=7 * DAY_S,
        description="Longest life of a session without its client; longer wishes are cut to it.",
    )
    topic_alias_max: Count = Field(
        default=32,
        ge=0,
        le=65_535,
        description="Topic aliases a v5 client may use; 0 offers none. Their topics hold 2 MiB.",
    )
    will_grace_s: Count = Field(
        default=60,
        ge=0,
        le=DAY_S,
        description="How long the will of a client that the broker itself cut off (a drain, a "
        "stop, a crash) waits at least for the client's return; 0 publishes it at once.",
    )
    subscriptions_max: Count = Field(
        default=65_536,
        ge=1,
        le=10_000_000,
        description="Subscriptions of one session; more are refused with 0x97.",
    )
    offline_bytes_max: Count = Field(
        default=GIB,
        ge=KIB,
        le=1_024 * GIB,
        description="Bytes that wait for one absent session.",
    )
    offline_count_max: Count = Field(
        default=1_000_000,
        ge=1,
        le=1_000_000_000,
        description="Messages that wait for one absent session.",
    )
    out_buffer_bytes_soft: Count = Field(
        default=MIB,
        ge=4 * KIB,
        le=GIB,
        description="Unsent bytes of one connection above which its publishers are slowed.",
    )
    out_buffer_bytes_max: Count = Field(
        default=32 * MIB,
        ge=4 * KIB,
        le=GIB,
        description="Unsent bytes of one connection above which QoS 0 is dropped.",
    )
    connections_max: Count | None = Field(
        default=None,
        ge=1,
        le=4_194_304,
        description="Connections at a time; unset takes what the descriptor limit allows.",
    )
    connections_per_address_max: Count | None = Field(
        default=None,
        ge=1,
        le=4_194_304,
        description="Connections from one address (an IPv6 network of 64 bits) at a time; unset "
        "leaves it to `connections_max`. Behind a PROXY header the client's address counts.",
    )
    event_queue_count_max: Count = Field(
        default=65_536,
        ge=64,
        le=1_048_576,
        description="Events and admission requests that wait for Python.",
    )
    admission_timeout_ms: Count = Field(
        default=5_000,
        ge=10,
        le=60_000,
        description="Time the authenticate hook has for a batch; later answers are refusals.",
    )
    log_pending_bytes_max: Count = Field(
        default=64 * MIB,
        ge=MIB,
        le=16 * GIB,
        description="Bytes of messages that wait to be on disk; above, publishers are not read.",
    )
    drain_timeout_ms: Count = Field(
        default=10_000,
        ge=0,
        le=600_000,
        description="Time clients get to leave when the broker drains; 0 closes them at once.",
    )

    def broken_relations(self) -> list[Relation]:
        """Name every pair of bounds that contradict each other."""
        broken: list[Relation] = []
        if self.out_buffer_bytes_soft > self.out_buffer_bytes_max:
            broken.append(
                Relation(
                    ("out_buffer_bytes_soft", "out_buffer_bytes_max"),
                    f"{self.out_buffer_bytes_soft} is above out_buffer_bytes_max"
                    f" ({self.out_buffer_bytes_max})",
                    f"choose out_buffer_bytes_soft of at most {self.out_buffer_bytes_max}",
                )
            )
        if self.packet_bytes_max > self.out_buffer_bytes_max:
            # A packet we accept but can never deliver would be a promise broken later.
            broken.append(
                Relation(
                    ("packet_bytes_max", "out_buffer_bytes_max"),
                    f"{self.packet_bytes_max} does not fit out_buffer_bytes_max"
                    f" ({self.out_buffer_bytes_max})",
                    f"raise out_buffer_bytes_max to {self.packet_bytes_max} or lower"
                    " packet_bytes_max",
                )
            )
        if self.packet_bytes_max > self.offline_bytes_max:
            broken.append(
                Relation(
                    ("packet_bytes_max", "offline_bytes_max"),
                    f"{self.packet_bytes_max} does not fit offline_bytes_max"
                    f" ({self.offline_bytes_max})",
                    f"raise offline_bytes_max to {self.packet_bytes_max} or lower packet_bytes_max",
                )
            )
        return broken

    @model_validator(mode="after")
    def _relations_hold(self) -> Self:
        if broken := self.broken_relations():
            raise refuse_relations(broken)
        return self
