"""What the reactor must not even be able to do: visible in its source, hardly in its behaviour."""

import re
from typing import Final

import pytest

from tools.setup import HOUSE

REACTOR: Final = HOUSE / "crates" / "reactor" / "src"


@pytest.mark.requirement("DP-13")
def test_write_interest_is_armed_once_for_the_life_of_a_socket() -> None:
    """Edge-triggered for both directions from accept to close: a publish arms nothing."""
    calls = [
        call
        for file in sorted(REACTOR.rglob("*.rs"))
        for call in re.findall(r"\b(\w*register)\(", file.read_text(encoding="utf-8"))
    ]
    assert "register" in calls, "sockets are registered somewhere in here"
    assert "reregister" not in calls
