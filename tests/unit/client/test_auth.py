"""SCRAM-SHA-256 against the example of RFC 7677, and against servers that cheat."""

import pytest

from quantumqtt.client.auth import ScramSha256, TokenAuthenticator
from quantumqtt.errors import NotAuthorized

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> ScramSha256:
    return ScramSha256("user", "pencil", new_nonce=lambda: NONCE)


def test_the_example_of_the_standard() -> None:
    authenticator = scram()
    assert authenticator.start() == f"n,,n=user,r={NONCE}".encode()
    assert authenticator.answer(SERVER_FIRST) == CLIENT_FINAL
    authenticator.finish(SERVER_FINAL)


@pytest.mark.parametrize(
    "challenge",
    [
        None,
        b"\xff",
        b"r=somebody-elses,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"4096", b"1"),
        SERVER_FIRST.replace(b"4096", b"4000000000"),
        SERVER_FIRST.replace(b"W22", b"!!!"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    ],
)
def test_a_server_that_cheats_gets_no_proof(challenge: bytes | None) -> None:
    authenticator = scram()
    authenticator.start()
    with pytest.raises(NotAuthorized):
        authenticator.answer(challenge)


@pytest.mark.parametrize("last", [None, b"v=AAAA", b"e=other-error", b"v=?"])
def test_a_server_that_does_not_know_the_password_is_left(last: bytes | None) -> None:
    authenticator = scram()
    authenticator.start()
    authenticator.answer(SERVER_FIRST)
    with pytest.raises(NotAuthorized):
        authenticator.finish(last)


def test_a_success_without_any_proof_is_refused() -> None:
    authenticator = scram()
    authenticator.start()
    with pytest.raises(NotAuthorized):
        authenticator.finish(SERVER_FINAL)


def test_names_are_escaped() -> None:
    authenticator = ScramSha256("a=b,c", "x", new_nonce=lambda: "n")
    assert authenticator.start() == b"n,,n=a=3Db=2Cc,r=n"


def test_names_and_passwords_are_prepared() -> None:
    composed = ScramSha256("p\u00e4ss", "\u00e9", new_nonce=lambda: NONCE)
    typed = ScramSha256("pa\u0308ss", "e\u0301", new_nonce=lambda: NONCE)
    assert typed.start() == composed.start()
    assert typed.answer(SERVER_FIRST) == composed.answer(SERVER_FIRST)
    with pytest.raises(ValueError, match="U\\+0007"):
        ScramSha256("bell\a", "x")


def test_a_token_is_fetched_for_every_proof() -> None:
    tokens = iter([b"one", b"two"])
    authenticator = TokenAuthenticator("TOKEN", lambda: next(tokens))
    assert (authenticator.start(), authenticator.answer(None)) == (b"one", b"two")
    authenticator.finish(None)
