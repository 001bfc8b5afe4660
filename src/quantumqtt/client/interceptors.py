"""Ready-made interceptors: logs, counts, and traces that go on at the other end.

    traces, counts = Tracing(), Counts()
    Client(
        url,
        publish_interceptors=[traces.publish, counts.publish],
        receive_interceptors=[traces.receive, counts.receive],
    )

An interceptor of publishes runs in the caller, before the publish is accepted; one of messages runs
before they are handed out, on the loop of the client, so it must be quick. Payloads are never
logged and never put into a trace.
"""

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quantumqtt._core import Message
from quantumqtt.client.publishing import Outgoing, PublishInterceptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

_SCOPE: Final = "quantumqtt.client"
_SYSTEM: Final = "mqtt"


def log_publishes(logger: logging.Logger, level: int = logging.DEBUG) -> PublishInterceptor:
    """Log every publish: topic, size and QoS, never the payload."""

    def intercept(outgoing: Outgoing) -> None:
        logger.log(
            level,
            "publish to %r: %d bytes at QoS %d",
            outgoing.topic,
            len(outgoing.payload),
            outgoing.qos,
        )

    return intercept


def log_messages(logger: logging.Logger, level: int = logging.DEBUG) -> "Callable[[Message], None]":
    """Log every message that came: topic, size and QoS, never the payload."""

    def intercept(message: Message) -> None:
        logger.log(
            level,
            "message on %r: %d bytes at QoS %d",
            message.topic,
            len(message.payload),
            message.qos,
        )

    return intercept


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages and payload bytes, by QoS."""

    published: tuple[int, int, int]
    published_bytes: int
    received: tuple[int, int, int]
    received_bytes: int


class Counts:
    """Counts both ways, for whatever collects metrics; one object may serve several clients."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._lock = threading.Lock()
        self._published, self._received = [0, 0, 0], [0, 0, 0]
        self._published_bytes = self._received_bytes = 0

    def publish(self, outgoing: Outgoing) -> None:
        """Count a publish that the client is about to accept."""
        with self._lock:
            self._published[outgoing.qos] += 1
            self._published_bytes += len(outgoing.payload)

    def receive(self, message: Message) -> None:
        """Count a message that came."""
        with self._lock:
            self._received[message.qos] += 1
            self._received_bytes += len(message.payload)

    def statistics(self) -> Traffic:
        """Take a snapshot."""
        with self._lock:
            published, received = self._published, self._received
            return Traffic(
                (published[0], published[1], published[2]),
                self._published_bytes,
                (received[0], received[1], received[2]),
                self._received_bytes,
            )


class Tracing:
    """OpenTelemetry spans for both ways, tied together by W3C trace context in user properties.

    Needs `opentelemetry-api` (the extra `telemetry`). Trace context travels in MQTT 5 only; before
    it, publishes get their span and nothing is added to them.
    """

    def __init__(self, tracer_provider: "TracerProvider | None" = None) -> None:
        """Use a provider; the global one by default.

        Raises:
            ImportError: OpenTelemetry is not installed.
        """
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._propagator = TraceContextTextMapPropagator()
        self._producer = trace.SpanKind.PRODUCER
        self._consumer = trace.SpanKind.CONSUMER

    def publish(self, outgoing: Outgoing) -> Outgoing:
        """Make a span for a publish, and send its context along."""
        with self._tracer.start_as_current_span(
            f"send {outgoing.topic}",
            kind=self._producer,
            attributes={
                "messaging.system": _SYSTEM,
                "messaging.operation.type": "send",
                "messaging.destination.name": outgoing.topic,
                "messaging.message.body.size": len(outgoing.payload),
                "messaging.mqtt.qos": outgoing.qos,
            },
        ):
            if not outgoing.carries_properties:
                return outgoing
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
        for name, value in carrier.items():
            outgoing = outgoing.with_user_property(name, value)
        return outgoing

    def receive(self, message: Message) -> None:
        """Make a span for a message, below the span that published it."""
        self._tracer.start_span(
            f"receive {message.topic}",
            context=self.context_of(message),
            kind=self._consumer,
            attributes={
                "messaging.system": _SYSTEM,
                "messaging.operation.type": "receive",
                "messaging.destination.name": message.topic,
                "messaging.message.body.size": len(message.payload),
                "messaging.mqtt.qos": message.qos,
            },
        ).end()

    def context_of(self, message: Message) -> "Context":
        """The context that came with a message, for spans of your own in its handler."""
        return self._propagator.extract(dict(message.user_properties))
