"""`single` and `multiple`: connect, publish, leave."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quantumqtt.compat.paho.client import Client, Payload
from quantumqtt.compat.paho.enums import CallbackAPIVersion, MQTTProtocolVersion
from quantumqtt.compat.paho.properties import MQTTException
from quantumqtt.compat.paho.reasoncodes import ReasonCode

if TYPE_CHECKING:
    from quantumqtt.compat.paho.message import MQTTMessageInfo

Options = Mapping[str, Any]


def prepared(
    client_id: str,
    userdata: object,
    *,
    will: Options | None,
    auth: Options | None,
    tls: Options | None,
    protocol: int,
    transport: str,
    clean_session: bool | None = None,
) -> Client:
    """A client as the helpers' arguments describe it."""
    is_v5 = protocol == MQTTProtocolVersion.MQTTv5
    client = Client(
        CallbackAPIVersion.VERSION2,
        client_id,
        clean_session=None if is_v5 else clean_session,
        userdata=userdata,
        protocol=protocol,
        transport=transport,
    )
    if auth:
        client.username_pw_set(auth["username"], auth.get("password"))
    if will is not None:
        client.will_set(**will)
    if tls is not None:
        given = dict(tls)
        insecure = given.pop("insecure", False)
        client.tls_set(**given)
        if insecure:
            client.tls_insecure_set(insecure)
    return client


def refuse_unless_connected(
    _client: Client, _userdata: object, _flags: object, code: ReasonCode, _properties: object
) -> None:
    """Raise what the broker said, as paho's helpers do.

    Raises:
        MQTTException: The broker refused the connection.
    """
    if code.is_failure:
        raise MQTTException(f"Connection Refused: {code}")


def multiple(
    msgs: Sequence[Options | tuple[Any, ...]],
    hostname: str = "localhost",
    port: int = 1883,
    client_id: str = "",
    keepalive: int = 60,
    will: Options | None = None,
    auth: Options | None = None,
    tls: Options | None = None,
    protocol: int = MQTTProtocolVersion.MQTTv311,
    transport: str = "tcp",
    proxy_args: object = None,
) -> None:
    """Publish several messages, dictionaries or tuples, and leave when the broker has them.

    Raises:
        TypeError: `msgs` is no list of messages.
        ValueError: It is empty.
        MQTTException: The broker refused the connection.
        NotImplementedError: A proxy is asked for.
    """
    if not isinstance(msgs, list | tuple):
        raise TypeError("msgs must be a list or tuple")
    if not msgs:
        raise ValueError("msgs is empty")
    if proxy_args is not None:
        raise NotImplementedError("proxies are set up with quantumqtt.SyncClient")
    client = prepared(
        client_id, None, will=will, auth=auth, tls=tls, protocol=protocol, transport=transport
    )
    client.on_connect = refuse_unless_connected
    client.connect(hostname, port, keepalive)
    try:
        client.loop(0)
        infos: list[MQTTMessageInfo] = []
        for message in msgs:
            if isinstance(message, Mapping):
                infos.append(client.publish(**message))
            elif isinstance(message, tuple | list):
                infos.append(client.publish(*message))
            else:
                raise TypeError("message must be a dict, tuple, or list")
        for info in infos:
            info.wait_for_publish()
    finally:
        client.disconnect()


def single(
    topic: str,
    payload: Payload = None,
    qos: int = 0,
    retain: bool = False,
    hostname: str = "localhost",
    port: int = 1883,
    client_id: str = "",
    keepalive: int = 60,
    will: Options | None = None,
    auth: Options | None = None,
    tls: Options | None = None,
    protocol: int = MQTTProtocolVersion.MQTTv311,
    transport: str = "tcp",
    proxy_args: object = None,
) -> None:
    """Publish one message and leave when the broker has it; raises what `multiple` raises."""
    message = {"topic": topic, "payload": payload, "qos": qos, "retain": retain}
    multiple(
        [message], hostname, port, client_id, keepalive, will, auth, tls, protocol, transport,
        proxy_args,
    )  # fmt: skip
