"""Who may read the broker's log: the users and rules of MQTT, by tokens."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from quantumqtt.config import Settings
from quantumqtt.errors import ConfigError, NotAuthorized
from quantumqtt.flight import BrokerGate, BrokerLog, Reader, load_readers, new_token, open_gate
from quantumqtt.flight.readers import token_line
from quantumqtt.flight.store import ReadPlan
from quantumqtt.policy import Access
from quantumqtt.policy.compile import compile_rules
from quantumqtt.policy.rule_file import parse_mosquitto
from tests.harness.stand_in_log import make_rows, matches

RULES = """
pattern read office/#
pattern deny office/secret
user lake
topic read plant/+/temperature
topic read tools/lake/#
user auditor
topic read #
topic deny plant/b/#
"""


def access(rules: str | None = RULES) -> Access:
    if rules is None:
        return Access()
    parsed = parse_mosquitto(rules, Path("rules.acl"))
    return Access(None, parsed, compile_rules(parsed))


def known(tmp_path: Path, *users: str) -> tuple[Path, dict[str, str]]:
    tokens = {user: new_token() for user in users}
    file = tmp_path / "readers"
    lines = ["# who may read", *(token_line(user, token) for user, token in tokens.items()), ""]
    file.write_text("\n".join(lines))
    return file, tokens


def test_a_token_names_its_user_and_is_not_in_the_file(tmp_path: Path) -> None:
    file, tokens = known(tmp_path, "lake", "auditor")
    assert not any(token in file.read_text() for token in tokens.values())
    gate = BrokerGate(access, anonymous=False, readers=load_readers(file))
    lake = gate.admit(tokens["lake"])
    assert lake.name == "lake"
    assert lake.topics is not None
    assert set(lake.topics) == {"plant/+/temperature", "tools/lake/#", "office/#"}
    with pytest.raises(NotAuthorized, match="no such token"):
        gate.admit(new_token())
    with pytest.raises(NotAuthorized, match="a token is needed"):
        gate.admit(None)


def test_a_denial_is_asked_topic_by_topic(tmp_path: Path) -> None:
    file, tokens = known(tmp_path, "auditor")
    reader = BrokerGate(access, anonymous=False, readers=load_readers(file)).admit(
        tokens["auditor"]
    )
    assert reader.judge is not None
    allowed = ("plant/a/temperature", "office/secret", "anything")
    assert [reader.judge(topic) for topic in allowed] == [True, True, True]
    assert not reader.judge("plant/b/temperature"), "the user's own rules speak first"


@pytest.mark.requirement("PIPE-12")
def test_readers_are_of_one_tenant(tmp_path: Path) -> None:
    file, tokens = known(tmp_path, "lake")
    gate = BrokerGate(access, anonymous=True, readers=load_readers(file), own_token="o" * 43)
    assert not gate.admit(tokens["lake"]).may_read("other")
    assert not gate.admit(None).may_read("other")
    assert gate.admit("o" * 43).topics is None, "our own pipeline reads everything"


def test_tokens_can_be_changed_while_it_runs(tmp_path: Path) -> None:
    file, tokens = known(tmp_path, "lake")
    gate = BrokerGate(access, anonymous=False, readers=load_readers(file))
    gate.admit(tokens["lake"])
    file, newer = known(tmp_path, "lake")
    gate.replace(load_readers(file))
    gate.admit(newer["lake"])
    with pytest.raises(NotAuthorized):
        gate.admit(tokens["lake"])


@pytest.mark.parametrize(
    "line", ["lake", "lake:secret", "lake:$sha256$abc", ":$sha256$" + "a" * 64]
)
def test_a_line_that_is_none_is_named_and_not_repeated(tmp_path: Path, line: str) -> None:
    file = tmp_path / "readers"
    file.write_text(f"# first\n{line}\n")
    with pytest.raises(ConfigError, match=f"{file}:2") as refused:
        load_readers(file)
    assert "secret" not in str(refused.value)


def test_readers_without_tokens_are_what_anonymous_clients_are(tmp_path: Path) -> None:
    def opened(**asked: object) -> BrokerGate:
        settings = Settings.model_validate({"data": tmp_path / "data", **asked})
        assert settings.flight is not None
        return open_gate(settings, settings.flight, access, None)

    assert opened().admit(None).name == "anonymous"
    with pytest.raises(ConfigError, match="nobody could read the log"):
        opened(allow_anonymous=False)
    file, tokens = known(tmp_path, "lake")
    gate = opened(flight_readers=file)
    gate.admit(tokens["lake"])
    with pytest.raises(NotAuthorized):
        gate.admit(None)


@pytest.mark.parametrize(
    ("host", "encrypted", "anonymous", "words"),
    [
        ("0.0.0.0", False, False, "in the clear"),
        ("0.0.0.0", True, True, "let everybody read"),
    ],
)
def test_a_place_that_cannot_be_guarded_is_refused(
    host: str, encrypted: bool, anonymous: bool, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        BrokerGate(access, anonymous=anonymous).check_listener(host, encrypted=encrypted)
    BrokerGate(access, anonymous=True).check_listener("127.0.0.1", encrypted=False)
    BrokerGate(access, anonymous=False).check_listener("0.0.0.0", encrypted=True)


class RowsInMemory:
    """A native log's shape over made-up rows."""

    tenant = "default"
    partition = 0

    def bounds(self) -> tuple[int, int]:
        return 0, 90

    def offset_for_time(self, ts_ms: int) -> int:
        return ts_ms

    def read(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        allowed: Sequence[str] | None = None,
    ) -> object:
        rows = make_rows("default", 0, start, (90 if end is None else end) - start)
        for filters in (topics, allowed):
            if filters is not None:
                rows = rows.filter(matches(rows["topic"], filters))
        chosen = rows if columns is None else rows.select(list(columns))
        return pa.RecordBatchReader.from_batches(chosen.schema, chosen.to_batches())

    def wait(self, position: int, timeout_ms: int) -> bool:
        return position < 90

    def statistics(self) -> dict[str, int]:
        return {"chunk_bytes": 7, "tail_bytes": 2}


