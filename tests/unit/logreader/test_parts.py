"""Places and retries: what the reader decides without asking anybody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt.errors import ConfigError
from quantumqtt.logreader import LogPlace, Retries


@pytest.mark.parametrize(
    ("endpoint", "location"),
    [
        ("grpc://host", "grpc://host:8815"),
        ("grpc+tls://host:1", "grpc+tls://host:1"),
        ("grpc://[::1]:7", "grpc://[::1]:7"),
    ],
)
def test_place_has_a_port(endpoint: str, location: str) -> None:
    assert LogPlace(endpoint=endpoint).location == location


@pytest.mark.parametrize(
    "endpoint", ["", "host:8815", "mqtt://h", "grpc://", "grpc://h/x", "grpc://h:x", "grpc://h:0"]
)
def test_place_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="no address of a log service"):
        LogPlace(endpoint=endpoint)


def test_certificates_without_encryption_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match="not encrypted"):
        LogPlace(endpoint="grpc://h", tls_roots=b"pem")


@given(st.integers(1, 10_000), st.floats(0, 29.9), st.floats(0, 0.999))
def test_pauses_grow_and_stay_within_what_is_left(
    attempt: int, waited_s: float, dice: float
) -> None:
    retries = Retries()
    pause_s = retries.pause_s(attempt, waited_s, dice)
    assert pause_s is not None
    assert 0 < pause_s <= min(2.0, 30.0 - waited_s)
    if waited_s < 20:
        assert pause_s >= min(2.0, 0.05 * 2 ** min(attempt - 1, 10)) / 2


def test_nobody_waits_for_ever() -> None:
    assert Retries().pause_s(9, 30.0, 0.5) is None
