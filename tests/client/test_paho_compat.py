"""Programs written for paho, run by paho and by our layer: what they see is the same."""

# Two libraries are passed for one another here, so nothing can be said about their types.
# ruff: noqa: ANN401

import queue
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import paho.mqtt.client as paho_client
import paho.mqtt.packettypes as paho_packettypes
import paho.mqtt.properties as paho_properties
import paho.mqtt.publish as paho_publish
import paho.mqtt.subscribe as paho_subscribe
import paho.mqtt.subscribeoptions as paho_options
import pytest

import quantumqtt.compat.paho as our_client
import quantumqtt.compat.paho.publish as our_publish
import quantumqtt.compat.paho.subscribe as our_subscribe
from quantumqtt.compat.paho import packettypes as our_packettypes
from quantumqtt.compat.paho import properties as our_properties
from quantumqtt.compat.paho import subscribeoptions as our_options
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.waiting import wait_until

DEADLINE_S = 20.0

Seen = list[object]


class Library:
    """paho, or what stands in for it; programs see this and a port."""

    def __init__(self, name: str, port: int, version: int) -> None:
        ours = name == "ours"
        self.mqtt: Any = our_client if ours else paho_client
        self.publish: Any = our_publish if ours else paho_publish
        self.subscribe: Any = our_subscribe if ours else paho_subscribe
        self.Properties: Any = (our_properties if ours else paho_properties).Properties
        self.PacketTypes: Any = (our_packettypes if ours else paho_packettypes).PacketTypes
        self.SubscribeOptions: Any = (our_options if ours else paho_options).SubscribeOptions
        self.port = port
        self.version = version
        self.topic = f"paho/{uuid4().hex}"

    def client(self, **options: object) -> Any:
        return self.mqtt.Client(
            self.mqtt.CallbackAPIVersion.VERSION2, protocol=self.version, **options
        )


Program = Callable[[Library], Seen]


def first_steps(lib: Library) -> Seen:
    """The program of paho's front page, with every callback noted."""
    seen: Seen = []
    client = lib.client(userdata="mine")

    def on_connect(client: Any, data: object, flags: Any, code: Any, props: object) -> None:
        seen.append(("connect", data, flags.session_present, str(code), code == 0, code.is_failure))
        client.subscribe([(f"{lib.topic}/a", 1), (f"{lib.topic}/b", 2)])

    def on_subscribe(client: Any, _data: object, mid: int, codes: Any, props: object) -> None:
        seen.append(("subscribe", mid > 0, [code.value for code in codes], str(codes[0])))
        client.publish(f"{lib.topic}/a", "one", qos=1)

    def on_message(client: Any, _data: object, message: Any) -> None:
        short = message.topic.removeprefix(lib.topic)
        seen.append(("message", short, message.payload, message.qos, message.retain, message.dup))
        if message.payload == b"one":
            client.publish(f"{lib.topic}/b", b"two", qos=2)
        else:
            client.unsubscribe([f"{lib.topic}/a"])

    def on_unsubscribe(client: Any, _data: object, _mid: int, codes: Any, props: object) -> None:
        seen.append(("unsubscribe", len(codes) if lib.version == 5 else 0))
        client.disconnect()

    def on_disconnect(_client: Any, _data: object, flags: Any, code: Any, props: object) -> None:
        seen.append(("disconnect", flags.is_disconnect_packet_from_server, str(code), code == 0))

    client.on_connect = on_connect
    client.on_subscribe = on_subscribe
    client.on_message = on_message
    client.on_unsubscribe = on_unsubscribe
    client.on_disconnect = on_disconnect
    seen.append(client.connect(LOOPBACK, lib.port) == lib.mqtt.MQTT_ERR_SUCCESS)
    seen.append(int(client.loop_forever()))
    return seen


def publishing_threads(lib: Library) -> Seen:
    """`loop_start`, `wait_for_publish`, filters with callbacks of their own, every payload."""
    seen: Seen = []
    got: queue.Queue[tuple[str, bytes]] = queue.Queue()
    ready = threading.Event()
    client = lib.client()
    client.max_inflight_messages_set(5)
    client.reconnect_delay_set(1, 5)
    client.on_subscribe = lambda *_: ready.set()
    client.on_message = lambda _c, _d, m: got.put(("rest", m.payload))
    client.message_callback_add(f"{lib.topic}/+/x", lambda _c, _d, m: got.put(("x", m.payload)))
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect(LOOPBACK, lib.port)
    seen.append(int(client.loop_start()))
    assert connected.wait(DEADLINE_S)
    rc, _mid = client.subscribe(f"{lib.topic}/#", 1)
    seen.append(int(rc))
    assert ready.wait(DEADLINE_S)
    payloads = ["text", b"bytes", bytearray(b"array"), 7, 2.5, None, ""]
    for number, payload in enumerate(payloads):
        info = client.publish(f"{lib.topic}/{number}", payload, qos=1)
        info.wait_for_publish(DEADLINE_S)
        seen.append((int(info.rc), info.is_published()))
    client.publish(f"{lib.topic}/1/x", "filtered", 1).wait_for_publish(DEADLINE_S)
    seen += [got.get(timeout=DEADLINE_S) for _ in range(len(payloads) + 1)]
    client.message_callback_remove(f"{lib.topic}/+/x")
    client.publish(f"{lib.topic}/1/x", "unfiltered", 1)
    seen.append(got.get(timeout=DEADLINE_S))
    seen.append(client.is_connected())
    client.disconnect()
    seen.append(int(client.loop_stop()))
    seen.append(client.is_connected())
    return seen


