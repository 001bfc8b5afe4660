"""Where settings come from, who wins, and whether a problem is traced to its line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quantumqtt.config import Address, Settings, load_settings, split_error, suspicious_variables
from quantumqtt.errors import ConfigError

WriteFile = Callable[[str], Path]


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    def write(content: str) -> Path:
        file = tmp_path / "broker.toml"
        file.write_text(content, encoding="utf-8")
        return file

    return write


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("QUANTUMQTT_")]:
        monkeypatch.delenv(name)


def problems_in(file: Path, **flags: object) -> list[tuple[str, str | None]]:
    with pytest.raises(ConfigError) as caught:
        load_settings(file=file, flags=flags)
    return list(split_error(caught.value))


@pytest.mark.requirement("OPS-13")
def test_nothing_asked_gives_safe_defaults() -> None:
    settings = load_settings()
    assert settings.listen == (Address("tcp", "127.0.0.1", 1883),)
    assert settings.admin == Address("http", "127.0.0.1", 8080)
    assert settings.listen[0].is_loopback
    assert settings.admin.is_loopback
    assert settings.anonymous_allowed(Address("tcp", "127.0.0.1", 1883))
    assert not settings.anonymous_allowed(Address("tcp", "0.0.0.0", 1883))
    assert settings.durability == "memory"


def test_flags_beat_environment_beats_file_beats_defaults(
    write_file: WriteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_file(
        "shards = 3\nadmin = 'off'\n[limits]\nreceive_maximum = 3\ntopic_alias_max = 3"
    )
    monkeypatch.setenv("QUANTUMQTT_SHARDS", "4")
    monkeypatch.setenv("QUANTUMQTT_LIMITS__RECEIVE_MAXIMUM", "4")
    settings = load_settings(file=file, flags={"shards": 5})
    assert settings.shards == 5
    assert settings.limits.receive_maximum == 4
    assert settings.limits.topic_alias_max == 3
    assert settings.admin is None
    assert settings.limits.connect_timeout_ms == 10_000


def test_environment_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTUMQTT_LISTEN", "tcp://127.0.0.1:1, tcp://[::1]:2")
    assert [address.port for address in load_settings().listen] == [1, 2]


def test_environment_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTUMQTT_SHARDS", "0")
    assert load_settings(read_environment=False).shards >= 1


def test_settings_alone_do_not_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTUMQTT_DURABILITY", "strict")
    assert Settings().durability == "memory"


@pytest.mark.requirement("OPS-13")
def test_every_problem_of_a_file_is_told_with_file_line_key_value_and_remedy(
    write_file: WriteFile,
) -> None:
    file = write_file(
        'lisen = ["tcp://127.0.0.1:1883"]\n'
        "shards = 0\n"
        'log.level = "inf"\n'
        "\n"
        "[limits]\n"
        "# a comment\n"
        "receive_maximum = 70000\n"
        "topic_alias = 3\n"
    )
    told = dict(problems_in(file))
    assert told == {
        f"{file}:1: lisen: unknown key": "did you mean listen?",
        f"{file}:2: shards = 0: must be at least 1": "choose a whole number from 1 to 64",
        f'{file}:3: log.level = "inf": is not one of the choices': (
            "did you mean info? choose debug or info or warning or error"
        ),
        f"{file}:7: limits.receive_maximum = 70000: must be at most 1024": (
            "choose a whole number from 1 to 1024"
        ),
        f"{file}:8: limits.topic_alias: unknown key": "did you mean limits.topic_alias_max?",
    }


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("[limits]\nreceive_maximum = 0", 2),
        ("limits.receive_maximum = 0", 1),
        ("\n\nlimits = { receive_maximum = 0 }", 3),
        ('["limits"]\n"receive_maximum" = 0', 2),
        ("[ limits ] # bounds\n\n  receive_maximum   =   0", 3),
        ("shards = 1\n[log]\nlevel = 'info'\n[limits]\nreceive_maximum = 0", 5),
    ],
)
def test_the_line_is_found_however_the_key_is_written(
    write_file: WriteFile, content: str, line: int
) -> None:
    file = write_file(content)
    assert [text.split(" ")[0] for text, _ in problems_in(file)] == [f"{file}:{line}:"]


def test_a_list_over_several_lines_points_to_its_key(write_file: WriteFile) -> None:
    file = write_file(
        'shards = 1\nlisten = [\n  "tcp://127.0.0.1:1",\n  "quic://127.0.0.1:2",\n]\n'
    )
    ((text, remedy),) = problems_in(file)
    assert text == f'{file}:2: listen = "quic://127.0.0.1:2": quic:// is not in this release yet'
    assert remedy == "use tcp://, tls://, ws://, wss:// or unix://; it is what exists today"


@pytest.mark.parametrize(
    ("content", "line"),
    [("shards = \n", 1), ("a = 1\nb == 2\n", 2), ("a = 1\na = 2\n", 2), ('x = "open\n', 1)],
)
def test_broken_toml_is_told_with_its_line(write_file: WriteFile, content: str, line: int) -> None:
    file = write_file(content)
    ((text, remedy),) = problems_in(file)
    assert text.startswith(f"{file}:{line}: not valid TOML: ")
    assert remedy


def test_bytes_that_are_not_text_are_told_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_bytes(b"shards = 1\n# \xff\n")
    ((text, _),) = problems_in(file)
    assert text == f"{file}:2: not UTF-8"


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    for file in (tmp_path / "absent.toml", tmp_path):
        ((text, remedy),) = problems_in(file)
        assert text.startswith(f"{file}: cannot be read (")
        assert remedy


def test_a_huge_file_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    file = tmp_path / "huge.toml"
    with file.open("wb") as opened:
        opened.truncate(1 << 34)
    ((text, _),) = problems_in(file)
    assert "longer than" in text


def test_deep_nesting_is_refused(write_file: WriteFile) -> None:
    file = write_file("a = " + "[" * 20_000)
    ((text, _),) = problems_in(file)
    assert "nested too deeply" in text or "not valid TOML" in text


def test_a_problem_is_traced_to_the_source_that_won(
    write_file: WriteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_file("shards = 0\n[limits]\nreceive_maximum = 0\n")
    monkeypatch.setenv("QUANTUMQTT_LIMITS__RECEIVE_MAXIMUM", "-1")
    monkeypatch.setenv("QUANTUMQTT_LIMITS__NONSENSE", "1")
    places = {text.partition(": ")[0] for text, _ in problems_in(file, shards="none", admin="x")}
    assert places == {
        "--shards",
        "--admin",
        "QUANTUMQTT_LIMITS__RECEIVE_MAXIMUM",
        "QUANTUMQTT_LIMITS__NONSENSE",
    }


def test_a_table_variable_that_is_not_json_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTUMQTT_LIMITS", "lots")
    with pytest.raises(ConfigError, match="QUANTUMQTT_LIMITS: limits: cannot be decoded") as caught:
        load_settings()
    assert "QUANTUMQTT_LIMITS__" in str(caught.value.hint)


def test_misspelt_variables_are_suspected_and_foreign_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUANTUMQTT_LISTN", "x")
    monkeypatch.setenv("QUANTUMQTT_WITHOUT_SYSTEM_PACKAGES", "1")
    monkeypatch.setenv("QUANTUMQTT_SHARDS", "1")
    assert list(suspicious_variables()) == [("QUANTUMQTT_LISTN", "QUANTUMQTT_LISTEN")]


def test_values_with_control_characters_stay_on_one_line(write_file: WriteFile) -> None:
    file = write_file('durability = "a\\nb\\u001b[31m' + "x" * 500 + '"')
    ((text, _),) = problems_in(file)
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < len(str(file)) + 120
