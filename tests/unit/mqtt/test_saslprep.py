"""SASLprep: the examples of RFC 4013, and what the rules of RFC 3454 add to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.mqtt import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("p\u00e4ss", "p\u00e4ss"),
        ("pa\u0308ss", "p\u00e4ss"),
        ("\uff50\uff41\uff53\uff53", "pass"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0031\u0628", "\u06271\u0628"),
        ("", ""),
    ],
)
def test_what_looks_alike_becomes_one(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared
    assert saslprep(prepared) == prepared


@pytest.mark.parametrize(
    "text",
    ["\u0007", "\u0627\u0031", "a\u0627", "\ue000", "\ufffd", "\U000e0041", "\ufdd0", "\u200e"],
)
def test_what_nobody_can_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"character|letters"):
        saslprep(text)


def test_what_is_stored_may_not_be_newer_than_the_rules() -> None:
    assert saslprep("\u1e9e") == "\u1e9e"
    with pytest.raises(ValueError, match="1E9E"):
        saslprep("\u1e9e", is_stored=True)


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert saslprep(text) == text
