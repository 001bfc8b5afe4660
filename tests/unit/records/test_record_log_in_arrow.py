"""What others see of the log through Arrow; runs where pyarrow is installed (extra `spark`)."""

from pathlib import Path

import pytest

from quantumqtt._core import RecordLog

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `spark`")

GOLDEN = Path(__file__).parents[2] / "golden" / "records" / "schema.txt"
# How Arrow's two implementations write the same types.
WORDS = {
    "string": "Utf8",
    "int8": "Int8",
    "int32": "Int32",
    "int64": "Int64",
    "bool": "Boolean",
    "binary": "Binary",
    "timestamp[us, tz=UTC]": 'Timestamp(µs, "UTC")',
    "list<item: struct<key: string not null, value: string not null> not null>": (
        'List(non-null Struct("key": non-null Utf8, "value": non-null Utf8))'
    ),
}


def filled(folder: Path, count: int) -> RecordLog:
    log = RecordLog(str(folder), tenant="default", partition=3, key=b"k" * 32)
    for first in range(0, count, 500):
        messages = [(f"t/{at % 7}", f"payload {at}".encode()) for at in range(first, first + 500)]
        log.append(
            messages,
            now_ms=1_700_000_000_000 + first,
            client_id="sensor" if first % 1000 else None,
            user_properties=[("k", "1"), ("k", "zwei")] if first % 1000 else [],
        )
    return log


def test_the_schema_is_the_promised_one(tmp_path: Path) -> None:
    table = pyarrow.table(filled(tmp_path, 500).read())
    lines = [
        f"{field.name} {WORDS[str(field.type)]}{'' if field.nullable else ' !'}"
        for field in table.schema
    ]
    promised = GOLDEN.read_text(encoding="utf-8").splitlines()
    assert lines == [line for line in promised if not line.startswith("#")]


def test_every_record_arrives_as_it_was_appended(tmp_path: Path) -> None:
    log = filled(tmp_path, 5000)
    log.seal()
    log.append([("late", b"in the tail")], now_ms=1_800_000_000_000, qos=2, expiry_s=9)
    reader = pyarrow.RecordBatchReader.from_stream(log.read())
    table = reader.read_all()
    table.validate(full=True)
    assert table["offset"].to_pylist() == list(range(5001))
    assert table["payload"].to_pylist()[:-1] == [f"payload {at}".encode() for at in range(5000)]
    last = table.slice(5000).to_pylist()[0]
    assert (last["tenant"], last["partition"], last["source"]) == ("default", 3, "mqtt")
    assert (last["topic"], last["qos"], last["expiry_s"]) == ("late", 2, 9)
    assert last["user_properties"] is None
    pair = table.slice(500, 1).to_pylist()[0]["user_properties"]
    assert [(entry["key"], entry["value"]) for entry in pair] == [("k", "1"), ("k", "zwei")]
    assert table["client_id"].null_count == 2501


def test_ranges_and_columns_are_honoured(tmp_path: Path) -> None:
    log = filled(tmp_path, 1000)
    table = pyarrow.table(log.read(10, 20, columns=["payload", "offset"]))
    assert table.column_names == ["offset", "payload"]
    assert table["offset"].to_pylist() == list(range(10, 20))
    assert pyarrow.table(log.read(1000)).num_rows == 0


def test_an_expired_range_is_an_error_and_never_a_shorter_table(tmp_path: Path) -> None:
    log = filled(tmp_path, 1000)
    log.seal()
    log.append([("late", b"last")], now_ms=1_800_000_000_000)
    assert log.retain(now_ms=1_900_000_000_000, age_ms=1)
    with pytest.raises((pyarrow.ArrowException, OSError), match="expired"):
        pyarrow.table(log.read(0))


def test_an_export_read_back_is_the_same_table(tmp_path: Path) -> None:
    log = filled(tmp_path, 3000)
    table = pyarrow.table(log.read())
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert pyarrow.ipc.open_stream(sink.getvalue()).read_all().equals(table)
