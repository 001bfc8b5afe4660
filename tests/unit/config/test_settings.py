"""Settings that contradict each other, and those this release cannot keep."""

import pytest
from pydantic import ValidationError

from quantumqtt.config import FlagLayer, Settings, settings_from, split_error
from quantumqtt.errors import ConfigError


def refused(**values: object) -> list[tuple[str, str | None]]:
    with pytest.raises(ConfigError) as caught:
        settings_from([FlagLayer(values)])
    return list(split_error(caught.value))


@pytest.mark.parametrize("level", ["strict", "group", "STRICT"])
def test_a_log_needs_a_directory(level: str) -> None:
    ((text, remedy),) = refused(durability=level)
    assert text.startswith("--durability: durability: ")
    assert "needs a data directory" in text
    assert remedy is not None
    assert "--data DIR" in remedy


def test_a_place_on_disk_makes_acknowledgements_durable() -> None:
    assert settings_from([]).durability == "memory"
    assert settings_from([FlagLayer({"data": "d"})]).durability == "strict"
    assert settings_from([FlagLayer({"data": "d", "durability": "memory"})]).durability == "memory"


@pytest.mark.requirement("LOG-38")
@pytest.mark.parametrize("level", ["group", "memory"])
def test_production_acknowledges_nothing_that_is_not_on_disk(level: str) -> None:
    told = refused(profile="production", durability=level, data="d")
    assert any(f"does not run under {level}" in text for text, _ in told)


def test_a_packet_must_fit_into_the_log() -> None:
    limits = {"packet_bytes_max": 20 * 1024 * 1024}
    ((text, remedy),) = refused(data="d", limits=limits)
    assert "the largest packet the log takes" in text
    assert remedy is not None
    assert "durability memory" in remedy
    assert settings_from([FlagLayer({"limits": limits})]).limits.packet_bytes_max == 20 << 20
    ((text, remedy),) = refused(data="d", storage={"segment_bytes": 1024 * 1024})
    assert "too small for packets of" in text
    assert remedy is not None
    assert "segment_bytes of at least" in remedy


def test_production_refuses_every_plaintext_listener() -> None:
    told = refused(profile="production", data="d", listen=["tcp://127.0.0.1:1", "tcp://0.0.0.0:2"])
    assert [text for text, _ in told] == [
        "--listen: listen: tcp://127.0.0.1:1 is plaintext, which profile production refuses",
        "--listen: listen: tcp://0.0.0.0:2 is plaintext, which profile production refuses",
    ]
    assert all(remedy and "embedded" in remedy for _, remedy in told)


def test_production_refuses_the_default_listener_too() -> None:
    ((text, _),) = refused(profile="production", data="d")
    assert text.startswith("--profile: listen: tcp://127.0.0.1:1883 is plaintext")


def test_an_address_listed_twice_is_refused_but_port_zero_is_not() -> None:
    ((text, _),) = refused(listen=["tcp://127.0.0.1:1", "tcp://127.0.0.1:1"])
    assert "tcp://127.0.0.1:1 is listed twice" in text
    twice = settings_from([FlagLayer({"listen": ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"]})])
    assert len(twice.listen) == 2


def test_no_listener_is_refused() -> None:
    ((text, _),) = refused(listen=[])
    assert "needs at least one entry" in text


def test_a_listener_that_is_refused_is_told_once() -> None:
    ((text, _),) = refused(listen=["quic://127.0.0.1:14567"])
    assert "not in this release" in text


def test_too_many_listeners_are_refused() -> None:
    ((text, remedy),) = refused(listen=[f"tcp://127.0.0.1:{port}" for port in range(1, 70)])
    assert "has too many entries" in text
    assert remedy == "keep at most 64"


@pytest.mark.parametrize(
    ("explicit", "loopback", "outside"),
    [(None, True, False), (True, True, True), (False, False, False)],
)
def test_anonymous_is_allowed_on_loopback_unless_said_otherwise(
    *, explicit: bool | None, loopback: bool, outside: bool
) -> None:
    settings = settings_from(
        [FlagLayer({"allow_anonymous": explicit, "listen": ["tcp://[::1]:1", "tcp://[::]:1"]})]
    )
    assert [settings.anonymous_allowed(address) for address in settings.listen] == [
        loopback,
        outside,
    ]


@pytest.mark.parametrize("value", ["", "a\0b"])
def test_a_data_directory_needs_a_name(value: str) -> None:
    ((text, _),) = refused(data=value)
    assert "is not a directory name" in text


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().shards = 2


def test_only_what_was_asked_for_counts_as_set() -> None:
    assert "admin" not in settings_from([FlagLayer({"shards": 1})]).model_fields_set
    assert "admin" in settings_from([FlagLayer({"admin": "off"})]).model_fields_set


@pytest.mark.parametrize(
    ("asked", "complaint", "remedy"),
    [
        ({"flight": "127.0.0.1:0"}, "no message log under memory", "data directory"),
        ({"data": "d", "flight": "0.0.0.0:1"}, "in the clear", "grpc+tls://0.0.0.0:1"),
        ({"data": "d", "flight": "grpc+tls://0.0.0.0:1"}, "needs a certificate", "--cert FILE"),
    ],
)
def test_a_log_service_that_cannot_be_is_refused(
    asked: dict[str, str], complaint: str, remedy: str
) -> None:
    ((text, hint),) = refused(**asked)
    assert complaint in text
    assert hint is not None
    assert remedy in hint


def test_the_default_place_of_the_log_service_stands_in_nobody_s_way() -> None:
    assert settings_from([]).durability == "memory"
    assert settings_from([]).flight is not None
