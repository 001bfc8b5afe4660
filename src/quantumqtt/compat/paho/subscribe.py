"""`simple` and `callback`: connect, subscribe, take messages."""

from collections.abc import Callable, Sequence
from typing import Any

from quantumqtt.compat.paho.client import Client
from quantumqtt.compat.paho.enums import MQTTProtocolVersion
from quantumqtt.compat.paho.message import MQTTMessage
from quantumqtt.compat.paho.publish import Options, prepared, refuse_unless_connected
from quantumqtt.compat.paho.reasoncodes import ReasonCode


def callback(
    callback: Callable[[Client, Any, MQTTMessage], object],
    topics: str | Sequence[str],
    qos: int = 0,
    userdata: Any = None,  # noqa: ANN401 - whatever the application wants back
    hostname: str = "localhost",
    port: int = 1883,
    client_id: str = "",
    keepalive: int = 60,
    will: Options | None = None,
    auth: Options | None = None,
    tls: Options | None = None,
    protocol: int = MQTTProtocolVersion.MQTTv311,
    transport: str = "tcp",
    clean_session: bool | None = True,
    proxy_args: object = None,
) -> None:
    """Subscribe and call back for every message, until `client.disconnect()`.

    Raises:
        ValueError: QoS or topics make no sense.
        MQTTException: The broker refused the connection.
        NotImplementedError: A proxy is asked for.
    """
    if qos not in (0, 1, 2):
        raise ValueError("qos must be in the range 0-2")
    if proxy_args is not None:
        raise NotImplementedError("proxies are set up with quantumqtt.SyncClient")
    wanted = [topics] if isinstance(topics, str) else list(topics)

    def on_connect(
        client: Client, data: object, flags: object, code: ReasonCode, properties: object
    ) -> None:
        refuse_unless_connected(client, data, flags, code, properties)
        client.subscribe([(topic, qos) for topic in wanted])

    client = prepared(
        client_id, userdata, will=will, auth=auth, tls=tls, protocol=protocol,
        transport=transport, clean_session=clean_session,
    )  # fmt: skip
    client.on_connect = on_connect
    client.on_message = callback
    client.connect(hostname, port, keepalive)
    try:
        client.loop_forever()
    finally:
        client.disconnect()


def simple(
    topics: str | Sequence[str],
    qos: int = 0,
    msg_count: int = 1,
    retained: bool = True,
    hostname: str = "localhost",
    port: int = 1883,
    client_id: str = "",
    keepalive: int = 60,
    will: Options | None = None,
    auth: Options | None = None,
    tls: Options | None = None,
    protocol: int = MQTTProtocolVersion.MQTTv311,
    transport: str = "tcp",
    clean_session: bool | None = True,
    proxy_args: object = None,
) -> MQTTMessage | list[MQTTMessage]:
    """Subscribe, wait for so many messages and return them; one comes without a list.

    Raises:
        ValueError: The count is below 1, or QoS or topics make no sense.
        MQTTException: The broker refused the connection.
        NotImplementedError: A proxy is asked for.
    """
    if msg_count < 1:
        raise ValueError("msg_count must be > 0")
    came: list[MQTTMessage] = []

    def take(client: Client, _data: object, message: MQTTMessage) -> None:
        if (retained or not message.retain) and len(came) < msg_count:
            came.append(message)
            if len(came) == msg_count:
                client.disconnect()

    callback(
        take, topics, qos, None, hostname, port, client_id, keepalive, will, auth, tls, protocol,
        transport, clean_session, proxy_args,
    )  # fmt: skip
    return came[0] if msg_count == 1 else came
