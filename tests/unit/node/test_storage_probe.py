"""The probe of storage: what it says of mounts and syncs, and what follows from it."""

import json
from pathlib import Path

import pytest

from quantumqtt.errors import ConfigError
from quantumqtt.node import storage_probe
from quantumqtt.node.storage_probe import (
    RECORD_FILE,
    Mount,
    enforce_storage,
    fastest_sync,
    judge_mount,
    mount_of,
    parse_mounts,
    probe_storage,
)

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 22 0:25 / /run rw,nosuid - tmpfs tmpfs rw,size=65536k
31 22 254:1 / /var/lib/my\\040data rw,noatime - ext4 /dev/vdb rw,nobarrier
32 22 254:2 / /var/lib rw - xfs /dev/vdc rw
33 22 0:44 / /srv rw - nfs4 server:/export rw,vers=4.2
34 22 0:45 / /merged rw - overlay overlay rw,lowerdir=/a
no line at all
"""


@pytest.mark.requirement("LOG-36")
@pytest.mark.parametrize(
    ("directory", "said"),
    [
        ("/home/data", ()),
        ("/var/lib/quantumqtt", ()),
        ("/var/lib/my data/log", ("nobarrier",)),
        ("/run/log", ("tmpfs is memory",)),
        ("/srv/log", ("nfs4 is another machine's disk",)),
        ("/merged", ("overlay is a container's own layer",)),
        ("/running", ()),
    ],
)
def test_a_file_system_is_judged_by_its_kind_and_options(
    directory: str, said: tuple[str, ...]
) -> None:
    mount = mount_of(Path(directory), parse_mounts(MOUNTINFO))
    assert mount is not None
    findings = judge_mount(mount)
    assert len(findings) == len(said)
    assert all(words in finding for words, finding in zip(said, findings, strict=True))


def test_the_innermost_of_mounts_counts_and_of_equals_the_last() -> None:
    mounts = [Mount(point, kind, frozenset()) for point, kind in (("/", "a"), ("/x", "b"))]
    found = mount_of(Path("/x/y"), [*mounts, Mount("/x", "c", frozenset())])
    assert found is not None
    assert found.kind == "c"
    assert mount_of(Path("/y"), []) is None


@pytest.mark.requirement("LOG-36")
def test_a_sync_that_takes_no_time_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_probe, "_read_mounts", list)
    assert fastest_sync(tmp_path, clock=lambda: 1.0) == 0.0
    monkeypatch.setattr(storage_probe, "fastest_sync", lambda _directory: 0.0)
    (finding,) = probe_storage(tmp_path)
    assert "which no disk does" in finding
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_a_directory_that_cannot_be_written_says_nothing_of_syncs(tmp_path: Path) -> None:
    assert fastest_sync(tmp_path / "absent") is None


@pytest.mark.requirement("LOG-36")
def test_production_refuses_unsafe_storage_unless_it_was_accepted_and_recorded(
    tmp_path: Path,
) -> None:
    findings = ("tmpfs is memory",)
    with pytest.raises(ConfigError, match="tmpfs is memory") as refusal:
        enforce_storage(tmp_path, findings, is_production=True, is_accepted=False)
    assert "accept_unsafe" in (refusal.value.hint or "")
    assert list(tmp_path.iterdir()) == [], "a start that is refused writes nothing"
    enforce_storage(tmp_path, findings, is_production=True, is_accepted=True)
    record = tmp_path / RECORD_FILE
    assert json.loads(record.read_text()) == {"accepted": True, "findings": list(findings)}
    enforce_storage(tmp_path, findings, is_production=False, is_accepted=False)
    assert json.loads(record.read_text())["accepted"] is False
    enforce_storage(tmp_path, (), is_production=True, is_accepted=False)
    assert not record.exists(), "storage that is safe again needs no record"
