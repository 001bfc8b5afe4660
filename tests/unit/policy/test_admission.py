"""Verdicts: every request answered, and only with what a CONNACK may carry."""

import pytest

from quantumqtt.mqtt import ReasonCode
from quantumqtt.policy import AdmissionRequest, check_verdicts, refuse_all


def test_good_verdicts_become_plain_numbers() -> None:
    checked = check_verdicts([ReasonCode.SUCCESS, ReasonCode.NOT_AUTHORIZED, 0x86], asked=3)
    assert checked == [0x00, 0x87, 0x86]
    assert {type(code) for code in checked} == {int}


@pytest.mark.parametrize("verdicts", [[], [0], [0, 0, 0]])
def test_a_wrong_number_of_verdicts_is_refused(verdicts: list[int]) -> None:
    with pytest.raises(ValueError, match=f"2 requests, but {len(verdicts)} verdicts"):
        check_verdicts(verdicts, asked=2)


@pytest.mark.parametrize("code", [1, 0x8E, 0x1FF, -1])
def test_a_code_foreign_to_connack_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="a CONNACK cannot carry"):
        check_verdicts([code], asked=1)


def test_refusing_all_says_the_same_to_everybody() -> None:
    assert refuse_all(3, ReasonCode.SERVER_BUSY) == [0x89, 0x89, 0x89]


def test_a_request_does_not_show_its_password() -> None:
    request = AdmissionRequest(
        tenant="default",
        client_id="c",
        listener="tcp-1",
        peer="127.0.0.1:5",
        protocol="5.0",
        user_name="ann",
        password=b"correct horse",
    )
    assert "ann" in repr(request)
    assert "correct horse" not in repr(request)
