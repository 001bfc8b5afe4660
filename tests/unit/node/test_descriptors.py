"""Descriptors: how many connections fit, and what is said when they do not."""

import resource

import pytest

from quantumqtt.errors import ConfigError
from quantumqtt.node.descriptors import (
    CONNECTIONS_MAX_DEFAULT,
    plan_connections,
    raise_descriptor_limit,
)


def test_without_a_wish_the_limit_decides() -> None:
    assert plan_connections(descriptors=20_000, wanted=None, listeners=1, shards=2) == 19_930


def test_a_wish_that_fits_is_granted_exactly() -> None:
    assert plan_connections(descriptors=20_000, wanted=10_000, listeners=1, shards=2) == 10_000


@pytest.mark.parametrize("wanted", [None, 7])
def test_an_infinite_limit_is_no_limit(wanted: int | None) -> None:
    expected = CONNECTIONS_MAX_DEFAULT if wanted is None else wanted
    planned = plan_connections(
        descriptors=resource.RLIM_INFINITY, wanted=wanted, listeners=1, shards=2
    )
    assert planned == expected


def test_a_wish_above_the_limit_names_the_limit_and_the_command() -> None:
    with pytest.raises(ConfigError) as caught:
        plan_connections(descriptors=1_024, wanted=5_000, listeners=1, shards=2)
    assert "limits.connections_max = 5000 needs 5070 file descriptors; the limit is 1024" in str(
        caught.value
    )
    assert "ulimit -n 5070" in str(caught.value.hint)
    assert "LimitNOFILE=5070" in str(caught.value.hint)


def test_a_limit_too_low_for_anything_is_named() -> None:
    with pytest.raises(ConfigError, match="a broker needs 86 file descriptors; the limit is 64"):
        plan_connections(descriptors=64, wanted=None, listeners=1, shards=2)


def test_more_shards_and_listeners_leave_less_room() -> None:
    def room(listeners: int, shards: int) -> int:
        return plan_connections(descriptors=1_024, wanted=None, listeners=listeners, shards=shards)

    assert room(1, 1) > room(2, 1) > room(2, 2)


def test_the_soft_limit_is_lifted_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        assert raise_descriptor_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
