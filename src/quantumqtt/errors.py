"""Every exception QuantuMQTT raises, native ones included.

The tree::

    QuantuMQTTError                 .hint, .retryable
    ├─ ConfigError                  the operator wrote something we cannot accept; names the key
    ├─ ProtocolError                packets break MQTT; carries the reason code
    │  ├─ LocalProtocolError        we, or our caller, did it
    │  └─ RemoteProtocolError       the peer did it
    ├─ Refused                      understood, and no
    ├─ TransportError               sockets: cannot bind, cannot connect, lost
    └─ InternalError                our bug; never caught inside

Exceptions are born here, in Python, and imported by the native module, so that they are documented,
picklable and in one place. Branches for cluster, storage, queues and sources join with their rooms.
"""


class QuantuMQTTError(Exception):
    """The root of every error this package raises on purpose.

    Attributes:
        hint: What the reader can do about it, or None when nobody can do anything.
        retryable: Whether the same call may succeed later without any change.
    """

    retryable: bool = False

    def __init__(self, message: str, hint: str | None = None) -> None:
        """Say what was tried and with what; `hint` holds the remedy."""
        super().__init__(message)
        self.hint = hint

    def __reduce__(self) -> tuple[type["QuantuMQTTError"], tuple[object, ...], dict[str, object]]:
        """Pickle with every field: errors cross process borders in Spark."""
        return (type(self), (str(self),), dict(self.__dict__))


class ConfigError(QuantuMQTTError):
    """The operator wrote something we cannot accept; the message names the key."""


class ProtocolError(QuantuMQTTError):
    """Packets break MQTT.

    Attributes:
        reason_code: The MQTT 5 reason code that fits best.
    """

    def __init__(self, message: str, hint: str | None = None, reason_code: int = 0x82) -> None:
        """Carry the reason code beside the words."""
        super().__init__(message, hint)
        self.reason_code = reason_code


class LocalProtocolError(ProtocolError):
    """We, or our caller, asked for something MQTT forbids."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something MQTT forbids."""


class Refused(QuantuMQTTError):
    """The request was understood, and the answer is no."""


class TransportError(QuantuMQTTError):
    """A socket could not be bound, connected or kept."""

    retryable = True


class InternalError(QuantuMQTTError):
    """Our bug: please report it with the message. Never caught inside the package."""
