"""Keeps every message that comes, so that a test can wait for what it expects."""

import ssl
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from quantumqtt.client import Backoff, Message, SyncClient
from quantumqtt.client.options import Version

_WITHIN_S: Final = 10.0
_QUICK: Final = Backoff(first_s=0.02, most_s=0.5)


class Recorder:
    """A client of its own that subscribes and remembers; safe to ask from any thread.

    ```
    with Recorder(broker.url, "sensors/#") as recorder:
        run_the_program_under_test()
        (reading,) = recorder.wait_for(1)
    ```
    """

    def __init__(
        self,
        url: str,
        *topic_filters: str,
        qos: int = 2,
        tls: ssl.SSLContext | None = None,
        version: Version = "auto",
    ) -> None:
        """Connect and subscribe; when this returns, nothing published from now on is missed.

        Raises:
            QuantuMQTTError: The broker is not there, or refuses the client or a filter.
        """
        self._changed = threading.Condition()
        self._messages: list[Message] = []
        self._client = SyncClient(url, tls=tls, version=version, reconnect=_QUICK)
        self._client.connect()
        try:
            subscription = self._client.subscribe(topic_filters or ("#",), self._keep, qos=qos)
            subscription.ready.wait(_WITHIN_S)
        except BaseException:
            self._client.close(drain_s=0)
            raise

    def __enter__(self) -> Self:
        """It records already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    @property
    def messages(self) -> tuple[Message, ...]:
        """What came so far, in the order in which it came."""
        with self._changed:
            return tuple(self._messages)

    def payloads(self, topic: str | None = None) -> list[bytes]:
        """The payloads so far, of all topics or of one."""
        return [one.payload for one in self.messages if topic in (None, one.topic)]

    def wait_for(
        self,
        wanted: int | Callable[[Sequence[Message]], bool],
        timeout: float = _WITHIN_S,
    ) -> tuple[Message, ...]:
        """Wait until so many messages came, or until they are as wanted; gives all of them.

        Raises:
            TimeoutError: That did not happen in time; tells what came.
        """

        def is_so() -> bool:
            if callable(wanted):
                return wanted(self._messages)
            return len(self._messages) >= wanted

        with self._changed:
            if not self._changed.wait_for(is_so, timeout):
                came = ", ".join(f"{one.topic}: {one.payload[:40]!r}" for one in self._messages)
                count = len(self._messages)
                raise TimeoutError(f"within {timeout:g} s only {count} messages came: {came}")
            return tuple(self._messages)

    def wait_subscribed(self, timeout: float = _WITHIN_S) -> None:
        """Wait until a broker that was started again has the subscription again.

        Raises:
            TimeoutError: It has not, in time.
        """
        # The client makes old subscriptions again before new ones, so the answer to a new one
        # means that the old ones are in place.
        probe = self._client.subscribe(f"quantumqtt/recorder/{uuid4().hex}")
        probe.ready.wait(timeout)
        probe.close()

    def clear(self) -> None:
        """Forget what came."""
        with self._changed:
            self._messages.clear()

    def close(self) -> None:
        """Leave the broker; what was recorded stays."""
        self._client.close(drain_s=0)

    def _keep(self, message: Message) -> None:
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()
