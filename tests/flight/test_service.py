"""The log service and its reader, end to end over loopback."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyarrow import flight

from quantumqtt.errors import (
    ConfigError,
    ConnectFailed,
    NotAuthorized,
    OffsetExpired,
    QuotaExceeded,
    SliceUnavailable,
    SourceError,
    StorageError,
    TransportError,
    UnknownPartition,
    UnknownTenant,
)
from quantumqtt.flight import FlightLimits, LogService, LoopbackGate, Reader, TokenGate
from quantumqtt.logreader import LogReader
from quantumqtt.logreader.retries import NO_RETRIES
from quantumqtt.logwire import ReadTicket, write_refusal
from quantumqtt.logwire.schema import LOG_SCHEMA
from tests.flight.conftest import QUICK, Served
from tests.harness.ports import free_port, taken_port
from tests.harness.stand_in_log import EPOCH_US, ROW_US, StandInLog, make_rows
from tests.harness.waiting import wait_until

TOKEN = "a-token-of-sixteen-or-more"


def test_every_row_of_a_range_comes_with_every_column(served: Served) -> None:
    table = served.reader().read(0, 100, 700).read_all()
    assert table.schema.equals(LOG_SCHEMA, check_metadata=False)
    assert table.equals(make_rows("default", 0, 100, 600))


def test_same_range_gives_the_same_rows_again(served: Served) -> None:
    first = served.reader().read(1, 0).read_all()
    served.log.append("default", 1, 10)
    assert served.reader().read(1, 0, 500).read_all().equals(first)


def test_columns_come_in_the_order_asked_for(served: Served) -> None:
    table = served.reader().read(0, 5, 8, columns=["payload", "topic"]).read_all()
    assert table.schema.names == ["payload", "topic"]
    assert table["payload"].to_pylist()[0].startswith(b"0:5")
    assert served.log.plans[-1].columns == ("payload", "topic", "offset")


def test_topic_filter_is_applied_by_the_store(served: Served) -> None:
    table = served.reader().read(0, 0, 1_000, topics=["plant/+/temperature"]).read_all()
    expected = [o for o in range(1_000) if o % 3 != 2]
    assert table["offset"].to_pylist() == expected
    assert served.log.plans[-1].topics == ("plant/+/temperature",)


def test_offsets_of_every_tenant(served: Served) -> None:
    answer = served.reader().offsets().as_json()
    assert {t: {n: (h["earliest"], h["end"]) for n, h in p.items()} for t, p in answer.items()} == {
        "default": {"0": (0, 1_000), "1": (0, 500)},
        "other": {"0": (0, 10)},
    }


def test_offset_for_time_is_the_first_record_not_older(served: Served) -> None:
    reader = served.reader()
    moment = datetime.fromtimestamp((EPOCH_US + 250 * ROW_US) / 1_000_000, UTC)
    assert reader.offset_for_time(0, moment) == 250
    assert reader.offset_for_time(0, EPOCH_US + 250 * ROW_US + 1) == 251
    assert reader.offset_for_time(0, EPOCH_US * 2) == 1_000


def test_expired_offsets_are_refused_with_what_is_left(served: Served) -> None:
    served.log.expire("default", 0, 400)
    with pytest.raises(OffsetExpired) as caught:
        served.reader().read(0, 10, 500).read_all()
    error = caught.value
    assert (error.tenant, error.partition, error.start) == ("default", 0, 10)
    assert (error.earliest, error.end) == (400, 1_000)
    assert "400" in (error.hint or "")


def test_reader_that_stands_still_in_an_expired_place_is_told(served: Served) -> None:
    served.log.expire("default", 0, 400)
    with pytest.raises(OffsetExpired):
        served.reader().read(0, 10, 10).read_all()


def test_range_past_the_end_is_unavailable(served: Served) -> None:
    with pytest.raises(SliceUnavailable) as caught:
        served.reader().read(1, 400, 501).read_all()
    assert caught.value.end == 500


def test_unknown_places_are_named(served: Served) -> None:
    with pytest.raises(UnknownPartition) as caught:
        served.reader().read(7, 0, 1).read_all()
    assert caught.value.partition == 7
    assert caught.value.hint == "it has 0, 1"
    with pytest.raises(UnknownTenant):
        served.reader("nobody").partitions()


def test_bytes_that_are_no_ticket_are_refused_with_words(served: Served) -> None:
    client = flight.FlightClient(served.endpoint)
    with pytest.raises(flight.FlightServerError, match="not JSON"):
        client.do_get(flight.Ticket(b"\xff")).read_all()
    with pytest.raises(flight.FlightServerError, match="no action is called"):
        list(client.do_action(("erase", b"")))


def test_any_flight_client_can_list_and_read(served: Served) -> None:
    client = flight.FlightClient(served.endpoint)
    flights = list(client.list_flights())
    assert [each.total_records for each in flights] == [1_000, 500, 10]
    rows = client.do_get(flights[1].endpoints[0].ticket).read_all()
    assert rows.num_rows == 500
    command = flight.FlightDescriptor.for_command(
        ReadTicket(tenant="default", partition=0, start=990, columns=("ts",)).to_bytes()
    )
    assert client.get_schema(command).schema.names == ["ts"]
    info = client.get_flight_info(command)
    assert info.total_records == 10
    assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 10


def test_broken_stream_goes_on_after_the_last_row(served: Served) -> None:
    served.log.break_after = 333
    served.log.break_with = OSError(write_refusal(QuotaExceeded("too many at once")))
    table = served.reader().read(0, 0, 1_000).read_all()
    assert table["offset"].to_pylist() == list(range(1_000))
    assert [plan.start for plan in served.log.plans] == [0, 333]


def test_stream_overtaken_by_retention_says_so_from_its_middle(served: Served) -> None:
    expired = OffsetExpired("gone meanwhile", tenant="default", partition=0, earliest=900)
    served.log.break_after = 333
    served.log.break_with = OSError(write_refusal(expired))
    with pytest.raises(OffsetExpired) as caught:
        served.reader().read(0, 0, 1_000).read_all()
    assert caught.value.earliest == 900


def test_store_that_fails_for_good_is_an_error_not_a_short_answer(served: Served) -> None:
    def fail(plan: object) -> None:
        raise StorageError("block 7 is damaged", hint="restore it from a replica")

    served.log.read = fail  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="block 7") as caught:
        served.reader().read(0, 0, 10).read_all()
    assert caught.value.hint == "restore it from a replica"


def test_service_that_skips_rows_is_caught(served: Served) -> None:
    honest = served.log.read

    def skip(plan: object) -> pa.RecordBatchReader:
        rows = honest(plan).read_all()  # type: ignore[arg-type]
        rows = pa.concat_tables([rows.slice(0, 5), rows.slice(6)]).combine_chunks()
        return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())

    served.log.read = skip  # type: ignore[method-assign]
    with pytest.raises(SliceUnavailable, match="came where 0 was due"):
        served.reader().read(0, 0, 10).read_all()


def test_service_that_stops_short_is_caught(served: Served) -> None:
    honest = served.log.read

    def stop_short(plan: object) -> pa.RecordBatchReader:
        rows = honest(plan).read_all().slice(0, 9)  # type: ignore[arg-type]
        return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())

    served.log.read = stop_short  # type: ignore[method-assign]
    with pytest.raises(SliceUnavailable, match="the stream ended at 9"):
        served.reader().read(0, 0, 10).read_all()


def test_unreachable_service_is_named_after_the_retries() -> None:
    endpoint = f"grpc://127.0.0.1:{free_port()}"
    with pytest.raises(ConnectFailed, match=endpoint):
        LogReader(endpoint, retries=QUICK).partitions()


@pytest.mark.requirement("PIPE-12")
def test_token_opens_its_own_tenant_and_no_other(serve: Callable[..., Served]) -> None:
    log = StandInLog()
    log.append("default", 0, 10)
    log.append("other", 0, 10)
    gate = TokenGate({TOKEN: Reader(name="reports", tenants=frozenset({"default"}))})
    served = serve(log, gate=gate)
    reader = served.reader(token=TOKEN)
    assert set(reader.offsets().tenants) == {"default"}
    assert reader.read(0, 0).read_all().num_rows == 10
    for stranger in ("other", "does-not-exist"):
        foreign = served.reader(stranger, token=TOKEN)
        for ask in (foreign.partitions, lambda r=foreign: r.read(0, 0, 1).read_all()):
            with pytest.raises(NotAuthorized, match=f"reports may not read .* {stranger}"):
                ask()
        with pytest.raises(NotAuthorized):
            foreign.wait({}, timeout_s=0)
        with pytest.raises(NotAuthorized):
            foreign.offset_for_time(0, 0)


@pytest.mark.parametrize("token", [None, "another-token-of-some-length", ""])
def test_without_its_token_nothing_is_told(serve: Callable[..., Served], token: str | None) -> None:
    served = serve(gate=TokenGate({TOKEN: Reader(name="reports")}))
    with pytest.raises(NotAuthorized):
        served.reader(token=token).offsets()


def test_topics_one_may_not_see_are_left_out(serve: Callable[..., Served]) -> None:
    log = StandInLog()
    log.append("default", 0, 30)
    gate = TokenGate({TOKEN: Reader(name="plant", topics=("plant/#",))})
    reader = serve(log, gate=gate).reader(token=TOKEN)
    table = reader.read(0, 0, 30, topics=["#"]).read_all()
    assert set(table["topic"].to_pylist()) == {"plant/a/temperature", "plant/b/temperature"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_open_service_stands_on_loopback_only(host: str) -> None:
    with pytest.raises(ConfigError, match="let everybody read"):
        LogService(StandInLog(), gate=LoopbackGate(), host=host)
    with pytest.raises(ConfigError, match="in the clear"):
        LogService(StandInLog(), gate=TokenGate({TOKEN: Reader(name="r")}), host=host)


def test_address_that_is_taken_is_named() -> None:
    with taken_port() as port, pytest.raises(TransportError, match=str(port)):
        LogService(StandInLog(), gate=LoopbackGate(), port=port)


def test_reads_past_the_bound_are_refused_and_the_place_comes_back(
    serve: Callable[..., Served],
) -> None:
    log = StandInLog()
    log.append("default", 0, 200_000, payload_bytes=200)
    served = serve(log, limits=FlightLimits(streams_max=1, held_bytes_max=1 << 20))
    slow = served.reader().read(0, 0, 200_000)
    slow.read_next_batch()  # and stops reading: flow control holds the stream open
    assert served.service.streams.count == 1
    with pytest.raises(QuotaExceeded, match="1 reads are under way"):
        served.reader(retries=NO_RETRIES).read(0, 0, 10).read_all()
    del slow
    wait_until(lambda: served.service.streams.count == 0, what="the place came back")
    assert served.reader().read(0, 0, 10).read_all().num_rows == 10


def test_plan_carries_the_share_of_one_stream(serve: Callable[..., Served]) -> None:
    log = StandInLog()
    log.append("default", 0, 5_000, payload_bytes=1_000)
    served = serve(log, limits=FlightLimits(streams_max=8, held_bytes_max=8 * 256 * 1024))
    reader = served.reader().read(0, 0, 5_000)
    sizes = [batch.nbytes for batch in reader]
    assert len(sizes) > 10
    assert max(sizes) <= 256 * 1024 * 1.1


def test_wait_ends_with_the_first_new_row(served: Served) -> None:
    reader = served.reader()
    answers: list[int] = []

    def wait() -> None:
        answers.append(reader.wait({0: 1_000, 1: 500}, timeout_s=60)[1].end)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: served.service.waits.count == 1, what="the wait arrived")
    served.log.append("default", 1, 1)
    thread.join(timeout=30)
    assert answers == [501]
    wait_until(lambda: served.service.waits.count == 0, what="the wait ended")


def test_wait_without_news_ends_with_its_time(served: Served) -> None:
    assert served.reader().wait({0: 1_000, 1: 500}, timeout_s=0)[0].end == 1_000


def test_tail_gives_new_rows_and_new_partitions_from_their_start(served: Served) -> None:
    tail = served.reader().tail(idle_s=30, columns=["partition", "offset"])
    seen: list[tuple[int, int]] = []
    done = threading.Event()

    def follow() -> None:
        for batch in tail:
            seen.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            if len(seen) == 5:
                done.set()
                return

    thread = threading.Thread(target=follow)
    thread.start()
    wait_until(lambda: served.service.waits.count == 1, what="the wait arrived")
    served.log.append("default", 0, 2)
    served.log.append("default", 5, 3)
    assert done.wait(timeout=30)
    thread.join(timeout=30)
    assert sorted(seen) == [(0, 1_000), (0, 1_001), (5, 0), (5, 1), (5, 2)]


def test_tail_ends_when_idle(served: Served) -> None:
    rows = list(served.reader().tail({0: 990, 1: 500}, idle_s=0.01))
    assert sum(batch.num_rows for batch in rows) == 10


def test_error_of_a_foreign_shape_is_still_ours(served: Served) -> None:
    def confuse(tenant: str) -> None:
        raise KeyError(tenant)

    served.log.partitions = confuse  # type: ignore[assignment, method-assign]
    with pytest.raises(Exception, match="KeyError") as caught:
        served.reader().partitions()
    assert type(caught.value).__name__ == "InternalError"


def test_ticket_in_the_wrong_order_never_leaves(served: Served) -> None:
    with pytest.raises(SourceError, match="before its start"):
        served.reader().read(0, 5, 4)
    assert served.log.plans == []
