"""Password hashes: argon2id for new ones, Mosquitto's for those that are there already.

Three forms of hashes are read, each as `mosquitto_passwd` or we write it:

- `$argon2id$v=19$m=…,t=…,p=…$salt$hash`: ours. Slow and memory-hard on purpose.
- `$7$iterations$salt$hash`: PBKDF2 with SHA-512.
- `$6$salt$hash`: one round of salted SHA-512. Read because it exists; write something else.

And one that is no hash of a password but a verifier for SCRAM-SHA-256 (RFC 5802):

- `$scram-sha-256$iterations$salt$StoredKey$ServerKey`. Its user may authenticate by SCRAM, and with
  a plain password as well. All other users may use a plain password only.

Comparison never depends on where two hashes begin to differ. Verifying blocks for as long as it is
meant to; it belongs on a thread, never on an event loop. Both libraries release the interpreter
while they compute. argon2's is loaded by the first hash of its kind: most starts need none.
"""

import base64
import binascii
import hashlib
import hmac
import os
from dataclasses import dataclass
from typing import Final, Literal, Protocol, Self

from quantumqtt.errors import ConfigError
from quantumqtt.mqtt import saslprep

HashKind = Literal["argon2id", "sha512-pbkdf2", "sha512", "scram-sha-256"]

# OWASP's first choice for argon2id: about 20 ms and 19 MiB per check. Stronger settings make a
# fleet of sensors wait longer than they make an attacker.
ARGON2_TIME: Final = 2
ARGON2_MEMORY_KIB: Final = 19_456
ARGON2_LANES: Final = 1
# What a file may ask of us: a check must not eat the machine.
ARGON2_TIME_MAX: Final = 64
ARGON2_MEMORY_KIB_MAX: Final = 1024 * 1024
ARGON2_LANES_MAX: Final = 16
PBKDF2_ITERATIONS: Final = 210_000
PBKDF2_ITERATIONS_MAX: Final = 10_000_000
# RFC 7677 asks for 4096 at least, and it is the client that computes them, at every connect: a
# small device should not need seconds.
SCRAM_ITERATIONS: Final = 16_384
SCRAM_ITERATIONS_MIN: Final = 4096
SALT_BYTES: Final = 16
# Longer than MQTT can spell; a bound for the command line.
PASSWORD_BYTES_MAX: Final = 65_535

_SHA512_BYTES: Final = 64
_SHA256_BYTES: Final = 32


class PasswordHash(Protocol):
    """A stored hash that a password can be compared with."""

    def verify(self, password: bytes) -> bool:
        """Compare, in a time that does not depend on the outcome's position. Blocks."""


@dataclass(frozen=True, slots=True)
class Argon2Hash:
    """`$argon2id$…`."""

    text: str

    def verify(self, password: bytes) -> bool:
        """Compare; what cannot be verified is no match."""
        import argon2

        try:
            return argon2.PasswordHasher().verify(self.text, password)
        except argon2.exceptions.VerificationError:
            # No match, or out of memory, for example. Nobody comes in because something failed.
            return False


@dataclass(frozen=True, slots=True)
class Pbkdf2Hash:
    """`$7$…`."""

    iterations: int
    salt: bytes
    digest: bytes

    def verify(self, password: bytes) -> bool:
        """Compare."""
        if password.endswith(b"\0"):
            return False  # HMAC pads its key with zeros, so it could not tell them apart
        found = hashlib.pbkdf2_hmac(
            "sha512", password, self.salt, self.iterations, dklen=len(self.digest)
        )
        return hmac.compare_digest(found, self.digest)


@dataclass(frozen=True, slots=True)
class Sha512Hash:
    """`$6$…` of Mosquitto: SHA-512 over password and salt."""

    salt: bytes
    digest: bytes

    def verify(self, password: bytes) -> bool:
        """Compare."""
        return hmac.compare_digest(hashlib.sha512(password + self.salt).digest(), self.digest)


