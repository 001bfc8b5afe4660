"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side.

The client proves that it knows its password, and the server that it knows the verifier; neither is
sent. A verifier is what the password file keeps of such a user: salt, iterations, `StoredKey` and
`ServerKey`. Whoever steals it can test guesses, no more.

Rules:
- A user nobody knows, or one without a verifier, gets a salt of their own all the same: derived
  from the name under a key of this process, so that asking twice gives the same. The exchange then
  fails where a wrong password fails.
- Names are prepared by SASLprep (RFC 4013), here and by our client, and so are passwords when a
  verifier is made. A name that stands in the file as the client spells it needs no preparation.
- Channel binding is not offered: `n` and `y` are taken, `p` is refused.
- The verifier that counts is the one in force when the proof arrives.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quantumqtt.mqtt import ReasonCode, saslprep
from quantumqtt.policy.mechanisms import AuthRequest, AuthStep, Exchange
from quantumqtt.policy.password_file import Users
from quantumqtt.policy.passwords import SCRAM_ITERATIONS, ScramHash

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
# Longer than any honest message; a user name may be as long as MQTT lets it.
MESSAGE_BYTES_MAX: Final = 128 * 1024
_REFUSED: Final = AuthStep.refuse()


class ScramMechanism:
    """Checks users of the password file."""

    name: str = SCRAM_SHA_256

    def __init__(
        self,
        users: Callable[[], Users],
        *,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        """Ask `users` at each step who is known."""
        self._users = users
        self._new_nonce = new_nonce
        self._decoy_key = secrets.token_bytes(32)

    def begin(self, request: AuthRequest) -> Exchange:
        """Begin; who the client is, its first message says."""
        return _ScramExchange(self)

    def verifier_of(self, name: str) -> ScramHash | None:
        """Find what is kept of a user."""
        known = self._users().get(name)
        return known if isinstance(known, ScramHash) else None

    def decoy_of(self, name: str) -> ScramHash:
        """Make up a verifier that no password fits."""
        salt = hmac.digest(self._decoy_key, name.encode(), "sha256")[:16]
        keys = secrets.token_bytes(32), secrets.token_bytes(32)
        return ScramHash(SCRAM_ITERATIONS, salt, *keys)

    def new_nonce(self) -> str:
        """Draw our half of the nonce."""
        return self._new_nonce()


@dataclass(slots=True)
class _ScramExchange:
    mechanism: ScramMechanism
    name: str = ""
    header: str = ""
    first_bare: str = ""
    server_first: str = ""
    nonce: str = ""
    is_over: bool = False

    async def step(self, data: bytes | None) -> AuthStep:
        """Answer the client's first message with a challenge, its second with a verdict."""
        try:
            text = (data or b"").decode()
        except UnicodeDecodeError:
            text = ""
        if self.is_over or not text or len(text) > MESSAGE_BYTES_MAX:
            return _REFUSED
        return self._finish(text) if self.nonce else self._challenge(text)

    def _challenge(self, text: str) -> AuthStep:
        # gs2-header is two fields that each end with a comma: binding flag, authorisation identity.
        flag, _, rest = text.partition(",")
        authzid, _, bare = rest.partition(",")
        fields = _fields(bare)
        if flag not in {"n", "y"} or authzid or [name for name, _ in fields[:2]] != ["n", "r"]:
            return _REFUSED
        name = _unescaped(fields[0][1])
        client_nonce = fields[1][1]
        if not name or not _is_printable(client_nonce):
            return _REFUSED
        try:
            prepared = saslprep(name)
        except ValueError:
            return _REFUSED
        name = name if self.mechanism.verifier_of(name) else prepared
        self.name, self.header, self.first_bare = name, f"{flag},{authzid},", bare
        self.nonce = client_nonce + self.mechanism.new_nonce()
        known = self.mechanism.verifier_of(name) or self.mechanism.decoy_of(name)
        salt = base64.b64encode(known.salt).decode()
        self.server_first = f"r={self.nonce},s={salt},i={known.iterations}"
        return AuthStep.go_on(self.server_first.encode())

    def _finish(self, text: str) -> AuthStep:
        self.is_over = True
        without_proof, separator, proof_text = text.rpartition(",p=")
        fields = _fields(without_proof)
        proof = _decoded(proof_text)
        binding = base64.b64encode(self.header.encode()).decode()
        if (
            not separator
            or proof is None
            or len(proof) != hashlib.sha256().digest_size
            or fields[:2] != [("c", binding), ("r", self.nonce)]
        ):
            return _REFUSED
        known = self.mechanism.verifier_of(self.name)
        verifier = known or self.mechanism.decoy_of(self.name)
        signed = f"{self.first_bare},{self.server_first},{without_proof}".encode()
        signature = hmac.digest(verifier.stored_key, signed, "sha256")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_good = hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier.stored_key)
        if not is_good or known is None:
            return AuthStep.refuse(ReasonCode.NOT_AUTHORIZED)
        last = base64.b64encode(hmac.digest(verifier.server_key, signed, "sha256")).decode()
        return AuthStep.admit(self.name, f"v={last}".encode())


def _fields(text: str) -> list[tuple[str, str]]:
    return [(part[:1], part[2:]) if part[1:2] == "=" else ("", part) for part in text.split(",")]


def _unescaped(text: str) -> str:
    """Read a name; empty when it holds an `=` that stands for nothing."""
    plain = text.replace("=2C", ",").replace("=3D", "\0")
    return "" if "=" in plain else plain.replace("\0", "=")


def _is_printable(nonce: str) -> bool:
    return bool(nonce) and all("!" <= character <= "~" and character != "," for character in nonce)


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
