"""Every exception QuantuMQTT raises, native ones included.

The tree::

    QuantuMQTTError                 .hint, .retryable
    ├─ ConfigError                  the operator wrote something we cannot accept; names the key
    ├─ ProtocolError                packets break MQTT; carries the reason code
    │  ├─ LocalProtocolError        we, or our caller, did it
    │  └─ RemoteProtocolError       the peer did it
    ├─ Refused                      understood, and no; carries the reason code
    │  ├─ NotAuthorized             by who we are, or by what we may do
    │  ├─ QuotaExceeded             too much, or too fast
    │  ├─ PacketTooLarge            more than the peer takes
    │  ├─ ServerRedirect            another server should be used; names it
    │  └─ PublishQueueFull          our own bound on what is not yet acknowledged
    ├─ TransportError               sockets: cannot bind, cannot connect, lost
    │  ├─ ConnectFailed             no connection came about
    │  │  └─ TlsFailed              the peer could not prove who it is, or we could not
    │  ├─ ConnectionLost            it ended before it should
    │  ├─ SessionLost               the peer forgot the session a delivery depended on
    │  └─ ResponseTimeout           a request was sent and not answered in time
    ├─ StorageError                 a file cannot be read or written
    │  ├─ CorruptStore              it holds what nobody wrote
    │  └─ CorruptLog                the broker's log is damaged where it was acknowledged
    ├─ SourceError                  the log cannot be read as asked; names tenant and partition
    │  ├─ UnknownTenant             the log service serves no such tenant
    │  ├─ UnknownPartition          the tenant has no such partition
    │  └─ RangeError                part of a range cannot be had; names what there is
    │     ├─ OffsetExpired          retention has taken rows of it
    │     └─ SliceUnavailable       rows of it are not there, or not yet
    ├─ SinkError                    a table cannot take rows as asked
    │  ├─ TableMismatch             it is another table than the one these rows belong to
    │  └─ LandingConflict           it holds some rows of a batch, and not others
    ├─ ClientClosed                 the client was closed before this was done
    │  └─ StillStored               and its store keeps it for the next one
    └─ InternalError                our bug; never caught inside

Exceptions are born here, in Python, and imported by the native module, so that they are documented,
picklable and in one place. Branches for cluster and queues join with their rooms.
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
    """The request was understood, and the answer is no.

    Attributes:
        reason_code: The MQTT 5 reason code of the refusal.
    """

    def __init__(self, message: str, hint: str | None = None, reason_code: int = 0x80) -> None:
        """Carry the reason code beside the words."""
        super().__init__(message, hint)
        self.reason_code = reason_code


class NotAuthorized(Refused):
    """Not with these credentials, or not for this client."""


class QuotaExceeded(Refused):
    """Too much or too fast; later it may work."""

    retryable = True


class PacketTooLarge(Refused):
    """The packet is larger than the peer takes."""


class ServerRedirect(Refused):
    """The server asks to use another one.

    Attributes:
        server_reference: Where to go, in the server's words; None when it does not say.
    """

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        reason_code: int = 0x9C,
        server_reference: str | None = None,
    ) -> None:
        """Carry the other server beside the words."""
        super().__init__(message, hint, reason_code)
        self.server_reference = server_reference


class PublishQueueFull(Refused):
    """The client holds as many unacknowledged bytes as it may; nothing was accepted."""

    retryable = True


class TransportError(QuantuMQTTError):
    """A socket could not be bound, connected or kept."""

    retryable = True


class ConnectFailed(TransportError):
    """No connection came about."""


class TlsFailed(ConnectFailed):
    """One side could not prove who it is."""

    retryable = False


class ConnectionLost(TransportError):
    """The connection ended before it should."""


class SessionLost(TransportError):
    """The peer forgot the session; whether this QoS 2 message arrived cannot be known."""

    retryable = False


class ResponseTimeout(TransportError):
    """The request was sent and not answered in time."""


class StorageError(QuantuMQTTError):
    """A file could not be opened, read or written."""


class CorruptStore(StorageError):
    """A file holds what nobody wrote; nothing in it is guessed."""


class CorruptLog(StorageError):
    """The log is damaged where it was durable, or holds what this build cannot apply."""


class SourceError(QuantuMQTTError):
    """The log cannot be read as asked.

    Attributes:
        tenant: Whose log was asked for, where that matters.
        partition: Which part of it, where that matters.
    """

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        tenant: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Carry the place beside the words."""
        super().__init__(message, hint)
        self.tenant = tenant
        self.partition = partition


class UnknownTenant(SourceError):
    """The log service serves no tenant of this name."""


class UnknownPartition(SourceError):
    """The tenant has no partition of this number."""


class RangeError(SourceError):
    """Part of a range of offsets cannot be had.

    Attributes:
        start: First offset that was asked for.
        earliest: First offset the log still holds.
        end: Committed end of the log: one past its last offset.
    """

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        tenant: str | None = None,
        partition: int | None = None,
        start: int | None = None,
        earliest: int | None = None,
        end: int | None = None,
    ) -> None:
        """Carry the range beside the words."""
        super().__init__(message, hint, tenant=tenant, partition=partition)
        self.start = start
        self.earliest = earliest
        self.end = end


class OffsetExpired(RangeError):
    """Retention has taken rows of the range; `earliest` is the first one left."""


class SliceUnavailable(RangeError):
    """Rows of the range are not there, or not yet; the log ends at `end`."""

    retryable = True


class SinkError(QuantuMQTTError):
    """A table cannot take rows as asked; nothing of the batch became visible."""


class TableMismatch(SinkError):
    """The table is another one than these rows belong to: other columns, or not ours."""


class LandingConflict(SinkError):
    """The table holds some rows of a batch and not others, so it was written by another run."""


class ClientClosed(QuantuMQTTError):
    """The client was closed before this was done."""


class StillStored(ClientClosed):
    """The client ended first; the publish stays in its store, and the next client sends it."""


class InternalError(QuantuMQTTError):
    """Our bug: please report it with the message. Never caught inside the package."""
