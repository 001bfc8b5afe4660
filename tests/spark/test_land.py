"""The job `land`, as a program and killed in every way there is."""

import random
import signal
from pathlib import Path

import pytest

from quantumqtt.spark.table import open_place
from tests.harness.landing import Landing, Service, descendants
from tests.harness.stand_in_log import append_to_folder
from tests.harness.waiting import wait_until
from tests.spark.test_stream import expected, rows_of


@pytest.mark.timeout(300)
def test_land_once_lands_all_and_says_so(service: Service, tmp_path: Path) -> None:
    for partition in (0, 1):
        append_to_folder(service.folder, "default", partition, 3_000)
    service.start()
    run = Landing(service, tmp_path, "--once", "--max-records", "2500")
    batches = list(iter(run.next_batch, None))
    assert run.finish() == 0, run.errors.read_text()
    assert [batch["rows"] for batch in batches] == [2_500, 2_500, 1_000]
    assert batches[-1]["lag"] == 0
    assert batches[-1]["rows_total"] == 6_000
    assert rows_of(tmp_path / "table", "delta") == expected(p0=3_000, p1=3_000)


@pytest.mark.timeout(300)
def test_land_goes_on_until_it_is_told_to_stop(service: Service, tmp_path: Path) -> None:
    append_to_folder(service.folder, "default", 0, 100)
    service.start()
    run = Landing(service, tmp_path, "--continuous", "--interval", "0.2", "--format", "parquet")
    assert (run.next_batch() or {}).get("rows") == 100
    append_to_folder(service.folder, "default", 0, 40)
    assert (run.next_batch() or {}).get("rows") == 40
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0, run.errors.read_text()
    assert rows_of(tmp_path / "table", "parquet") == expected(p0=140)


@pytest.mark.timeout(300)
def test_land_ends_when_whoever_started_it_is_gone(service: Service, tmp_path: Path) -> None:
    append_to_folder(service.folder, "default", 0, 100)
    service.start()
    run = Landing(service, tmp_path, "--continuous", "--until-input-ends")
    assert (run.next_batch() or {}).get("rows") == 100
    assert run.process.stdin is not None
    run.process.stdin.close()
    assert run.finish() == 0, run.errors.read_text()


@pytest.mark.timeout(300)
def test_land_says_what_is_wrong_before_spark_starts(service: Service, tmp_path: Path) -> None:
    run = Landing(service, tmp_path, "--once", "--format", "iceberg")
    assert run.finish() == 2
    assert "there are delta, parquet" in run.errors.read_text()
    assert not (tmp_path / "table").exists()


@pytest.mark.requirement("PIPE-13")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_killed_in_turn_it_lands_every_row_once(
    service: Service, tmp_path: Path, table_format: str
) -> None:
    run_kill_loop(service, tmp_path, table_format, rounds=1, rows=40_000, seed=1)


@pytest.mark.night
@pytest.mark.requirement("PIPE-13")
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_killed_again_and_again_it_lands_every_row_once(
    service: Service, tmp_path: Path, table_format: str, seed: int
) -> None:
    run_kill_loop(service, tmp_path, table_format, rounds=5, rows=200_000, seed=seed)


def run_kill_loop(
    service: Service, home: Path, table_format: str, *, rounds: int, rows: int, seed: int
) -> None:
    """Kill each part in turn while rows land; then let it finish, and count.

    `rows` is for each of two partitions and each victim. A killed worker or service may be
    survived (Spark tries a task again, the reader a stream); a killed driver or JVM ends the run.
    """
    dice = random.Random(seed)
    victims = ["driver", "jvm", "workers", "service", "all"] * rounds
    dice.shuffle(victims)
    service.start()
    ends = {0: 0, 1: 0}
    words = ("--once", "--format", table_format, "--max-records", str(max(1_000, rows // 10)))
    for victim in victims:
        for partition in ends:
            ends[partition] = append_to_folder(service.folder, "default", partition, rows)
        run = Landing(service, home, *words)
        for _ in range(dice.randint(1, 6)):
            if run.next_batch() is None:
                break
        if victim == "service":
            service.kill()
            service.start()
        elif victim == "all":
            run.kill_group()
            service.kill()
            service.start()
        else:
            run.kill(victim)
        while run.process.poll() is None and run.next_batch() is not None:
            pass
        run.finish()
        landed = rows_of(home / "table", table_format)
        assert len(landed) == len(set(landed)), f"rows doubled after {victim}"
        # What is visible is a prefix of every partition: nothing in part, nothing out of order.
        for partition in ends:
            offsets = [offset for number, offset in landed if number == partition]
            assert offsets == list(range(len(offsets))), f"a gap after {victim}"
    last = Landing(service, home, *words)
    while last.next_batch() is not None:
        pass
    assert last.finish() == 0, last.errors.read_text()[-3_000:]
    assert rows_of(home / "table", table_format) == expected(p0=ends[0], p1=ends[1])
    assert not list((home / "table" / "_landing").glob("*")), "what was killed is swept away"
    landed_ends = open_place(str(home / "table"), table_format).landed()
    assert landed_ends == {("default", number): end for number, end in ends.items()}
    wait_until(lambda: not descendants(last.process.pid), what="no process is left over")
