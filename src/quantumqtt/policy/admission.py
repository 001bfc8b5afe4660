"""Who may come in: the question a broker asks, and the shape of an answer.

The native half answers by itself whenever it can. What remains comes here in batches; a hook of
the embedding program (an `Authenticate`) returns one reason code per request, in order.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from quantumqtt.mqtt.reason_code import CONNACK_REASON_CODES, ReasonCode


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """One CONNECT that waits for a verdict.

    The password is left out of `repr`, so that a log line of a request cannot leak it.
    """

    tenant: str
    client_id: str
    listener: str
    peer: str
    protocol: str
    user_name: str | None
    password: bytes | None = field(repr=False)


Authenticate = Callable[[Sequence[AdmissionRequest]], Awaitable[Sequence[int]]]
"""Takes a batch of requests, returns one CONNACK reason code per request, in order."""


def check_verdicts(verdicts: Sequence[int], *, asked: int) -> list[int]:
    """Make sure that a hook answered every request with something a CONNACK may carry.

    Raises:
        ValueError: Too few, too many, or a code that MQTT does not allow there.
    """
    if len(verdicts) != asked:
        raise ValueError(f"{asked} requests, but {len(verdicts)} verdicts")
    foreign = sorted(
        {int(code) for code in verdicts} - {int(code) for code in CONNACK_REASON_CODES}
    )
    if foreign:
        listed = ", ".join(f"0x{code:02X}" for code in foreign)
        raise ValueError(f"a CONNACK cannot carry {listed}")
    return [int(code) for code in verdicts]


def refuse_all(count: int, code: ReasonCode) -> list[int]:
    """Give every request of a batch the same refusal."""
    return [int(code)] * count
