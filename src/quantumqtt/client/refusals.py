"""A reason code a peer sent, as the exception a caller can act on."""

from typing import Final

from quantumqtt.errors import (
    NotAuthorized,
    PacketTooLarge,
    QuotaExceeded,
    Refused,
    ServerRedirect,
)
from quantumqtt.mqtt import PropertyId, ReasonCode
from quantumqtt.mqtt.properties import PropertyValue

_KINDS: Final[dict[int, type[Refused]]] = {
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: NotAuthorized,
    ReasonCode.NOT_AUTHORIZED: NotAuthorized,
    ReasonCode.BANNED: NotAuthorized,
    ReasonCode.BAD_AUTHENTICATION_METHOD: NotAuthorized,
    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED: QuotaExceeded,
    ReasonCode.MESSAGE_RATE_TOO_HIGH: QuotaExceeded,
    ReasonCode.QUOTA_EXCEEDED: QuotaExceeded,
    ReasonCode.CONNECTION_RATE_EXCEEDED: QuotaExceeded,
    ReasonCode.PACKET_TOO_LARGE: PacketTooLarge,
}
_HINTS: Final[dict[int, str]] = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: "connect with another version=",
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: "choose another client_id, or leave it out",
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: "check user name and password",
    ReasonCode.NOT_AUTHORIZED: "ask the server's operator for the permission",
    ReasonCode.BANNED: "ask the server's operator",
    ReasonCode.BAD_AUTHENTICATION_METHOD: "the server does not know this authenticator",
    ReasonCode.SERVER_UNAVAILABLE: "try again later",
    ReasonCode.SERVER_BUSY: "try again later",
    ReasonCode.SESSION_TAKEN_OVER: "another client uses this client_id: give each its own",
    ReasonCode.QUOTA_EXCEEDED: "wait, or ask the server's operator for a larger quota",
    ReasonCode.PACKET_TOO_LARGE: "make the payload smaller",
    ReasonCode.KEEP_ALIVE_TIMEOUT: "the server heard nothing of us: is the machine overloaded?",
    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED: "we sent too much at once: please report this",
    ReasonCode.TOPIC_NAME_INVALID: "the server does not take this topic",
    ReasonCode.TOPIC_FILTER_INVALID: "the server does not take this filter",
    ReasonCode.USE_ANOTHER_SERVER: "connect to the server it names, for now",
    ReasonCode.SERVER_MOVED: "connect to the server it names, from now on",
}
_REDIRECTS: Final = frozenset({ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED})

Properties = list[tuple[int, PropertyValue]]


def property_of(properties: Properties, wanted: PropertyId) -> PropertyValue | None:
    """Find the first property of a kind."""
    return next((value for number, value in properties if number == wanted), None)


def text_of(properties: Properties, wanted: PropertyId) -> str | None:
    """Find the first property of a kind that holds text."""
    value = property_of(properties, wanted)
    return value if isinstance(value, str) else None


def label_of(reason_code: int) -> str:
    """Say a reason code in words; unknown ones by their number."""
    try:
        return ReasonCode(reason_code).label
    except ValueError:
        return f"reason code {reason_code:#04x}"


def refusal(what: str, reason_code: int, properties: Properties) -> Refused:
    """Make the exception for a refusal of `what`; the server's own words are kept."""
    words = f"{what}: {label_of(reason_code)}"
    reason_string = text_of(properties, PropertyId.REASON_STRING)
    if reason_string:
        words = f"{words} ({reason_string})"
    hint = _HINTS.get(reason_code)
    if reason_code in _REDIRECTS:
        reference = text_of(properties, PropertyId.SERVER_REFERENCE)
        return ServerRedirect(words, hint, reason_code, reference)
    return _KINDS.get(reason_code, Refused)(words, hint, reason_code)
