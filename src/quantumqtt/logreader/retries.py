"""How long to wait before asking again, and when to stop asking."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Pauses that double from `first_s` to `longest_s`, until `give_up_s` have gone by.

    The time counts from the last row that arrived: a read of hours may survive many restarts of
    the service, and still gives up on one that stays away.
    """

    first_s: float = 0.05
    longest_s: float = 2.0
    give_up_s: float = 30.0

    def pause_s(self, attempt: int, waited_s: float, dice: float) -> float | None:
        """Plan the pause after the `attempt`-th failure in a row; None means give up.

        `dice` in [0, 1) spreads readers that failed together over the upper half of the pause.
        """
        if waited_s >= self.give_up_s:
            return None
        whole = min(self.longest_s, self.first_s * 2.0 ** min(attempt - 1, 30))
        return min(whole * (0.5 + dice / 2), self.give_up_s - waited_s)


NO_RETRIES = Retries(give_up_s=0.0)
