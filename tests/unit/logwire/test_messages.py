"""Tickets and refusals: one spelling each, and nothing that is guessed."""

import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantumqtt import errors, logwire
from quantumqtt.errors import InternalError, OffsetExpired, QuantuMQTTError, SourceError
from quantumqtt.logwire import (
    OffsetsAnswer,
    OffsetsQuestion,
    PartitionRange,
    ReadTicket,
    TimeAnswer,
    TimeQuestion,
    WaitQuestion,
    read_refusal,
    write_refusal,
)
from quantumqtt.logwire.columns import COLUMNS
from quantumqtt.logwire.refusals import REFUSALS

GOLDEN = Path(__file__).parents[2] / "golden" / "flight" / "messages.txt"
MESSAGES: list[Any] = [
    ReadTicket(tenant="default", partition=0, start=0),
    ReadTicket(
        tenant="grün",
        partition=3,
        start=17,
        end=900,
        topics=("plant/+/t", "$SYS/#"),
        columns=("ts", "payload"),
    ),
    OffsetsQuestion(),
    OffsetsQuestion("default"),
    OffsetsAnswer(
        {
            "default": {
                10: PartitionRange(earliest=0, end=0),
                0: PartitionRange(earliest=5, end=90, bytes=4_096),
            }
        }
    ),
    TimeQuestion(tenant="default", partition=1, ts_us=1_790_000_000_000_000),
    TimeAnswer(12),
    WaitQuestion(tenant="default", positions={10: 7, 0: 5}, timeout_ms=1_500),
]


def test_messages_are_spelled_as_they_always_were() -> None:
    spelled = [f"{type(one).__name__} {one.to_bytes().decode()}" for one in MESSAGES]
    assert spelled == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_old_messages_are_read() -> None:
    for line, message in zip(
        GOLDEN.read_text(encoding="utf-8").splitlines(), MESSAGES, strict=True
    ):
        name, _, spelled = line.partition(" ")
        assert getattr(logwire, name).from_bytes(spelled.encode()) == message


TICKET = {"tenant": '"t"', "partition": "0", "start": "5", "end": "9", "topics": "[]"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"v": "2"}, "version 2"),
        ({"v": "true"}, "version True"),
        ({"tenant": "null"}, "tenant"),
        ({"partition": '"0"'}, "not a whole number"),
        ({"partition": "true"}, "not a whole number"),
        ({"partition": "-1"}, "no partition number"),
        ({"start": "-1"}, "no offset"),
        ({"start": str(2**63)}, "no offset"),
        ({"end": "4"}, "before its start"),
        ({"topics": '"#"'}, "not a list of texts"),
        ({"topics": "[" + ",".join(['"a"'] * 257) + "]"}, "256 is the most"),
        ({"columns": '["payload", "wages"]'}, "'wages'"),
        ({"columns": "[]"}, "at least one"),
        ({"columns": '["ts", "ts"]'}, "once each"),
        ({"limit": "5"}, "unknown fields limit"),
    ],
)
def test_ticket_that_is_none_is_refused(change: dict[str, str], words: str) -> None:
    fields = {"v": "1", **TICKET, **change}
    spelled = "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"
    with pytest.raises(SourceError, match=words):
        ReadTicket.from_bytes(spelled.encode())


@pytest.mark.parametrize("noise", [b"", b"[]", b"\xff", b"7", b"{" * 70_000, b"[" * 60_000])
def test_noise_is_refused(noise: bytes) -> None:
    for message in MESSAGES:
        with pytest.raises(SourceError):
            type(message).from_bytes(noise)


@given(st.text(max_size=2_000), st.text(max_size=2_000), st.integers(0, 2**63 - 1))
def test_refusals_keep_type_words_and_fields(words: str, hint: str, earliest: int) -> None:
    error = OffsetExpired(words, hint or None, tenant="t]", partition=3, earliest=earliest)
    wrapped = f"gRPC says: {write_refusal(error)}. Detail: something }}] else"
    back = read_refusal(wrapped)
    assert isinstance(back, OffsetExpired)
    assert str(back) == words[:1_000]
    assert back.hint == (hint[:1_000] or None)
    assert (back.tenant, back.partition, back.earliest) == ("t]", 3, earliest)


def test_every_refusal_comes_back_and_is_picklable() -> None:
    for name, (kind, carried) in REFUSALS.items():
        assert name == kind.__name__
        back = read_refusal(write_refusal(kind("words", "remedy")))
        assert type(back) is kind
        assert set(carried) <= set(vars(back))
        copy = pickle.loads(pickle.dumps(back))
        assert vars(copy) == vars(back)


def test_errors_of_log_and_tables_all_have_a_place() -> None:
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, SourceError | errors.SinkError) and kind is not errors.RangeError:
            assert kind.__name__ in REFUSALS


def test_error_without_a_place_travels_as_ours() -> None:
    class Odd(QuantuMQTTError):
        pass

    assert type(read_refusal(write_refusal(Odd("odd")))) is InternalError


@pytest.mark.parametrize(
    "message", ["", "words", "x [quantumqtt {]", 'x [quantumqtt {"error":"Nothing"}]']
)
def test_words_without_fields_are_nothing_of_ours(message: str) -> None:
    assert read_refusal(message) is None


def test_columns_are_in_the_order_of_the_design() -> None:
    assert COLUMNS[:5] == ("tenant", "partition", "offset", "ts", "topic")
    assert len(COLUMNS) == 20
