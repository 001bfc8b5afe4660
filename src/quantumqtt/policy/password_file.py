"""The password file: one `user:hash` per line, as `mosquitto_passwd` keeps it.

Empty lines and lines that begin with `#` are left alone, when reading and when writing. A file with
one bad line is refused as a whole; every problem names file, line and remedy. Writing is all or
nothing: a new file is written beside the old one, made durable, and takes its place.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from quantumqtt.errors import ConfigError
from quantumqtt.policy.passwords import PasswordHash, parse_hash
from quantumqtt.policy.rule_file import PROBLEMS_SHOWN_MAX, read_text

PASSWORD_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
USER_BYTES_MAX: Final = 65_535

Users = Mapping[str, PasswordHash]


def load_users(file: Path) -> Users:
    """Read every user of a file.

    Raises:
        ConfigError: The file cannot be read, or a line of it cannot.
    """
    return parse_users(read_text(file, bytes_max=PASSWORD_FILE_BYTES_MAX), file)


def parse_users(text: str, file: Path) -> Users:
    """Read every user of a text; `file` stands in what is said about it.

    Raises:
        ConfigError: A line holds no user, the same one twice, or no hash.
    """
    users: dict[str, PasswordHash] = {}
    problems: list[tuple[str, str]] = []
    for number, line in _entries(text):
        try:
            name, found = _entry(line)
            if name in users:
                raise ConfigError(f"{name!r} stands there twice", hint="remove one of the lines")
            users[name] = found
        except ConfigError as error:
            problems.append((f"{file}:{number}: {error}", error.hint or "repair the line"))
    if problems:
        shown = problems[:PROBLEMS_SHOWN_MAX]
        raise ConfigError(
            "\n".join(said for said, _ in shown), hint="\n".join(hint for _, hint in shown)
        )
    return users


def _entries(text: str) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        if line.strip() and not line.startswith("#"):
            yield number, line


def _entry(line: str) -> tuple[str, PasswordHash]:
    name, separator, hashed = line.partition(":")
    if not separator or not hashed.strip():
        # What follows a missing colon may be a password: it is not repeated.
        raise ConfigError("no user:hash", hint="write it with: quantumqtt passwd FILE USER")
    check_user_name(name)
    return name, parse_hash(hashed.strip())


def check_user_name(name: str) -> None:
    """Make sure that a name can stand in the file and in CONNECT.

    Raises:
        ConfigError: It cannot.
    """
    if not name:
        raise ConfigError("the user name is empty", hint="write a name before the colon")
    if any(character in ":\n\r\0" for character in name):
        raise ConfigError(
            "a user name holds no colon, line end or null character", hint="choose another name"
        )
    if len(name.encode()) > USER_BYTES_MAX:
        raise ConfigError("the user name is too long for MQTT", hint="choose a shorter name")


def with_user(text: str, name: str, hashed: str) -> str:
    """Give a user this hash: in place, or at the end."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if _names(line, name):
            lines[index] = f"{name}:{hashed}"
            return "\n".join(lines)
    separator = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{separator}{name}:{hashed}\n"


def without_user(text: str, name: str) -> str | None:
    """Take a user out; None when there is none of this name."""
    lines = text.split("\n")
    kept = [line for line in lines if not _names(line, name)]
    return None if len(kept) == len(lines) else "\n".join(kept)


def plain_entries(text: str) -> Iterator[tuple[str, str]]:
    """List users whose password is not hashed yet."""
    for _, line in _entries(text):
        name, separator, secret = line.partition(":")
        if separator and secret and not secret.startswith("$"):
            yield name, secret


def _names(line: str, name: str) -> bool:
    return not line.startswith("#") and line.startswith(f"{name}:")


def replace_file(file: Path, text: str) -> None:
    """Put a new file in the place of the old one, readable by its owner only.

    Raises:
        ConfigError: The directory or the file cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            Path(temporary).replace(file)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{file}: cannot be written: {reason}", hint="check the path and who may write there"
        ) from error
