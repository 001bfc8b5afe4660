"""The data directory: private, writable, one owner."""

import os
from pathlib import Path

import pytest

from quantumqtt.errors import ConfigError
from quantumqtt.node.data_directory import LOCK_FILE, DataDirectory


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_missing_directory_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with DataDirectory.claim(path):
        assert mode_of(path) == 0o700
        assert mode_of(path / LOCK_FILE) == 0o600


def test_an_open_but_empty_directory_is_made_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with DataDirectory.claim(tmp_path):
        assert mode_of(tmp_path) == 0o700


def test_our_own_directory_is_made_private_again(tmp_path: Path) -> None:
    DataDirectory.claim(tmp_path).release()
    (tmp_path / "segment").touch()
    tmp_path.chmod(0o750)
    DataDirectory.claim(tmp_path).release()
    assert mode_of(tmp_path) == 0o700


def test_a_directory_of_others_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigError, match="open to other users and holds other files") as caught:
        DataDirectory.claim(tmp_path)
    assert "choose an empty directory" in str(caught.value.hint)
    assert mode_of(tmp_path) == 0o755


def test_a_second_owner_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with DataDirectory.claim(tmp_path), pytest.raises(ConfigError) as caught:
        DataDirectory.claim(tmp_path)
    assert f"in use by a running broker (process {os.getpid()})" in str(caught.value)
    assert "--data" in str(caught.value.hint)


def test_a_released_directory_can_be_claimed_again(tmp_path: Path) -> None:
    first = DataDirectory.claim(tmp_path)
    first.release()
    first.release()
    with DataDirectory.claim(tmp_path) as second:
        assert second.path == tmp_path


def test_a_stale_lock_file_with_nonsense_does_not_matter(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / LOCK_FILE).write_bytes(b"\xff" * 100)
    with DataDirectory.claim(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(ConfigError, match="is not a directory"):
        DataDirectory.claim(path)


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used: not a directory") as caught:
        DataDirectory.claim(tmp_path / "file" / "data")
    assert "the right to write there" in str(caught.value.hint)


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / LOCK_FILE).symlink_to(target)
    with pytest.raises(ConfigError, match="cannot be used"):
        DataDirectory.claim(tmp_path)
    assert target.read_text() == "precious"
