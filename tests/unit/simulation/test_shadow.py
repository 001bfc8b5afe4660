"""The shadow's own sense of filters: as plain as the standard has it."""

import pytest

from quantumqtt.simulation.shadow import matches


@pytest.mark.parametrize(
    ("filter_text", "topic", "is_match"),
    [
        ("a/1", "a/1", True),
        ("a/1", "a/2", False),
        ("a/+", "a/1", True),
        ("a/+", "a", False),
        ("a/+", "a/1/x", False),
        ("+", "a/1", False),
        ("#", "a/1", True),
        ("b/#", "b", True),
        ("b/#", "b/1/2", True),
        ("b/#", "a/1", False),
    ],
)
def test_a_filter_takes_a_topic(filter_text: str, topic: str, is_match: bool) -> None:
    assert matches(filter_text, topic) is is_match
