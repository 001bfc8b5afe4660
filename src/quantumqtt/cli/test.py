"""`quantumqtt test URL`: does this broker obey MQTT?"""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from quantumqtt.cli.failures import ExitCode, report
from quantumqtt.cli.mosquitto.options import PORT, PORT_TLS, PUB, Options, split_port
from quantumqtt.cli.mosquitto.usage import UsageError, refuse
from quantumqtt.errors import QuantuMQTTError

if TYPE_CHECKING:
    from quantumqtt.cli.probe.run import Results

_VERSIONS: Final = {"3.1.1": [4], "5": [5], "all": [4, 5]}
_WORDS: Final = {"kept": "kept", "violated": "violated", "not offered": "–"}


def probe_broker(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="mqtt(s)://[user[:password]@]host[:port]")
    ],
    version: Annotated[str, typer.Option("--version", "-V", help="3.1.1, 5 or all.")] = "all",
    user_name: Annotated[str | None, typer.Option("--username", "-u", help="User name.")] = None,
    password: Annotated[str | None, typer.Option("--pw", "-P", help="Password.")] = None,
    cafile: Annotated[
        str | None, typer.Option("--cafile", help="Trust these authorities (PEM).")
    ] = None,
    cert: Annotated[str | None, typer.Option("--cert", help="Our certificate (PEM).")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Its private key (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not compare the certificate's name.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", help="How long an answer may take, in seconds.", min=0.05)
    ] = 5.0,
    polite: Annotated[
        bool, typer.Option("--polite", help="Send nothing that breaks MQTT.")
    ] = False,
    only: Annotated[
        str | None, typer.Option("--only", metavar="TEXT", help="Ask what has this in its name.")
    ] = None,
    json_wanted: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Ask any broker, clause by clause, whether it obeys MQTT 3.1.1 and 5.

    Safe for a broker in use: topics begin with quantumqtt-test/ and a random part, client ids are
    random, and what was retained or kept is removed at the end. Packets that break MQTT end
    connections of this program only; --polite leaves them out.
    """
    from quantumqtt.cli.probe.run import Verdict, chosen, run

    try:
        if version not in _VERSIONS:
            refuse(f"--version {version!r}", "one of 3.1.1, 5, all")
        target = _target(url, user_name, password)
        target.cafile, target.cert, target.key, target.insecure = cafile, cert, key, insecure
        watching = sys.stderr.isatty() and not json_wanted

        def on_check(one: object, _version: int) -> None:
            if watching:
                title = getattr(one, "title", "")
                print(f"\r\x1b[K{title} …", end="", file=sys.stderr, flush=True)

        checks = chosen(polite=polite, only=only)
        if not checks:
            refuse(f"--only {only!r}: no check has that in its name or clause")
        results = run(
            target, _VERSIONS[version], timeout_s=timeout, checks=checks, on_check=on_check
        )
        if watching:
            print("\r\x1b[K", end="", file=sys.stderr)
    except QuantuMQTTError as error:
        report(error)
        code = ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILED
        raise typer.Exit(code) from error
    if json_wanted:
        print(json.dumps(_document(url, results), ensure_ascii=False))
    else:
        _print_table(results)
    if results.count(Verdict.VIOLATED):
        raise typer.Exit(ExitCode.VIOLATED)
    if not results.findings or results.left_behind:
        raise typer.Exit(ExitCode.FAILED)


def _target(url: str, user_name: str | None, password: str | None) -> Options:
    """Where to connect, from a URL.

    Raises:
        UsageError: It is none we know.
    """
    options = Options(PUB)
    scheme, separator, place = url.partition("://")
    if not separator:
        scheme, place = "mqtt", url
    if scheme == "unix":
        options.unix = place
    elif scheme in ("mqtt", "tcp", "mqtts", "tls", "ssl"):
        options.tls_use_os_certs = scheme in ("mqtts", "tls", "ssl")
        credentials, at, place = place.partition("/")[0].rpartition("@")
        if at:
            options.user_name, colon, secret = credentials.partition(":")
            options.password = secret if colon else None
        default = PORT_TLS if options.tls_use_os_certs else PORT
        options.host, options.port = split_port(place, default)
    else:
        refuse(f"{url!r}: unknown scheme {scheme!r}", "one of mqtt://, mqtts://, unix://")
    options.user_name = user_name if user_name is not None else options.user_name
    options.password = password if password is not None else options.password
    return options


def _document(url: str, results: "Results") -> dict[str, object]:
    return {
        "url": url.rpartition("@")[2],
        "kept": sum(one.verdict.value == "kept" for one in results.findings),
        "violated": sum(one.verdict.value == "violated" for one in results.findings),
        "not_offered": sum(one.verdict.value == "not offered" for one in results.findings),
        "not_spoken": results.not_spoken,
        "left_behind": list(results.left_behind),
        "checks": [
            {
                "version": one.version,
                "clause": one.clause,
                "title": one.title,
                "verdict": one.verdict.value,
                "detail": one.detail,
            }
            for one in results.findings
        ],
    }


def _print_table(results: "Results") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    versions = list(dict.fromkeys(one.version for one in results.findings))
    table = Table(box=None, pad_edge=False)
    table.add_column("clause")
    table.add_column("what it asks")
    for name in versions:
        table.add_column(name)
    rows: dict[str, dict[str, tuple[str, str]]] = {}
    for one in results.findings:
        rows.setdefault(one.title, {})[one.version] = (one.clause, one.verdict.value)
    colours = {"kept": "green", "violated": "bold red", "not offered": "dim"}
    for title, cells in rows.items():
        clauses = " ".join(dict.fromkeys(f"\\[{clause}]" for clause, _ in cells.values()))
        shown = [cells.get(name, ("", ""))[1] for name in versions]
        table.add_row(
            clauses,
            title,
            *(f"[{colours[verdict]}]{_WORDS[verdict]}[/]" if verdict else "" for verdict in shown),
        )
    console.print(table)
    for one in results.findings:
        if one.verdict.value != "kept":
            colour = colours[one.verdict.value]
            console.print(
                f"\n[{colour}]{one.verdict.value}[/] \\[{one.clause}] MQTT {one.version}:"
                f" {one.title}\n  ",
                end="",
            )
            console.print(one.detail, markup=False)
    for name, why in results.not_spoken.items():
        console.print(f"\nMQTT {name} is not spoken here: {why}", markup=False)
    for line in results.left_behind:
        console.print(f"\nnot removed: {line}", markup=False)
    counts = {word: sum(one.verdict.value == word for one in results.findings) for word in colours}
    console.print("\n" + ", ".join(f"{count} {word}" for word, count in counts.items()))
