"""Password hashes and the file that holds them."""

import subprocess
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantumqtt.config import split_error
from quantumqtt.errors import ConfigError
from quantumqtt.policy.password_file import (
    load_users,
    parse_users,
    plain_entries,
    replace_file,
    with_user,
    without_user,
)
from quantumqtt.policy.passwords import HashKind, hash_password, parse_hash
from tests.harness.complaints import complaints

FILE = Path("users")
KINDS: tuple[HashKind, ...] = get_args(HashKind)

pytestmark = pytest.mark.requirement("SEC-17")


@pytest.mark.parametrize("kind", KINDS)
def test_hash_knows_its_password_and_no_other(kind: HashKind) -> None:
    text = hash_password(b"secret", kind, iterations=4_096)
    assert b"secret" not in text.encode()
    assert text != hash_password(b"secret", kind, iterations=4_096), "salted"
    known = parse_hash(text)
    assert known.verify(b"secret")
    for wrong in (b"", b"Secret", b"secret ", b"secret\0", b"secre"):
        assert not known.verify(wrong), wrong


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("secret", "not hashed"),
        ("$5$abc$def", "no password hash we know"),
        ("$7$0$c2FsdA==$" + "A" * 86 + "==", "out of range"),
        ("$7$99999999$c2FsdA==$" + "A" * 86 + "==", "out of range"),
        ("$7$x$c2FsdA==$" + "A" * 86 + "==", "iterations is none"),
        ("$7$100$c2FsdA==$AAAA", "wrong length"),
        ("$6$c2FsdA==$", "empty part"),
        ("$scram-sha-256$1000$c2FsdA==$AAAA$AAAA", "no client would accept"),
        ("$scram-sha-256$4096$c2FsdA==$AAAA$AAAA", "no client would accept"),
        ("$scram-sha-256$4096$c2FsdA==$AAAA", "no password hash we know"),
        ("$6$c2FsdA==$?", "no base64"),
        ("$argon2i$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$aGFzaA", "argon2i and argon2d"),
        ("$argon2id$v=19$m=19456,t=2$c29tZXNhbHQ$aGFzaA", "damaged"),
        ("$argon2id$v=19$m=4294967295,t=2,p=1$c29tZXNhbHQ$aGFzaA", "costs too much"),
    ],
)
def test_bad_hash_is_refused_before_anybody_comes(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_users(f"# x\nada:{text}\n", FILE)
    assert str(caught.value).startswith("users:2: ")
    assert caught.value.hint


def test_every_bad_line_is_named_and_no_secret_repeated() -> None:
    text = "ada:hunter2\n\nno-colon-hunter2\n:x\nbob:$6$c2FsdA==$\n"
    with pytest.raises(ConfigError) as caught:
        parse_users(text, FILE)
    problems = list(split_error(caught.value))
    assert [line.split(": ")[0] for line, _ in problems] == [f"users:{n}" for n in (1, 3, 4, 5)]
    assert "hunter2" not in str(caught.value)


def test_user_that_stands_there_twice_is_refused() -> None:
    entry = "ada:" + hash_password(b"x", "sha512")
    with pytest.raises(ConfigError, match="users:2: 'ada' stands there twice"):
        parse_users(f"{entry}\n{entry}\n", FILE)


def test_editing_leaves_everything_else_alone(tmp_path: Path) -> None:
    text = "# mine\nada:1\n\nbob:2"
    assert with_user(text, "ada", "3") == "# mine\nada:3\n\nbob:2"
    assert with_user(text, "eve", "4") == "# mine\nada:1\n\nbob:2\neve:4\n"
    assert without_user(text, "ada") == "# mine\n\nbob:2"
    assert without_user(text, "ad") is None
    assert list(plain_entries("a:b\nc:$6$x$y\n#d:e\n")) == [("a", "b")]
    file = tmp_path / "users"
    replace_file(file, text)
    assert file.read_text(encoding="utf-8") == text
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(ConfigError, match="cannot be written"):
        replace_file(tmp_path / "none" / "users", text)


@settings(max_examples=200)
@given(st.text(alphabet=st.sampled_from("ab:$67=argon2id,mtpv19#\n\r\0 "), max_size=120))
def test_any_text_is_users_or_a_named_complaint(text: str) -> None:
    found = complaints(lambda: parse_users(text, FILE))
    assert all(line.startswith("users:") and hint for line, hint in found)


@pytest.mark.needs_program("mosquitto_passwd")
def test_files_of_mosquitto_passwd_are_read(tmp_path: Path) -> None:
    file = tmp_path / "users"
    for flags, name in ((["-c"], "ada"), (["-H", "sha512"], "bob")):
        subprocess.run(
            ["mosquitto_passwd", *flags, "-b", str(file), name, f"{name}-secret"], check=True
        )
    users = load_users(file)
    for name in ("ada", "bob"):
        assert users[name].verify(f"{name}-secret".encode())
        assert not users[name].verify(b"other")


def test_a_scram_verifier_fits_every_spelling_of_its_password() -> None:
    for typed in ("p\u00e4ss", "pa\u0308ss"):
        stored = parse_hash(hash_password(typed.encode(), "scram-sha-256", iterations=4096))
        assert stored.verify("p\u00e4ss".encode())
        assert stored.verify("pa\u0308ss".encode())
        assert not stored.verify(b"pass")
    odd = parse_hash(hash_password(b"\xff\x07", "scram-sha-256", iterations=4096))
    assert odd.verify(b"\xff\x07"), "what cannot be prepared is taken as it is"
