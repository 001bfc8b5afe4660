"""From the arguments of `publish` to a receipt: everything is checked before anything is sent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from quantumqtt import _core
from quantumqtt.client.options import Payload, check_qos, payload_bytes
from quantumqtt.client.receipts import Receipt
from quantumqtt.mqtt import publish_properties
from quantumqtt.mqtt.properties import UserProperties

_KNOWN_TOPICS_MAX: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A publish as interceptors see it, before it is accepted.

    Attributes:
        carries_properties: Whether the connection is one of MQTT 5, so that properties may be
            added; before the first connection, whether the client is about to ask for one.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    message_expiry_s: int | None = None
    payload_is_utf8: bool | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    carries_properties: bool = True

    def with_user_property(self, name: str, value: str) -> "Outgoing":
        """The same publish with one user property more."""
        return replace(self, user_properties=(*self.user_properties, (name, value)))


PublishInterceptor = Callable[[Outgoing], Outgoing | None]


class Press:
    """Makes receipts out of arguments; remembers topics that were found valid."""

    def __init__(
        self,
        interceptors: Sequence[PublishInterceptor],
        receipt_type: Callable[[str, bytes, int, bytes], Receipt] = Receipt,
        carries_properties: Callable[[], bool] = lambda: True,
    ) -> None:
        self._carries_properties = carries_properties
        self._interceptors = tuple(interceptors)
        self._new_receipt = receipt_type
        self._known_topics: set[str] = set()

    def make(
        self,
        topic: str,
        payload: Payload,
        qos: int,
        retain: bool,
        content_type: str | None,
        response_topic: str | None,
        correlation_data: bytes | None,
        message_expiry_s: int | None,
        payload_is_utf8: bool | None,
        user_properties: UserProperties,
    ) -> Receipt:
        """Check the arguments of a publish.

        Raises:
            LocalProtocolError: A topic, QoS or property breaks MQTT.
            TypeError: The payload is neither bytes nor text.
            Refused: An interceptor held the publish back.
        """
        if topic not in self._known_topics:
            self._learn(topic)
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        if qos not in (0, 1, 2):
            check_qos(qos)
        if self._interceptors:
            pairs = (
                user_properties.items() if hasattr(user_properties, "items") else user_properties
            )
            outgoing = Outgoing(
                topic=topic,
                payload=payload,
                qos=qos,
                retain=retain,
                content_type=content_type,
                response_topic=response_topic,
                correlation_data=correlation_data,
                message_expiry_s=message_expiry_s,
                payload_is_utf8=payload_is_utf8,
                user_properties=tuple(pairs),
                carries_properties=self._carries_properties(),
            )
            return self._intercept(outgoing)
        properties = b""
        if (
            user_properties
            or content_type is not None
            or response_topic is not None
            or correlation_data is not None
            or message_expiry_s is not None
            or payload_is_utf8 is not None
        ):
            properties = publish_properties(
                content_type=content_type,
                response_topic=response_topic,
                correlation_data=correlation_data,
                message_expiry_s=message_expiry_s,
                payload_is_utf8=payload_is_utf8,
                user_properties=user_properties,
            )
        return self._new_receipt(topic, payload, qos << 1 | bool(retain), properties)

    def _learn(self, topic: str) -> None:
        _core.validate_topic(topic)
        if len(self._known_topics) >= _KNOWN_TOPICS_MAX:
            self._known_topics.clear()
        self._known_topics.add(topic)

    def _intercept(self, outgoing: Outgoing) -> Receipt:
        for interceptor in self._interceptors:
            kept = interceptor(outgoing)
            outgoing = outgoing if kept is None else kept
        _core.validate_topic(outgoing.topic)
        properties = publish_properties(
            content_type=outgoing.content_type,
            response_topic=outgoing.response_topic,
            correlation_data=outgoing.correlation_data,
            message_expiry_s=outgoing.message_expiry_s,
            payload_is_utf8=outgoing.payload_is_utf8,
            user_properties=outgoing.user_properties,
        )
        flags = check_qos(outgoing.qos) << 1 | bool(outgoing.retain)
        return self._new_receipt(outgoing.topic, outgoing.payload, flags, properties)
