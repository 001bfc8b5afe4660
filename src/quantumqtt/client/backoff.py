"""How long to wait before the next attempt to connect."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double up to a bound, each shortened by chance so that clients spread out.

    Attributes:
        first_s: The longest first wait.
        most_s: The longest wait ever.
        attempts_max: Attempts in a row before giving up; None never gives up.
    """

    first_s: float = 0.5
    most_s: float = 60.0
    attempts_max: int | None = None

    def __post_init__(self) -> None:
        """Refuse waits that make no sense."""
        if not 0 < self.first_s <= self.most_s:
            raise ValueError("waits are positive, and the first is not above the most")

    def delay_s(self, attempt: int, dice: float) -> float | None:
        """Plan the wait before `attempt`, the first being 1; `dice` is from 0 to 1.

        Returns None when it is time to give up. Half of the wait is certain and half is chance: a
        crowd that was cut off together does not come back together, and nobody hammers.
        """
        if self.attempts_max is not None and attempt > self.attempts_max:
            return None
        doublings = min(attempt - 1, 32)
        longest = min(self.first_s * 2.0**doublings, self.most_s)
        return longest * (0.5 + 0.5 * dice)
