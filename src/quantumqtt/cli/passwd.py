"""`quantumqtt passwd FILE USER`: keep a password file, with the flags of `mosquitto_passwd`.

Unlike its model it makes a file that is not there yet, hashes with argon2id unless told otherwise,
and never leaves a half-written file behind.
"""

import getpass
import sys
from pathlib import Path
from typing import Annotated, Final, get_args

import typer

from quantumqtt.cli.failures import ExitCode, exit_code_of, report
from quantumqtt.errors import ConfigError, QuantuMQTTError
from quantumqtt.policy.password_file import (
    PASSWORD_FILE_BYTES_MAX,
    check_user_name,
    parse_users,
    plain_entries,
    replace_file,
    with_user,
    without_user,
)
from quantumqtt.policy.passwords import (
    PASSWORD_BYTES_MAX,
    PBKDF2_ITERATIONS_MAX,
    SCRAM_ITERATIONS_MIN,
    HashKind,
    hash_password,
)
from quantumqtt.policy.rule_file import read_text

_KINDS: Final[tuple[HashKind, ...]] = get_args(HashKind)


def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Password file.")],
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="User to add or change.")
    ] = None,
    password: Annotated[
        str | None, typer.Argument(metavar="PASSWORD", help="With -b: the password.")
    ] = None,
    batch: Annotated[
        bool, typer.Option("-b", help="Take the password from the command line, seen by all.")
    ] = False,
    create: Annotated[
        bool, typer.Option("-c", help="Begin a new file, even where there is one.")
    ] = False,
    delete: Annotated[bool, typer.Option("-D", help="Delete the user.")] = False,
    upgrade: Annotated[
        bool, typer.Option("-U", help="Hash every password that stands there in plain text.")
    ] = False,
    kind: Annotated[
        str,
        typer.Option(
            "-H", metavar="HASH", help="argon2id, sha512-pbkdf2, sha512 or scram-sha-256."
        ),
    ] = "argon2id",
    iterations: Annotated[
        int | None,
        typer.Option("-I", metavar="N", help="Iterations of sha512-pbkdf2 and scram-sha-256."),
    ] = None,
) -> None:
    """Add, change or delete a user of a password file.

    The password is asked for twice; when standard input is no terminal, its first line is taken.
    A running broker reads the file again on SIGHUP.
    """
    try:
        chosen = _kind(kind, iterations)
        if upgrade:
            _upgrade(file, user, chosen, iterations)
        elif user is None:
            raise ConfigError("a user is missing", hint="write quantumqtt passwd FILE USER")
        elif delete:
            _delete(file, user)
        else:
            if batch != (password is not None):
                raise ConfigError(
                    "a password on the command line and -b belong together",
                    hint="write -b FILE USER PASSWORD, or leave both out",
                )
            secret = _ask() if password is None else password.encode()
            _put(file, user, secret, chosen, iterations, fresh=create)
    except QuantuMQTTError as error:
        report(error)
        raise typer.Exit(exit_code_of(error)) from error
    raise typer.Exit(ExitCode.OK)


def _kind(word: str, iterations: int | None) -> HashKind:
    for known in _KINDS:
        if word == known:
            break
    else:
        raise ConfigError(f"{word!r} is no hash", hint=f"choose one of {', '.join(_KINDS)}")
    least = SCRAM_ITERATIONS_MIN if known == "scram-sha-256" else 1
    if iterations is not None and not least <= iterations <= PBKDF2_ITERATIONS_MAX:
        raise ConfigError(
            f"{iterations} iterations are out of range",
            hint=f"choose {least} to {PBKDF2_ITERATIONS_MAX}",
        )
    return known


def _text(file: Path) -> str:
    return read_text(file, bytes_max=PASSWORD_FILE_BYTES_MAX) if file.exists() else ""


def _put(
    file: Path, user: str, secret: bytes, kind: HashKind, iterations: int | None, *, fresh: bool
) -> None:
    check_user_name(user)
    if user.startswith("#"):
        raise ConfigError("a line that begins with # is a comment", hint="choose another name")
    if not secret or len(secret) > PASSWORD_BYTES_MAX:
        raise ConfigError(
            "a password has 1 to 65535 bytes", hint="MQTT cannot carry more; choose another one"
        )
    text = "" if fresh else _text(file)
    parse_users(text, file)  # a broken file is told before it is touched
    replace_file(file, with_user(text, user, hash_password(secret, kind, iterations=iterations)))


def _delete(file: Path, user: str) -> None:
    text = read_text(file, bytes_max=PASSWORD_FILE_BYTES_MAX)
    left = without_user(text, user)
    if left is None:
        raise ConfigError(f"{file}: no user {user!r}", hint="check the name; case matters")
    replace_file(file, left)


def _upgrade(file: Path, user: str | None, kind: HashKind, iterations: int | None) -> None:
    if user is not None:
        raise ConfigError("-U takes a whole file", hint="write quantumqtt passwd -U FILE")
    text = read_text(file, bytes_max=PASSWORD_FILE_BYTES_MAX)
    plain = list(plain_entries(text))
    for name, secret in plain:
        text = with_user(text, name, hash_password(secret.encode(), kind, iterations=iterations))
    parse_users(text, file)
    replace_file(file, text)
    print(f"{file}: {len(plain)} passwords hashed")


def _ask() -> bytes:
    if not sys.stdin.isatty():
        return sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 2).rstrip(b"\r\n")
    first = getpass.getpass("Password: ")
    if first != getpass.getpass("Once more: "):
        raise ConfigError("the two passwords differ", hint="try again")
    return first.encode()
