"""`quantumqtt log verify|stats|dump|digest`: look at the log in a data directory that nobody uses.

Everything here reads: no byte changes, and no lock is taken but one that readers share, so that a
broker cannot start meanwhile. A directory in use is refused; look at a copy then.

Exit codes: 0 whole, 1 damaged or not readable, 2 wrong usage (no log there, in use by a broker, no
key or another's, written by a newer version).
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from quantumqtt import _core
from quantumqtt.cli.failures import ExitCode, exit_code_of, report
from quantumqtt.errors import ConfigError, QuantuMQTTError

_PAYLOAD_CHARS_MAX: Final = 200
_KEY_FILE: Final = "keys"

Data = Annotated[Path, typer.Argument(metavar="DIR", help="Data directory, or a copy of one.")]
KeyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Its key file (default: `keys` inside).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and no progress bar.")]
_HERE: Final = Path("data")


def add_directory_commands(app: typer.Typer) -> None:
    """Add these commands to the group `log`."""
    app.command("verify")(verify)
    app.command("stats")(stats)
    app.command("dump")(dump)
    app.command("digest")(digest)


def verify(data: Data = _HERE, key_file: KeyFile = None, json_wanted: Json = False) -> None:
    """Check every byte of a stopped broker's log and of its checkpoints.

    Ends with 0 when a start would find nothing wrong, with 1 when something is damaged.
    """
    with _reported():
        with _progress("files", shown=not json_wanted) as moved:
            found = _core.verify_log(data, _keys(data, key_file), progress=moved)
        _print(found, json_wanted, _verdict)
    _end(found)


def stats(data: Data = _HERE, key_file: KeyFile = None, json_wanted: Json = False) -> None:
    """Print what a stopped broker's log holds: files, entries, commands by kind, checkpoints."""
    with _reported():
        with _progress("files", shown=not json_wanted) as moved:
            found = _core.count_log(data, _keys(data, key_file), progress=moved)
        _print(found, json_wanted, _counts)
    _end(found)