def properties(lib: Library) -> Seen:
    """What MQTT 5 adds to a message, there and back."""
    if lib.version != 5:
        return []
    seen: Seen = []
    got: queue.Queue[Any] = queue.Queue()
    ready = threading.Event()
    client = lib.client()
    client.on_message = lambda _c, _d, m: got.put(m)
    client.on_subscribe = lambda *_: ready.set()
    client.on_connect = lambda c, *_: c.subscribe(
        lib.topic, options=lib.SubscribeOptions(qos=1, retainAsPublished=True)
    )
    connect = lib.Properties(lib.PacketTypes.CONNECT)
    connect.SessionExpiryInterval = 10
    client.connect(LOOPBACK, lib.port, clean_start=True, properties=connect)
    client.loop_start()
    assert ready.wait(DEADLINE_S)
    given = lib.Properties(lib.PacketTypes.PUBLISH)
    given.ContentType = "text/plain"
    given.ResponseTopic = "answer"
    given.CorrelationData = b"\x01"
    given.UserProperty = ("a", "1")
    given.UserProperty = ("a", "2")
    given.MessageExpiryInterval = 100
    client.publish(lib.topic, "x", 1, retain=True, properties=given)
    message = got.get(timeout=DEADLINE_S)
    seen.append((message.payload, message.retain, sorted(message.properties.json())))
    seen.append((message.properties.ContentType, message.properties.UserProperty))
    client.publish(lib.topic, b"", 1, retain=True)
    got.get(timeout=DEADLINE_S)
    client.disconnect()
    client.loop_stop()
    with pytest.raises(Exception):  # noqa: B017, PT011 - each library has its own exception
        given.ServerKeepAlive = 1
    return seen


def helpers(lib: Library) -> Seen:
    """`publish.single`, `publish.multiple`, `subscribe.simple`, `subscribe.callback`."""
    seen: Seen = []
    place = {"hostname": LOOPBACK, "port": lib.port, "protocol": lib.version}
    lib.publish.single(lib.topic, "kept", qos=1, retain=True, **place)
    message = lib.subscribe.simple(lib.topic, qos=1, **place)
    seen.append((message.topic == lib.topic, message.payload, message.retain))
    many = [{"topic": f"{lib.topic}/1", "payload": "a", "retain": True, "qos": 1}]
    lib.publish.multiple([*many, (f"{lib.topic}/2", "b", 2, True)], **place)
    got = lib.subscribe.simple([f"{lib.topic}/1", f"{lib.topic}/2"], msg_count=2, **place)
    seen.append(sorted(one.payload for one in got))

    def take(client: Any, data: list[bytes], message: Any) -> None:
        data.append(message.payload)
        client.disconnect()

    came: list[bytes] = []
    # paho's own default for this argument is one that its client refuses for MQTT 5.
    clean = None if lib.version == 5 else True
    lib.subscribe.callback(take, lib.topic, userdata=came, clean_session=clean, **place)
    seen.append(came)
    lib.publish.multiple([(lib.topic + end, None, 1, True) for end in ("", "/1", "/2")], **place)
    return seen


def mistakes(lib: Library) -> Seen:
    """What is refused, and how."""
    client = lib.client()
    seen: Seen = []
    attempts: list[Callable[[], object]] = [
        lambda: client.publish("a/+"),
        lambda: client.publish("a", qos=3),
        lambda: client.publish("a", payload=object()),
        lambda: client.subscribe("a", 3),
        lambda: client.connect("", 1883),
        lambda: client.connect(LOOPBACK, 0),
        lambda: client.connect(LOOPBACK, free_port()),
        lambda: client.tls_insecure_set(True),
        lambda: client.message_callback_add("a", None),
        lambda: client.reconnect(),
        lambda: client.publish("a", "x", 0).wait_for_publish(1),
    ]
    for attempt in attempts:
        try:
            seen.append(str(attempt()))
        except Exception as error:
            kinds = (ValueError, TypeError, OSError, RuntimeError)
            seen.append(next(kind for kind in kinds if isinstance(error, kind)).__name__)
    rc, mid = client.subscribe("a")
    seen.append((int(rc), mid))
    info = client.publish("a", "x", 0)
    seen.append((int(info.rc), next(int(part) for part in info)))
    seen.append(lib.mqtt.topic_matches_sub("a/+/c", "a/b/c"))
    seen.append(lib.mqtt.error_string(0))
    return seen


