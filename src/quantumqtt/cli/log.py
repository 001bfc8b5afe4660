"""`quantumqtt log …`: look at the committed message log, and take rows out of it."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from quantumqtt.cli.extras import extras_explained
from quantumqtt.cli.failures import ExitCode, exit_code_of, report
from quantumqtt.cli.log_directory import add_directory_commands
from quantumqtt.errors import ConfigError, QuantuMQTTError, StorageError
from quantumqtt.logwire import PartitionRange

if TYPE_CHECKING:
    import pyarrow as pa

    from quantumqtt.logreader import LogReader

app = typer.Typer(
    help="Look at the message log a service offers, or at the data directory of a stopped broker.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

add_directory_commands(app)

_FORMATS: Final = ("parquet", "arrow", "jsonl")

Endpoint = Annotated[
    str,
    typer.Option(metavar="URL", envvar="QUANTUMQTT_LOG_ENDPOINT", help="grpc:// or grpc+tls://."),
]
Tenant = Annotated[str, typer.Option(metavar="NAME", help="Whose log.")]
Token = Annotated[
    str | None,
    typer.Option(metavar="WORD", envvar="QUANTUMQTT_LOG_TOKEN", help="Where one is asked for."),
]
TlsRoots = Annotated[
    str | None, typer.Option(metavar="FILE", help="Certificates of the service's authority.")
]
Topic = Annotated[
    list[str] | None,
    typer.Option("-t", "--topic", metavar="FILTER", help="Only these; may be repeated."),
]
Partition = Annotated[
    list[int] | None,
    typer.Option("--partition", metavar="N", min=0, help="Only this one; may be repeated."),
]
Start = Annotated[
    int | None, typer.Option(metavar="OFFSET", min=0, help="First offset (default: the earliest).")
]
End = Annotated[
    int | None, typer.Option(metavar="OFFSET", min=0, help="One past the last (default: the end).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_HERE: Final = "grpc://127.0.0.1:8815"


@app.command("offsets")
def offsets(
    endpoint: Endpoint = _HERE,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this tenant (default: all).")
    ] = None,
    token: Token = None,
    tls_roots: TlsRoots = None,
    json_wanted: Json = False,
) -> None:
    """Print what each partition holds: its earliest offset, and one past its last.

    With --json: {tenant: {partition: {"earliest": N, "end": N, "bytes": N}}}.
    """
    with _reported(), _open(endpoint, "default", token, tls_roots) as log:
        answer = log.offsets(tenant)
    if json_wanted:
        print(json.dumps(answer.as_json()))
        return
    print(f"{'tenant':<20} {'partition':>9} {'earliest':>14} {'end':>14} {'rows':>14}")
    for name, partitions in sorted(answer.tenants.items()):
        for number, held in sorted(partitions.items()):
            print(f"{name:<20} {number:>9} {held.earliest:>14} {held.end:>14} {held.count:>14}")


@app.command("tail")
def tail(
    endpoint: Endpoint = _HERE,
    tenant: Tenant = "default",
    token: Token = None,
    tls_roots: TlsRoots = None,
    topic: Topic = None,
    count: Annotated[
        int | None, typer.Option("-n", "--count", metavar="N", min=1, help="End after N rows.")
    ] = None,
    json_wanted: Json = False,
) -> None:
    """Print rows as they are committed, from now on, until Ctrl-C."""
    with _reported(), _open(endpoint, tenant, token, tls_roots) as log:
        batches = log.tail(topics=topic or ())
        try:
            _print_rows(batches, count, json_wanted=json_wanted)
        except KeyboardInterrupt:
            # The way a tail ends; nothing is left half done.
            return


@app.command("cat")
def cat(
    endpoint: Endpoint = _HERE,
    tenant: Tenant = "default",
    token: Token = None,
    tls_roots: TlsRoots = None,
    partition: Partition = None,
    start: Start = None,
    end: End = None,
    topic: Topic = None,
    count: Annotated[
        int | None, typer.Option("-n", "--count", metavar="N", min=1, help="End after N rows.")
    ] = None,
    json_wanted: Json = False,
) -> None:
    """Print the rows the log holds, partition by partition, each in the order of its offsets."""
    with _reported(), _open(endpoint, tenant, token, tls_roots) as log:
        ranges = choose_ranges(log.partitions(), partition or (), start, end)
        _print_rows(_read(log, ranges, topic or ()), count, json_wanted=json_wanted)


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; it must not exist.")],
    endpoint: Endpoint = _HERE,
    tenant: Tenant = "default",
    token: Token = None,
    tls_roots: TlsRoots = None,
    partition: Partition = None,
    start: Start = None,
    end: End = None,
    topic: Topic = None,
    format_wanted: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="parquet, arrow or jsonl (default: by FILE)."
        ),
    ] = None,
    json_wanted: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON, and no progress bar.")
    ] = False,
) -> None:
    """Write rows to one file: Parquet, an Arrow stream, or JSON lines.

    The file appears when it is whole.
    """
    with _reported():
        kind = choose_format(file, format_wanted)
        with _open(endpoint, tenant, token, tls_roots) as log:
            ranges = choose_ranges(log.partitions(), partition or (), start, end)
            total = sum(b - a for a, b in ranges.values())
            batches = _read(log, ranges, topic or ())
            with _progress(total, shown=not json_wanted) as watched:
                rows = write_file(file, kind, watched(batches))
    if json_wanted:
        print(json.dumps({"file": str(file), "format": kind, "rows": rows, "range": total}))
    else:
        print(f"{rows} rows in {file}")


@app.command("token")
def token(
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose rules apply to the reader.")],
) -> None:
    """Make a token for a reader of the log.

    The line for the file of `--flight-readers` goes to standard output, the token itself, which is
    in no file, to standard error: quantumqtt log token lake >> readers
    """
    with _reported():
        with extras_explained():
            from quantumqtt.flight import new_token, token_line
        secret = new_token()
        print(token_line(user, secret))
        print(secret, file=sys.stderr)


def choose_ranges(
    held: Mapping[int, PartitionRange],
    wanted: Sequence[int],
    start: int | None,
    end: int | None,
) -> dict[int, tuple[int, int]]:
    """Choose what to read of each partition.

    Raises:
        ConfigError: A partition is not there, or offsets are given for several.
    """
    if absent := sorted(set(wanted) - set(held)):
        raise ConfigError(
            f"--partition {absent[0]}: there is none of this number",
            hint=f"there are {', '.join(map(str, sorted(held))) or 'none yet'}",
        )
    numbers = sorted(set(wanted) or set(held))
    if (start is not None or end is not None) and len(numbers) > 1:
        raise ConfigError("--start and --end count within one partition", hint="add --partition N")
    return {
        number: (
            held[number].earliest if start is None else start,
            held[number].end if end is None else end,
        )
        for number in numbers
    }


def choose_format(file: Path, wanted: str | None) -> str:
    """Choose how to write, and see that the file is not there.

    Raises:
        ConfigError: No format is known by that name, or the file exists.
    """
    kind = wanted or file.suffix.removeprefix(".")
    if kind not in _FORMATS:
        raise ConfigError(
            f"cannot tell the format of {file.name}", hint=f"--format {' or '.join(_FORMATS)}"
        )
    if file.exists():
        raise ConfigError(f"{file} exists", hint="name another file, or remove it first")
    return kind


def write_file(file: Path, kind: str, batches: "Iterator[pa.RecordBatch]") -> int:
    """Write batches beside the file, and give it its name when all are there.

    Raises:
        StorageError: The disk did not take them; nothing is left.
    """
    partial = file.with_name(file.name + ".partial")
    try:
        rows = _WRITERS[kind](partial, batches)
        partial.rename(file)
    except OSError as error:
        raise StorageError(
            f"{file}: {error.strerror or error}", hint="make room or give rights, then try again"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return rows


def _write_parquet(file: Path, batches: "Iterator[pa.RecordBatch]") -> int:
    import pyarrow.parquet as pq

    from quantumqtt.logwire.schema import LOG_SCHEMA

    rows = 0
    with pq.ParquetWriter(file, LOG_SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_arrow(file: Path, batches: "Iterator[pa.RecordBatch]") -> int:
    import pyarrow as pa

    from quantumqtt.logwire.schema import LOG_SCHEMA

    rows = 0
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, LOG_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_lines(file: Path, batches: "Iterator[pa.RecordBatch]") -> int:
    rows = 0
    with file.open("w", encoding="utf-8") as sink:
        for batch in batches:
            for row in batch.to_pylist():
                print(as_line(row), file=sink)
            rows += batch.num_rows
    return rows


_WRITERS: Final = {"parquet": _write_parquet, "arrow": _write_arrow, "jsonl": _write_lines}


def as_line(row: Mapping[str, object]) -> str:
    """Spell a row as JSON; bytes that are no text become base64 under `…_base64`."""
    fields: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            try:
                fields[name] = value.decode()
            except UnicodeDecodeError:
                import base64

                fields[f"{name}_base64"] = base64.b64encode(value).decode()
        elif hasattr(value, "isoformat"):
            fields[name] = value.isoformat()
        elif value is not None:
            fields[name] = value
    return json.dumps(fields, ensure_ascii=False)


def as_words(row: Mapping[str, object]) -> str:
    """Spell a row for people: place, time, topic, payload; bytes that are no text in hex."""
    payload = row["payload"]
    assert isinstance(payload, bytes), "payloads are bytes"
    try:
        text = payload.decode()
        shown = text if text.isprintable() else repr(text)[1:-1]
    except UnicodeDecodeError:
        shown = f"0x{payload.hex()}"
    moment = row["ts"]
    assert hasattr(moment, "isoformat"), "times are times"
    when = moment.isoformat(timespec="milliseconds")
    return f"{row['partition']}:{row['offset']} {when} {row['topic']} {shown}"


def _read(
    log: "LogReader", ranges: Mapping[int, tuple[int, int]], topics: Sequence[str]
) -> "Iterator[pa.RecordBatch]":
    for number, (start, end) in ranges.items():
        yield from log.read(number, start, end, topics=topics)


def _print_rows(
    batches: "Iterator[pa.RecordBatch]", count: int | None, *, json_wanted: bool
) -> None:
    left = count
    for batch in batches:
        rows = batch if left is None else batch.slice(0, left)
        for row in rows.to_pylist():
            print(as_line(row) if json_wanted else as_words(row))
        sys.stdout.flush()
        if left is not None:
            left -= rows.num_rows
            if left <= 0:
                return


@contextmanager
def _open(
    endpoint: str, tenant: str, token: str | None, tls_roots: str | None
) -> "Iterator[LogReader]":
    with extras_explained():
        from quantumqtt.logreader import LogPlace, LogReader
        from quantumqtt.logreader.place import read_roots
    place = LogPlace(endpoint=endpoint, token=token, tls_roots=read_roots(tls_roots))
    with LogReader(place, tenant=tenant) as log:
        yield log


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


class _Watched:
    """Passes batches on and moves the bar."""

    def __init__(self, bar: Progress, total: int) -> None:
        self._bar = bar
        self._task = bar.add_task("rows", total=total)

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            yield batch
            self._bar.advance(self._task, batch.num_rows)


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[_Watched]:
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not (shown and console.is_terminal)
    ) as bar:
        yield _Watched(bar, total)
