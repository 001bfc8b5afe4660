"""Messages in and out as paho shows them."""

import threading
import time

from quantumqtt.client import Message, Token
from quantumqtt.compat.paho.enums import MQTTErrorCode, error_string
from quantumqtt.compat.paho.properties import Properties, message_properties


class MQTTMessage:
    """A message for `on_message`."""

    __slots__ = ("_message", "dup", "mid", "payload", "properties", "qos", "retain", "timestamp",
                 "topic")  # fmt: skip

    def __init__(self, message: Message, *, is_v5: bool) -> None:
        """Show one of our messages."""
        self._message = message
        self.timestamp = time.monotonic()
        self.mid = message.packet_id or 0
        self.topic = message.topic
        self.payload = message.payload
        self.qos = message.qos
        self.retain = message.retain
        self.dup = message.dup
        self.properties: Properties | None = message_properties(message) if is_v5 else None


class MQTTMessageInfo:
    """What `publish` returns: wait for it, or ask whether it is done."""

    __slots__ = ("_done", "_iteration", "mid", "rc")

    def __init__(self, mid: int) -> None:
        """Stand for the publish with this number."""
        self.mid = mid
        self.rc = MQTTErrorCode.MQTT_ERR_SUCCESS
        self._done = threading.Event()
        self._iteration = 0

    def __iter__(self) -> "MQTTMessageInfo":
        """`rc, mid = client.publish(…)` works, as it did in old programs."""
        self._iteration = 0
        return self

    def __next__(self) -> int:
        """First the error code, then the number."""
        self._iteration += 1
        if self._iteration > 2:
            raise StopIteration
        return (self.rc, self.mid)[self._iteration - 1]

    def __getitem__(self, index: int) -> int:
        """The error code and the number by index."""
        return (int(self.rc), self.mid)[index]

    def __str__(self) -> str:
        """Both, as a tuple."""
        return str((int(self.rc), self.mid))

    def settle(self) -> None:
        """The publish is done."""
        self._done.set()

    def wait_for_publish(self, timeout: float | None = None) -> None:
        """Block until the broker has it; a timeout returns silently, see `is_published`.

        Raises:
            ValueError: It was not queued, because the queue was full.
            RuntimeError: It was not sent, because of `rc`.
        """
        self._check()
        self._done.wait(timeout)

    def is_published(self) -> bool:
        """Whether the broker has it.

        Raises:
            ValueError: It was not queued, because the queue was full.
            RuntimeError: It was not sent, because of `rc`.
        """
        self._check()
        return self._done.is_set()

    def _check(self) -> None:
        if self.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            raise ValueError("Message is not queued due to ERR_QUEUE_SIZE")
        if self.rc > 0:
            raise RuntimeError(f"Message publish failed: {error_string(self.rc)}")


class Outgoing:
    """A publish that is not done, with what it takes to do it again after `disconnect`."""

    __slots__ = ("info", "payload", "properties", "qos", "retain", "token", "topic")

    def __init__(
        self,
        info: MQTTMessageInfo,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: Properties | None,
    ) -> None:
        """Keep the arguments."""
        self.info = info
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.token: Token | None = None