def queued_before_connecting(lib: Library) -> Seen:
    """A publish at QoS 1 that was accepted before the connection is sent with it."""
    seen: Seen = []
    done = threading.Event()
    client = lib.client()

    def on_publish(_client: Any, _data: object, mid: int, code: Any, _props: object) -> None:
        seen.append((mid, str(code)))
        done.set()

    client.on_publish = on_publish
    info = client.publish(lib.topic, "early", qos=1)
    seen.append(int(info.rc))
    client.connect_async(LOOPBACK, lib.port)
    client.loop_start()
    assert done.wait(DEADLINE_S)
    client.disconnect()
    client.loop_stop()
    return seen


def manual_acknowledgement(lib: Library) -> Seen:
    """A message that is not acknowledged comes again; one that is does not."""
    seen: Seen = []
    client_id = f"manual-{lib.topic[-8:]}"
    keep: dict[str, Any] = {"clean_session": False} if lib.version != 5 else {}

    def run(*, acknowledges: bool, wanted: int) -> None:
        client = lib.client(client_id=client_id, manual_ack=True, **keep)
        came = threading.Event()
        ready = threading.Event()

        def on_message(client: Any, _data: object, message: Any) -> None:
            seen.append((message.payload, message.dup))
            if acknowledges:
                client.ack(message.mid, message.qos)
            came.set()

        client.on_message = on_message
        client.on_subscribe = lambda *_: ready.set()

        def on_connect(client: Any, _data: object, flags: Any, *_: object) -> None:
            seen.append(flags.session_present)
            client.subscribe(lib.topic, 1)

        client.on_connect = on_connect
        arguments: dict[str, Any] = {}
        if lib.version == 5:
            arguments["clean_start"] = False
            arguments["properties"] = lib.Properties(lib.PacketTypes.CONNECT)
            arguments["properties"].SessionExpiryInterval = 100
        client.connect(LOOPBACK, lib.port, **arguments)
        client.loop_start()
        assert ready.wait(DEADLINE_S)
        if wanted == 1:
            client.publish(lib.topic, "work", 1).wait_for_publish(DEADLINE_S)
        assert came.wait(DEADLINE_S)
        client.publish(f"{lib.topic}/fence", "", 1).wait_for_publish(DEADLINE_S)
        client.disconnect()
        client.loop_stop()

    run(acknowledges=False, wanted=1)
    run(acknowledges=True, wanted=0)
    return seen


PROGRAMS: list[Program] = [
    first_steps,
    publishing_threads,
    properties,
    helpers,
    mistakes,
    queued_before_connecting,
    manual_acknowledgement,
]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_see_the_same(program: Program, version: int, our_port: int) -> None:
    expected = program(Library("paho", our_port, version))
    assert program(Library("ours", our_port, version)) == expected
    assert expected or version != 5


def test_callbacks_of_version_1_are_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match="VERSION2"):
        our_client.Client()


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.loop_read(),
        lambda client: client.proxy_set(proxy_addr="x"),
        lambda client: client.connect_srv("example"),
        lambda client: client.ws_set_options(headers={}),
    ],
)
def test_what_is_absent_names_the_way_out(ask: Callable[[our_client.Client], object]) -> None:
    with pytest.raises(NotImplementedError):
        ask(our_client.Client(our_client.CallbackAPIVersion.VERSION2))


def test_overlapping_filters_call_once(our_port: int) -> None:
    """One packet, one callback: as many as the broker sends, and no more."""
    lib = Library("ours", our_port, 4)
    got: list[bytes] = []
    ready = threading.Event()
    client = lib.client()
    client.on_message = lambda _c, _d, m: got.append(m.payload)
    client.on_subscribe = lambda *_: ready.set()
    client.on_connect = lambda c, *_: c.subscribe([(f"{lib.topic}/#", 1), (f"{lib.topic}/a", 1)])
    client.connect(LOOPBACK, our_port)
    client.loop_start()
    assert ready.wait(DEADLINE_S)
    for number in range(3):
        client.publish(f"{lib.topic}/a", str(number), 1)
    wait_until(lambda: len(got) >= 3, what="messages came", deadline_s=DEADLINE_S)
    client.publish(f"{lib.topic}/end", "end", 1)
    wait_until(lambda: got[-1] == b"end", what="the end came", deadline_s=DEADLINE_S)
    client.disconnect()
    client.loop_stop()
    assert got == [b"0", b"1", b"2", b"end"]
