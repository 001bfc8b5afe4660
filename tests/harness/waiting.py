"""Waiting for a condition that nobody announces, with a deadline instead of a guess."""

import time
from collections.abc import Callable
from typing import Final

# It ends a hang; it measures nothing, and a busy machine must not meet it.
DEADLINE_S: Final = 20.0
_LOOK_AGAIN_S: Final = 0.002


def wait_until(condition: Callable[[], bool], *, what: str, deadline_s: float = DEADLINE_S) -> None:
    """Look again and again until `condition` holds; `what` names it if it never does."""
    ends_at = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends_at, f"after {deadline_s} s still not: {what}"
        time.sleep(_LOOK_AGAIN_S)
