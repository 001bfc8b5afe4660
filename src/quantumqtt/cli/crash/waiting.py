"""Waiting for what another process does, and nobody will tell us."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

_LOOK_S: Final = 0.01


async def wait_until(is_so: Callable[[], bool], deadline: Callable[[], float]) -> bool:
    """Look again and again; False when the deadline passed, which may move while we wait."""
    while not is_so():
        if time.monotonic() >= deadline():
            return False
        await asyncio.sleep(_LOOK_S)
    return True