def read(reader: Reader, columns: tuple[str, ...] | None) -> pa.Table:
    plan = ReadPlan(
        tenant="default",
        partition=0,
        start=0,
        end=90,
        topics=("#",),
        allowed=reader.topics,
        columns=columns,
        bytes_max=1 << 20,
        judge=reader.judge,
    )
    return BrokerLog([RowsInMemory()]).read(plan).read_all()


def test_rows_that_a_rule_denies_leave_no_trace(tmp_path: Path) -> None:
    file, tokens = known(tmp_path, "auditor", "lake")
    gate = BrokerGate(access, anonymous=False, readers=load_readers(file))
    audited = read(gate.admit(tokens["auditor"]), None)
    assert set(audited["topic"].to_pylist()) == {"plant/a/temperature", "office/door"}
    narrow = read(gate.admit(tokens["auditor"]), ("offset", "payload"))
    assert narrow.column_names == ["offset", "payload"]
    assert narrow["offset"].to_pylist() == audited["offset"].to_pylist()
    lake = read(gate.admit(tokens["lake"]), None)
    assert set(lake["topic"].to_pylist()) == {
        "plant/a/temperature",
        "plant/b/temperature",
        "office/door",
    }


def test_times_are_rounded_up_to_what_the_log_counts() -> None:
    assert BrokerLog([RowsInMemory()]).offset_for_time("default", 0, 41_001) == 42
    assert BrokerLog([RowsInMemory()]).offset_for_time("default", 0, 41_000) == 41


def test_a_wait_ends_when_the_service_closes() -> None:
    log = BrokerLog([RowsInMemory()])
    log.close()
    log.wait("default", {0: 90}, timeout_s=3_600)