@dataclass(frozen=True, slots=True)
class ScramHash:
    """`$scram-sha-256$…`: what SCRAM needs, and enough to check a password as well."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: bytes, salt: bytes, iterations: int) -> Self:
        """Compute the verifier of a password as it is prepared for SCRAM. Blocks."""
        return cls._of_prepared(_prepared(password), salt, iterations)

    @classmethod
    def _of_prepared(cls, password: bytes, salt: bytes, iterations: int) -> Self:
        salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), server_key)

    def verify(self, password: bytes) -> bool:
        """Compare."""
        if password.endswith(b"\0"):
            return False  # as above
        # A verifier of an earlier release may be that of the password as it was typed.
        for spelled in dict.fromkeys((_prepared(password), password)):
            found = ScramHash._of_prepared(spelled, self.salt, self.iterations)
            if hmac.compare_digest(found.stored_key, self.stored_key):
                return True
        return False


def _prepared(password: bytes) -> bytes:
    """Spell a password as RFC 5802 wants it; what cannot be prepared stays as it is."""
    try:
        return saslprep(password.decode()).encode()
    except ValueError:
        return password


def parse_hash(text: str) -> PasswordHash:
    """Read a stored hash.

    Raises:
        ConfigError: It is a password in plain text, or no hash we know.
    """
    if text.startswith("$argon2id$"):
        return _parse_argon2(text)
    if text.startswith(("$argon2i$", "$argon2d$")):
        raise ConfigError("argon2i and argon2d are not read", hint="hash it as argon2id")
    parts = text.split("$")
    if text.startswith("$7$") and len(parts) == 5:
        return Pbkdf2Hash(_iterations(parts[2]), _bytes_of(parts[3]), _digest_of(parts[4]))
    if text.startswith("$6$") and len(parts) == 4:
        return Sha512Hash(_bytes_of(parts[2]), _digest_of(parts[3]))
    if text.startswith("$scram-sha-256$") and len(parts) == 6:
        return _parse_scram(parts[2:])
    if text.startswith("$"):
        raise ConfigError(
            "no password hash we know",
            hint="write it anew with: quantumqtt passwd FILE USER",
        )
    raise ConfigError(
        "the password is not hashed", hint="hash the whole file with: quantumqtt passwd -U FILE"
    )


def hash_password(
    password: bytes, kind: HashKind = "argon2id", *, iterations: int | None = None
) -> str:
    """Hash a password for a file; None takes the usual number of iterations. Blocks."""
    if iterations is None:
        iterations = SCRAM_ITERATIONS if kind == "scram-sha-256" else PBKDF2_ITERATIONS
    if kind == "argon2id":
        import argon2

        hasher = argon2.PasswordHasher(
            time_cost=ARGON2_TIME, memory_cost=ARGON2_MEMORY_KIB, parallelism=ARGON2_LANES
        )
        return hasher.hash(password)
    salt = os.urandom(SALT_BYTES)
    if kind == "sha512":
        digest = hashlib.sha512(password + salt).digest()
        return f"$6${_text_of(salt)}${_text_of(digest)}"
    if kind == "scram-sha-256":
        made = ScramHash.of(password, salt, iterations)
        keys = (made.salt, made.stored_key, made.server_key)
        return "$".join(("", kind, str(iterations), *(_text_of(key) for key in keys)))
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations, dklen=_SHA512_BYTES)
    return f"$7${iterations}${_text_of(salt)}${_text_of(digest)}"


def _parse_argon2(text: str) -> Argon2Hash:
    import argon2

    try:
        asked = argon2.extract_parameters(text)
    except (argon2.exceptions.InvalidHashError, ValueError) as error:
        raise ConfigError(
            "a damaged argon2id hash", hint="write it anew with: quantumqtt passwd FILE USER"
        ) from error
    if (
        not 1 <= asked.time_cost <= ARGON2_TIME_MAX
        or not 8 <= asked.memory_cost <= ARGON2_MEMORY_KIB_MAX
        or not 1 <= asked.parallelism <= ARGON2_LANES_MAX
    ):
        raise ConfigError(
            "an argon2id hash that costs too much to check",
            hint=f"use at most t={ARGON2_TIME_MAX}, m={ARGON2_MEMORY_KIB_MAX},"
            f" p={ARGON2_LANES_MAX}",
        )
    salt, _, digest = text.rpartition("$")
    # The library decodes these when it verifies; what is damaged should be known before.
    _bytes_of(salt.rpartition("$")[2])
    _bytes_of(digest)
    return Argon2Hash(text)


def _parse_scram(parts: list[str]) -> ScramHash:
    iterations = _iterations(parts[0])
    salt, stored_key, server_key = (_bytes_of(part) for part in parts[1:])
    if iterations < SCRAM_ITERATIONS_MIN or len(stored_key) + len(server_key) != 2 * _SHA256_BYTES:
        raise ConfigError(
            "a SCRAM verifier that no client would accept",
            hint="write it anew with: quantumqtt passwd -H scram-sha-256 FILE USER",
        )
    return ScramHash(iterations, salt, stored_key, server_key)


def _iterations(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ConfigError("the number of iterations is none", hint="write the hash anew")
    number = int(text)
    if not 1 <= number <= PBKDF2_ITERATIONS_MAX:
        raise ConfigError(
            f"{number} iterations are out of range",
            hint=f"use 1 to {PBKDF2_ITERATIONS_MAX} iterations",
        )
    return number


def _digest_of(text: str) -> bytes:
    digest = _bytes_of(text)
    if len(digest) != _SHA512_BYTES:
        # A short digest would be guessed; an empty one would match everything.
        raise ConfigError("a hash of the wrong length", hint="write the hash anew")
    return digest


def _bytes_of(text: str) -> bytes:
    padded = text + "=" * (-len(text) % 4)
    try:
        found = base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError("a hash that is no base64", hint="write the hash anew") from error
    if not found:
        raise ConfigError("a hash with an empty part", hint="write the hash anew")
    return found


def _text_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