def dump(
    data: Data = _HERE,
    key_file: KeyFile = None,
    first: Annotated[
        int | None, typer.Option("--from", metavar="INDEX", min=1, help="First entry.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", metavar="INDEX", min=1, help="Last entry.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after N records.")
    ] = None,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="Show what was published, not only how much.")
    ] = False,
    json_wanted: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Print the records of a stopped broker's log in their order, and the commands of entries.

    With --from or --to only records with entries between them. What stands before damage is shown,
    and then the damage is named.
    """
    if first is not None and last is not None and first > last:
        report(ConfigError(f"--from {first} is behind --to {last}", hint="exchange them"))
        raise typer.Exit(ExitCode.USAGE)
    left = limit

    def each(records: Sequence[Mapping[str, object]]) -> bool:
        nonlocal left
        for record in records:
            if left == 0:
                return False
            for line in _record_lines(record, payloads=payloads, json_wanted=json_wanted):
                print(line)
            left = None if left is None else left - 1
        sys.stdout.flush()
        return left != 0

    with _reported():
        _core.dump_log(data, _keys(data, key_file), each, first_index=first or 0, last_index=last)


def digest(
    data: Data = _HERE,
    key_file: KeyFile = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="INDEX", help="As of this entry (default: last).")
    ] = None,
    json_wanted: Json = False,
) -> None:
    """Replay a stopped broker's log and print the digest of the state it leads to.

    Equal states have equal digests: compare with `quantumqtt ctl digest` of a running broker at the
    same index, or with that of a copy.
    """
    with _reported():
        found = _core.replay_log(data, _keys(data, key_file), until=at)
    if json_wanted:
        print(json.dumps(found))
    else:
        print(f"{found['digest']} at index {found['index']}")
        print(
            f"  {found['entries']} entries behind the checkpoint of {found['checkpoint_index']}; "
            f"{found['sessions']} sessions, {found['subscriptions']} subscriptions, "
            f"{found['retained']} retained, {found['queued']} queued"
        )


def _keys(data: Path, key_file: Path | None) -> Path:
    return data / _KEY_FILE if key_file is None else key_file


def _print(
    found: Mapping[str, object],
    json_wanted: bool,
    lines: Callable[[Mapping[str, object]], Iterator[str]],
) -> None:
    if json_wanted:
        print(json.dumps(found))
    else:
        for line in lines(found):
            print(line)


def _end(found: Mapping[str, object]) -> None:
    if not found["sound"]:
        raise typer.Exit(ExitCode.FAILED)


def _rows(found: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    rows = found[name]
    assert isinstance(rows, list), f"{name} is a list"
    return rows


def _sum(rows: Sequence[Mapping[str, object]], name: str) -> int:
    values = [row[name] for row in rows]
    return sum(value for value in values if isinstance(value, int))


def _verdict(found: Mapping[str, object]) -> Iterator[str]:
    segments, checkpoints = _rows(found, "segments"), _rows(found, "checkpoints")
    for damage in _rows(found, "damages"):
        yield f"damaged: {_place(damage)}"
    for checkpoint in checkpoints:
        if checkpoint["damage"] is not None:
            yield f"damaged: {checkpoint['damage']}"
    cut = found["cut"]
    if isinstance(cut, dict):
        yield f"torn tail, never acknowledged, a start cuts it off: {_place(cut)}"
    words = "whole" if found["sound"] else "DAMAGED"
    end = "stopped in order" if found["clean"] else "not stopped in order, which is no damage"
    yield (
        f"{words}: {len(segments)} files, {_sum(segments, 'used')} bytes, "
        f"{_sum(segments, 'records')} records, {len(checkpoints)} checkpoints; {end}"
    )


def _place(damage: Mapping[str, object]) -> str:
    return (
        f"{damage['file']}, offset {damage['offset']}, record {damage['lsn']}: {damage['reason']}"
    )


def _counts(found: Mapping[str, object]) -> Iterator[str]:
    yield f"{'file':<26} {'bytes':>12} {'used':>12} {'records':>10} {'first lsn':>12}  sealed"
    for one in _rows(found, "segments"):
        sealed = "yes" if one["sealed"] else "no"
        yield (
            f"{one['file']:<26} {one['bytes']:>12} {one['used']:>12} {one['records']:>10} "
            f"{one['first_lsn']:>12}  {sealed}"
        )
    for one in _rows(found, "groups"):
        yield (
            f"group {one['group']}: term {one['term']}, entries to {one['last_index']}, "
            f"commit known to {one['commit']}, cut behind {one['compacted']}, "
            f"checkpoint {one['checkpoint']}"
        )
    for one in _rows(found, "checkpoints"):
        yield (
            f"checkpoint {one['index']}: {one['chunks']} chunks, {one['bytes']} bytes, "
            f"state {one['state_digest']}"
        )
    yield f"{found['entries']} entries, {found['entry_bytes']} bytes"
    for title in ("records", "commands"):
        counts = found[title]
        assert isinstance(counts, dict), f"{title} are counted"
        yield f"{title}:"
        yield from (f"  {kind:<16} {count:>12}" for kind, count in sorted(counts.items()))
    yield from _verdict(found)


def _record_lines(
    record: Mapping[str, object], *, payloads: bool, json_wanted: bool
) -> Iterator[str]:
    entries = [_entry(one, payloads=payloads) for one in _rows(record, "entries")]
    if json_wanted:
        yield json.dumps({**record, "entries": entries}, default=_as_json)
        return
    place = f"{record['segment']:>4}:{record['offset']:<10} lsn {record['lsn']:<8}"
    group = f" group {record['group']} term {record['term']}" if record["group"] else ""
    yield f"{place} {record['kind']}{group}"
    for entry in entries:
        header = entry.get("header")
        if "unreadable" in entry:
            yield f"  {entry['index']:>10}  unreadable: {entry['unreadable']}"
        elif not isinstance(header, dict):
            yield f"  {entry['index']:>10}  empty, of Raft's own"
        else:
            fields = " ".join(f"{name}={value}" for name, value in header.items())
            yield f"  {entry['index']:>10}  {entry['bytes']} bytes, {fields}"
        commands = entry.get("commands", ())
        assert isinstance(commands, list | tuple), "commands are a list"
        for kind, known in commands:
            yield f"{'':14}{kind} {_words(known)}"


def _entry(entry: Mapping[str, object], *, payloads: bool) -> dict[str, object]:
    """Take payloads out of an entry's commands, unless they are wanted."""
    told = {name: value for name, value in entry.items() if name != "payload"}
    commands = entry.get("commands")
    if isinstance(commands, list):
        told["commands"] = [(kind, _without(known, payloads)) for kind, known in commands]
    return told


def _without(known: Mapping[str, object], payloads: bool) -> dict[str, object]:
    told: dict[str, object] = {}
    for name, value in known.items():
        if isinstance(value, dict):
            told[name] = _without(value, payloads)
        elif name == "payload" and isinstance(value, bytes) and not payloads:
            told["payload_bytes"] = len(value)
        else:
            told[name] = value
    return told


def _words(known: Mapping[str, object]) -> str:
    shown = []
    for name, value in known.items():
        if isinstance(value, bytes):
            text = _as_text(value)
            shown.append(f"{name}={text[:_PAYLOAD_CHARS_MAX]}")
        elif isinstance(value, dict):
            shown.append(f"{name}=({_words(value)})")
        elif value is not None:
            shown.append(f"{name}={value}")
    return " ".join(shown)


def _as_text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else repr(text)[1:-1]


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return _as_text(value)
    raise TypeError(f"{type(value).__name__} has no place in a record")


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except QuantuMQTTError as error:
        report(error)
        raise typer.Exit(exit_code_of(error)) from error
    except BrokenPipeError:
        # `| head` has seen enough. Python would complain again when it flushes at its end.
        sys.stderr.close()
        raise typer.Exit(ExitCode.OK) from None


@contextmanager
def _progress(what: str, *, shown: bool) -> Iterator[Callable[[int, int, int], None]]:
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not (shown and console.is_terminal)
    ) as bar:
        task = bar.add_task(what, total=None)

        def moved(done: int, total: int, _bytes: int) -> None:
            bar.update(task, completed=done, total=total)

        yield moved
