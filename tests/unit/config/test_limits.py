"""Every bound at 0, 1 and its ends: it starts or it is refused, and it never crashes later."""

import pytest
from pydantic import ValidationError

from quantumqtt.config.keys import catalogue
from quantumqtt.config.limits import Limits
from quantumqtt.config.sources import FlagLayer, settings_from
from quantumqtt.errors import ConfigError

NUMERIC_KEYS = [key for key in catalogue().values() if key.facts.minimum is not None]
BEYOND_EVERY_INTEGER = 2**64


def settings_table(key: str, value: object) -> dict[str, object]:
    table, _, name = key.rpartition(".")
    if table == "listener":
        return {table: ({"url": "tcp://127.0.0.1:0", name: value},)}
    return {table: {name: value}} if table else {name: value}


def start_with(key: str, value: object) -> ConfigError | None:
    try:
        settings_from([FlagLayer(settings_table(key, value))])
    except ConfigError as error:
        return error
    return None


def test_every_limit_has_a_range() -> None:
    named = {key.name for key in NUMERIC_KEYS}
    assert {f"limits.{name}" for name in Limits.model_fields} <= named
    assert "shards" in named


@pytest.mark.parametrize("key", NUMERIC_KEYS, ids=lambda key: key.name)
@pytest.mark.parametrize("value", [0, 1, -1, BEYOND_EVERY_INTEGER])
def test_numeric_option_starts_or_is_refused_by_name(key: object, value: int) -> None:
    facts = next(entry for entry in NUMERIC_KEYS if entry is key)
    minimum, maximum = facts.facts.minimum, facts.facts.maximum
    assert minimum is not None
    assert maximum is not None
    error = start_with(facts.name, value)
    if minimum <= value <= maximum:
        # Only a relation to another bound may still object, and it names this key.
        assert error is None or facts.name in str(error)
    else:
        assert error is not None
        assert facts.name in str(error)
        assert f"from {minimum} to {maximum}" in (error.hint or "")


@pytest.mark.parametrize("key", NUMERIC_KEYS, ids=lambda key: key.name)
def test_both_ends_of_a_range_are_accepted_or_name_the_relation(key: object) -> None:
    facts = next(entry for entry in NUMERIC_KEYS if entry is key)
    for value in (facts.facts.minimum, facts.facts.maximum):
        error = start_with(facts.name, value)
        assert error is None or ("_max" in str(error) and error.hint)


@pytest.mark.parametrize("value", [True, 1.5, "many", None, [], {}])
def test_a_number_is_a_number(value: object) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate({"receive_maximum": value})


def test_text_of_digits_is_a_number_because_the_environment_has_only_text() -> None:
    assert Limits.model_validate({"receive_maximum": "20"}).receive_maximum == 20


@pytest.mark.parametrize(
    ("changes", "first", "second"),
    [
        ({"out_buffer_bytes_soft": 64 << 20}, "out_buffer_bytes_soft", "out_buffer_bytes_max"),
        ({"packet_bytes_max": 64 << 20}, "packet_bytes_max", "out_buffer_bytes_max"),
        ({"offline_bytes_max": 1 << 20}, "packet_bytes_max", "offline_bytes_max"),
    ],
)
def test_bounds_that_contradict_each_other_are_named_together(
    changes: dict[str, int], first: str, second: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from([FlagLayer({"limits": changes})])
    assert f"limits.{first}" in str(caught.value)
    assert second in str(caught.value)
    assert caught.value.hint


def test_all_broken_relations_are_told_at_once() -> None:
    changes = {"out_buffer_bytes_soft": 64 << 20, "packet_bytes_max": 64 << 20}
    with pytest.raises(ConfigError) as caught:
        settings_from([FlagLayer({"limits": changes})])
    assert len(str(caught.value).splitlines()) == 2


def test_limits_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Limits().receive_maximum = 1
