"""The bounds of the log service, and how they depend on each other."""

from dataclasses import dataclass

from quantumqtt.errors import ConfigError

# One block of the log: a stream that may hold less could not hand out a single one.
BLOCK_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightLimits:
    """What the service holds and answers at a time; what is hit is refused, retryably.

    Attributes:
        streams_max: Reads under way.
        waits_max: Waits for new rows under way; each keeps a thread of gRPC's.
        wait_ms_max: Longest wait; longer wishes are cut to it.
        held_bytes_max: What all reads together may hold in memory.
    """

    streams_max: int = 32
    waits_max: int = 64
    wait_ms_max: int = 30_000
    held_bytes_max: int = 128 * 1024 * 1024

    def __post_init__(self) -> None:
        """Refuse bounds that contradict each other."""
        for name in ("streams_max", "waits_max", "wait_ms_max"):
            if getattr(self, name) < 1:
                raise ConfigError(f"flight limit {name} is below 1")
        if self.stream_bytes < BLOCK_BYTES:
            raise ConfigError(
                f"flight limit held_bytes_max gives each of {self.streams_max} streams"
                f" {self.stream_bytes} bytes, less than one block of {BLOCK_BYTES}",
                hint=f"raise held_bytes_max to {self.streams_max * BLOCK_BYTES} or lower"
                " streams_max",
            )

    @property
    def stream_bytes(self) -> int:
        """The share of one stream."""
        return self.held_bytes_max // self.streams_max
