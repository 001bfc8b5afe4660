"""`quantumqtt ctl …`: ask a broker, or its files, about what it does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from quantumqtt.cli.failures import ExitCode, exit_code_of, report
from quantumqtt.config import load_settings, parse_admin
from quantumqtt.errors import ConfigError, QuantuMQTTError, TransportError
from quantumqtt.policy import explain
from quantumqtt.policy.rule_file import load_rules

app = typer.Typer(
    help="Ask a broker, or its files, about what it does.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_ANSWER_BYTES_MAX: Final = 1_048_576
_TIMEOUT_S: Final = 10.0


@app.command("why-denied")
def why_denied(
    client: Annotated[str, typer.Option(metavar="ID", help="Client id.")],
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Topic, or filter to subscribe to.")],
    user: Annotated[str, typer.Option(metavar="NAME", help="User name; none is anonymous.")] = "",
    action: Annotated[
        str, typer.Option(metavar="ACTION", help="read, write or subscribe.")
    ] = "read",
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Ask the files this configuration names."),
    ] = None,
    acl_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ask this rule file.")
    ] = None,
    admin: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Ask the broker with this admin address.")
    ] = "127.0.0.1:8080",
    json_wanted: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say whether a client may do something, and by which rule on which line.

    Without --config and --acl-file a running broker is asked, so the answer is about the rules in
    force. The exit code is 0 whatever the answer is.
    """
    try:
        if config is not None:
            acl_file = load_settings(file=config).acl_file
        if config is not None or acl_file is not None:
            rules = None if acl_file is None else load_rules(acl_file)
            answer = explain(rules, user=user, client_id=client, action=action, topic=topic)
        else:
            answer = _ask(admin, {"client": client, "user": user, "action": action, "topic": topic})
    except QuantuMQTTError as error:
        report(error)
        raise typer.Exit(exit_code_of(error)) from error
    print(json.dumps(answer) if json_wanted else _sentence(answer))
    raise typer.Exit(ExitCode.OK)


Admin = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Ask the broker with this admin address.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
_ADMIN: Final = "127.0.0.1:8080"


@app.command("digest")
def digest(admin: Admin = _ADMIN, json_wanted: Json = False) -> None:
    """Print the digest of a running broker's state, and the last log entry in it.

    Equal states have equal digests; `quantumqtt log digest` has that of a stopped broker. All of
    the state is walked for it.
    """
    answer = _asked(admin, "/v1/digest", "digest")
    words = f"{answer['digest']} at index {answer['index']}"
    print(json.dumps(answer) if json_wanted else words)


@app.command("session")
def session(
    client: Annotated[str, typer.Argument(metavar="ID", help="Client id.")],
    admin: Admin = _ADMIN,
    json_wanted: Json = False,
) -> None:
    """Show what a running broker stores of a client's session.

    Subscriptions, exchanges under way, what waits, the will and when it all ends. Exits with 2 when
    nothing is stored for the client.
    """
    import urllib.parse

    answer = _asked(admin, f"/v1/sessions/{urllib.parse.quote(client, safe='')}", "client_id")
    if json_wanted:
        print(json.dumps(answer))
        return
    for name, value in answer.items():
        print(f"{name:<16} {value}")


def _asked(admin: str, path: str, expected: str) -> Mapping[str, object]:
    try:
        return _get(admin, path, expected)
    except QuantuMQTTError as error:
        report(error)
        raise typer.Exit(exit_code_of(error)) from error


def _sentence(answer: Mapping[str, object]) -> str:
    verdict = "allowed" if answer["allowed"] else "denied"
    if answer.get("place"):
        return f"{verdict} by {answer['place']}: {answer['rule']}"
    return f"{verdict}: {answer['why']}"


def _ask(admin: str, question: Mapping[str, str]) -> Mapping[str, object]:
    import urllib.parse

    path = f"/v1/why-denied?{urllib.parse.urlencode(question)}"
    return _get(admin, path, "allowed", otherwise=", or ask with --acl-file")


def _get(admin: str, path: str, expected: str, *, otherwise: str = "") -> Mapping[str, object]:
    # Loaded here: every command would pay for it otherwise.
    import urllib.error
    import urllib.request

    address = parse_admin(admin)
    if address is None:
        raise ConfigError("there is nobody to ask at off", hint="write --admin HOST:PORT")
    try:
        with urllib.request.urlopen(f"{address.url}{path}", timeout=_TIMEOUT_S) as reply:
            answer = json.loads(reply.read(_ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        raise ConfigError(_problem(error), hint=f"check the arguments{otherwise}") from error
    except (OSError, ValueError) as error:
        raise TransportError(
            f"cannot ask {address.url}: {error}",
            hint=f"is a broker running with this --admin address?{otherwise}",
        ) from error
    if not isinstance(answer, dict) or expected not in answer:
        raise TransportError(f"{address.url} is no broker of ours", hint="check --admin")
    return answer


def _problem(error: IO[bytes]) -> str:
    try:
        told = json.loads(error.read(_ANSWER_BYTES_MAX))
    except (OSError, ValueError):
        told = None
    if isinstance(told, dict) and "problem" in told:
        return str(told["problem"])
    return "the broker did not say why"
