"""Enhanced authentication of MQTT 5: SCRAM-SHA-256 (RFC 5802, RFC 7677), and tokens.

An authenticator answers challenges; it never sees a packet. One object serves one client, through
all its connections and re-authentications.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from quantumqtt.errors import NotAuthorized
from quantumqtt.mqtt import saslprep

_ITERATIONS_MIN: Final = 4096
_ITERATIONS_MAX: Final = 10_000_000
_NO_CHANNEL_BINDING: Final = "n,,"


class TokenAuthenticator:
    """Sends a token that somebody else issued, fetched anew for every proof.

    `fetch` is called on the client's loop and must not block.
    """

    def __init__(self, method: str, fetch: Callable[[], bytes]) -> None:
        """Offer `method`, whose data is what `fetch` returns."""
        self.method = method
        self._fetch = fetch

    def start(self) -> bytes:
        """The token."""
        return self._fetch()

    def answer(self, challenge: bytes | None) -> bytes:
        """The token again: a server that asks wants a fresh one."""
        return self._fetch()

    def finish(self, data: bytes | None) -> None:
        """A token proves the client only; nothing to check."""


class ScramSha256:
    """Proves a password without sending it, and makes the server prove that it knows it, too."""

    method: str = "SCRAM-SHA-256"

    def __init__(
        self,
        user_name: str,
        password: str,
        *,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        """Keep the credentials, spelled as SASLprep wants them; nothing is computed yet.

        Raises:
            ValueError: One of them holds a character that no name or password may.
        """
        self._user_name = saslprep(user_name).replace("=", "=3D").replace(",", "=2C")
        self._password = saslprep(password).encode()
        self._new_nonce = new_nonce
        self._nonce = ""
        self._first = ""
        self._server_signature = b""

    def start(self) -> bytes:
        """The first message: who we are, and a nonce."""
        self._nonce = self._new_nonce()
        self._first = f"n={self._user_name},r={self._nonce}"
        self._server_signature = b""
        return f"{_NO_CHANNEL_BINDING}{self._first}".encode()

    def answer(self, challenge: bytes | None) -> bytes:
        """The proof.

        Raises:
            NotAuthorized: The challenge is not one of SCRAM, or asks for careless work.
        """
        text = _text(challenge)
        fields = _fields(text)
        try:
            nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
            iterations = int(fields["i"])
        except (KeyError, ValueError) as error:
            raise _distrust("its challenge is malformed") from error
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise _distrust("it did not add to our nonce")
        if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise _distrust(f"it asks for {iterations} iterations")
        salted = hashlib.pbkdf2_hmac("sha256", self._password, salt, iterations)
        client_key = _sign(salted, b"Client Key")
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        final = f"c={binding},r={nonce}"
        signed = f"{self._first},{text},{final}".encode()
        signature = _sign(hashlib.sha256(client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = _sign(_sign(salted, b"Server Key"), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def finish(self, data: bytes | None) -> None:
        """Check the server's own proof.

        Raises:
            NotAuthorized: It does not know the password.
        """
        fields = _fields(_text(data))
        try:
            signature = base64.b64decode(fields["v"], validate=True)
        except (KeyError, ValueError) as error:
            raise _distrust("its last message is malformed") from error
        expected = self._server_signature
        if not expected or not hmac.compare_digest(signature, expected):
            raise _distrust("it does not know our password")


def _sign(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _text(data: bytes | None) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError as error:
        raise _distrust("its data is no text") from error


def _fields(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _distrust(why: str) -> NotAuthorized:
    return NotAuthorized(
        f"SCRAM-SHA-256: the server could not prove who it is: {why}",
        "is this the right server? nothing secret was sent",
        0x87,
    )
