"""Interceptors against real brokers: counts, logs, and traces that join both ends."""

import logging
import subprocess
import sys
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from quantumqtt.client import (
    Client,
    Counts,
    Message,
    Outgoing,
    Tracing,
    log_messages,
    log_publishes,
)
from quantumqtt.errors import NotAuthorized
from tests.client.conftest import Peer
from tests.harness.node_process import clean_environment

DEADLINE_S = 20.0


class Spans(SpanExporter):
    def __init__(self) -> None:
        self.seen: list[ReadableSpan] = []

    def export(  # type: ignore[override]
        self, spans: "tuple[ReadableSpan, ...] | list[ReadableSpan]"
    ) -> SpanExportResult:
        self.seen += spans
        return SpanExportResult.SUCCESS


async def test_a_trace_goes_on_at_the_other_end(peer: Peer) -> None:
    spans, topic = Spans(), f"test/{uuid4().hex}"
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracing = Tracing(provider)
    async with (
        Client(
            peer.url,
            version=peer.version,  # type: ignore[arg-type]
            publish_interceptors=[tracing.publish],
            receive_interceptors=[tracing.receive],
        ) as client,
        client.subscribe(topic) as stream,
    ):
        await client.publish(topic, b"x", qos=1)
        message = await stream.next(DEADLINE_S)
    sent, received = spans.seen
    assert (sent.name, received.name) == (f"send {topic}", f"receive {topic}")
    if peer.version == "5":
        assert received.context.trace_id == sent.context.trace_id
        assert received.parent is not None
        assert received.parent.span_id == sent.context.span_id
        assert "traceparent" in dict(message.user_properties)
    else:
        assert received.parent is None


async def test_counts_and_logs(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    counts, topic = Counts(), f"test/{uuid4().hex}"
    logger = logging.getLogger("traffic")
    caplog.set_level(logging.DEBUG, "traffic")
    async with (
        Client(
            peer.url,
            version=peer.version,  # type: ignore[arg-type]
            publish_interceptors=[counts.publish, log_publishes(logger)],
            receive_interceptors=[counts.receive, log_messages(logger)],
        ) as client,
        client.subscribe(topic, qos=1) as stream,
    ):
        await client.publish(topic, b"secret", qos=1)
        await client.publish(topic, b"1", qos=0)
        for _ in range(2):
            await stream.next(DEADLINE_S)
    traffic = counts.statistics()
    assert (traffic.published, traffic.received) == ((1, 1, 0), (1, 1, 0))
    assert (traffic.published_bytes, traffic.received_bytes) == (7, 7)
    assert f"publish to {topic!r}: 6 bytes at QoS 1" in caplog.messages
    assert f"message on {topic!r}: 1 bytes at QoS 0" in caplog.messages
    assert not any("secret" in line for line in caplog.messages)


async def test_an_interceptor_may_refuse_and_a_broken_one_harms_nobody(peer: Peer) -> None:
    topic = f"test/{uuid4().hex}"

    def fail(_: Message) -> None:
        raise RuntimeError("on purpose")

    def refuse(outgoing: Outgoing) -> None:
        if outgoing.payload == b"forbidden":
            raise NotAuthorized("not this one")

    async with (
        Client(
            peer.url,
            version=peer.version,  # type: ignore[arg-type]
            publish_interceptors=[refuse],
            receive_interceptors=[fail],
        ) as client,
        client.subscribe(topic) as stream,
    ):
        with pytest.raises(NotAuthorized):
            await client.publish(topic, b"forbidden")
        await client.publish(topic, b"fine", qos=1)
        assert (await stream.next(DEADLINE_S)).payload == b"fine"


def test_the_client_needs_no_opentelemetry() -> None:
    """Only `Tracing` does, and says so."""
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from quantumqtt.client import Client, Tracing\n"
        "try: Tracing()\n"
        "except ImportError: pass\n"
        "else: raise SystemExit('imported what is not there')\n"
    )
    subprocess.run([sys.executable, "-c", program], env=clean_environment(), check=True, timeout=30)
