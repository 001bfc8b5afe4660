"""The options of the source, right and wrong."""

import pickle
from pathlib import Path

import pytest

from quantumqtt.errors import ConfigError
from quantumqtt.spark.options import (
    OPTIONS,
    Moment,
    Positions,
    is_filter,
    parse_options,
    parse_positions,
)

ENDPOINT = {"endpoint": "grpc://localhost:8815"}


def test_names_are_found_in_any_case() -> None:
    options = parse_options(
        {"ENDPOINT": "grpc://h", "startingoffsets": "latest", "maxrecordspertrigger": "5"},
        streaming=True,
    )
    assert options.place.location == "grpc://h:8815"
    assert options.starting == Positions("latest")
    assert options.records_per_trigger == 5
    assert options.fail_on_data_loss


def test_options_travel_to_executors_and_hide_the_token() -> None:
    options = parse_options({**ENDPOINT, "token": "a-secret-of-some-length"}, streaming=False)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "a-secret" not in repr(options)


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("earliest", Positions("earliest")),
        ("1970-01-01T00:00:01Z", Positions(Moment(1_000_000))),
        ("1970-01-01T01:00:00.5+01:00", Positions(Moment(500_000))),
        ('{"1": 7, "0": "latest"}', Positions("earliest", ((0, "latest"), (1, 7)))),
    ],
)
def test_positions_are_read(text: str, positions: Positions) -> None:
    assert parse_positions("startingOffsets", text) == positions


@pytest.mark.parametrize(
    ("wrong", "name", "words"),
    [
        ({}, "endpoint", "is missing"),
        ({"endpoint": "http://h"}, "endpoint", "no address"),
        ({"endpoint": "grpc://h:0"}, "endpoint", "no address"),
        ({"endpoint": "grpc://h:99999"}, "endpoint", "no address"),
        ({**ENDPOINT, "topicFilters": "#"}, "topicFilters", "did you mean topicFilter?"),
        ({**ENDPOINT, "colour": "red"}, "colour", "there are endpoint"),
        ({**ENDPOINT, "topicFilter": "a/#/b"}, "topicFilter", "MQTT filter"),
        ({**ENDPOINT, "topicFilter": "[]"}, "topicFilter", "MQTT filter"),
        ({**ENDPOINT, "topicFilter": "[1]"}, "topicFilter", "MQTT filter"),
        ({**ENDPOINT, "topicFilter": "["}, "topicFilter", "plant/#"),
        ({**ENDPOINT, "startingOffsets": "newest"}, "startingOffsets", "earliest, latest"),
        ({**ENDPOINT, "startingOffsets": "5"}, "startingOffsets", "by partition"),
        ({**ENDPOINT, "startingOffsets": "2026-11-19T08:00:00"}, "startingOffsets", "time zone"),
        ({**ENDPOINT, "startingOffsets": '{"a": 1}'}, "startingOffsets", "numbers in quotes"),
        ({**ENDPOINT, "startingOffsets": '{"0": true}'}, "startingOffsets", "offset"),
        ({**ENDPOINT, "startingOffsets": '{"0": 1, "0": 2}'}, "startingOffsets", "once"),
        ({**ENDPOINT, "startingOffsets": "{"}, "startingOffsets", "earliest"),
        ({**ENDPOINT, "failOnDataLoss": "yes"}, "failOnDataLoss", "true or false"),
        ({**ENDPOINT, "maxRecordsPerTrigger": "0"}, "maxRecordsPerTrigger", "at least 1"),
        ({**ENDPOINT, "maxBytesPerTrigger": "1e6"}, "maxBytesPerTrigger", "at least 1"),
        ({**ENDPOINT, "rowsPerTask": "-1"}, "rowsPerTask", "at least 1"),
        ({**ENDPOINT, "endingOffsets": "latest"}, "endingOffsets", "availableNow"),
        ({**ENDPOINT, "pushFilters": "true"}, "pushFilters", "topicFilter"),
        ({**ENDPOINT, "tlsRoots": "/no/such.pem"}, "/no/such.pem", "readable PEM"),
    ],
)
def test_wrong_option_is_named_with_its_remedy(
    wrong: dict[str, str], name: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(wrong, streaming=True)
    assert name in str(caught.value)
    assert words in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("text", ["#", "a", "+/b", "a/#", "$SYS/#", "/", "ä/ö"])
def test_filters_that_mqtt_allows(text: str) -> None:
    assert is_filter(text)


@pytest.mark.parametrize("text", ["", "a#", "#/a", "a+", "a\0", "$share/g/a", "x" * 65_536])
def test_filters_that_mqtt_does_not(text: str) -> None:
    assert not is_filter(text)


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "spark.md").read_text()
    for name in OPTIONS:
        assert f"`{name}`" in page
