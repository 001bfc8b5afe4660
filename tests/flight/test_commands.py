"""`quantumqtt log …` against the log service."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from quantumqtt.cli.log import as_words
from quantumqtt.cli.main import app
from tests.flight.conftest import Served
from tests.harness.stand_in_log import make_rows


def run(served: Served, *words: str) -> Result:
    return CliRunner().invoke(app, ["log", *words, "--endpoint", served.endpoint])


def test_offsets_as_json_and_as_a_table(served: Served) -> None:
    told = json.loads(run(served, "offsets", "--json").stdout)
    assert told["default"]["0"]["end"] == 1_000
    assert told["other"]["0"]["earliest"] == 0
    lines = run(served, "offsets", "--tenant", "other").stdout.splitlines()
    assert lines[1].split() == ["other", "0", "0", "10", "10"]


def test_cat_prints_rows_in_order(served: Served) -> None:
    words = ("cat", "--partition", "1", "--start", "3", "--end", "6", "--json")
    rows = [json.loads(line) for line in run(served, *words).stdout.splitlines()]
    assert [row["offset"] for row in rows] == [3, 4, 5]
    assert rows[0]["payload"].startswith("1:3")
    plain = run(served, "cat", "-t", "office/#", "-n", "2").stdout.splitlines()
    assert [line.split()[0] for line in plain] == ["0:2", "0:5"]


def test_payloads_that_are_no_text_are_shown_in_hex() -> None:
    (row,) = make_rows("t", 0, 0, 1).to_pylist()
    assert as_words({**row, "payload": b"\xff\x00"}).endswith("0xff00")
    assert as_words({**row, "payload": b"a\nb"}).endswith(r"a\nb")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_export_writes_one_whole_file(served: Served, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"rows.{kind}"
    result = run(served, "export", str(file), "--json")
    assert json.loads(result.stdout)["rows"] == 1_500
    if kind == "parquet":
        rows = pq.read_table(file)["offset"].to_pylist()
    elif kind == "arrow":
        with pa.OSFile(str(file)) as source:
            rows = pa.ipc.open_stream(source).read_all()["offset"].to_pylist()
    else:
        rows = [json.loads(line)["offset"] for line in file.read_text().splitlines()]
    assert rows == [*range(1_000), *range(500)]
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_export_that_fails_leaves_nothing(served: Served, tmp_path: Path) -> None:
    served.log.break_after = 100
    file = tmp_path / "rows.parquet"
    result = run(served, "export", str(file))
    assert result.exit_code == 1
    assert "the disk went away" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_tail_prints_what_comes(served: Served) -> None:
    served.log.append("default", 7, 0)
    honest = served.log.wait

    def wait(tenant: str, positions: dict[int, int], timeout_s: float) -> None:
        served.log.append("default", 1, 3)
        honest(tenant, positions, timeout_s)

    served.log.wait = wait  # type: ignore[method-assign, assignment]
    lines = run(served, "tail", "-n", "3").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["1:500", "1:501", "1:502"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("cat", "--partition", "9"), 2, "there are 0, 1"),
        (("cat", "--start", "5"), 2, "add --partition N"),
        (("cat", "--tenant", "nobody"), 1, "no tenant nobody"),
        (("cat", "--partition", "0", "--end", "5000"), 1, "the log ends at 1000"),
        (("export", "rows.csv"), 2, "--format parquet or arrow or jsonl"),
        (("export", "/dev/null", "--format", "jsonl"), 2, "exists"),
    ],
)
def test_what_cannot_be_is_said_with_its_remedy(
    served: Served, words: tuple[str, ...], code: int, said: str
) -> None:
    result = run(served, *words)
    assert result.exit_code == code
    assert said in result.stderr


def test_wrong_endpoint_is_wrong_usage() -> None:
    result = CliRunner().invoke(app, ["log", "offsets", "--endpoint", "http://h"])
    assert result.exit_code == 2
    assert "grpc://host:8815" in result.stderr


def test_pipeline_needs_its_extra_and_says_so(served: Served, tmp_path: Path) -> None:
    words = ["pipeline", "run", "land", "--endpoint", served.endpoint, "--once"]
    words += ["--table", str(tmp_path / "t"), "--checkpoint", str(tmp_path / "c")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "pip install 'quantumqtt[spark]'" in result.stderr
    assert not (tmp_path / "t").exists()
