"""Who waits for which response: one subscription behind all requests of a client.

Requests carry a number as correlation data and this client's own topic as response topic. Messages
are offered on the loop's thread; requests are made on any. Each waits for a promise of its own, so
a response that nobody asked for, or that comes too late, wakes nobody.
"""

import itertools
import threading

from quantumqtt._core import Message
from quantumqtt.client.driver import Driver
from quantumqtt.client.receipts import Operation, Pending
from quantumqtt.errors import QuantuMQTTError, ResponseTimeout


class Replies:
    """The responses one client waits for."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._next = itertools.count(1)
        self._expected: dict[bytes, Pending[Message]] = {}
        self._beginning = threading.Lock()
        self._ready: Operation | None = None
        self._topic = ""

    def begin(self) -> tuple[str, Operation]:
        """Subscribe, the first time; gives our response topic and the server's answer."""
        with self._beginning:
            if self._ready is None:
                # Only now: the server may have chosen our client id.
                self._topic = f"quantumqtt/replies/{self._driver.client_id}"
                self._ready = self._driver.subscribe([(self._topic, 1)], self)
            return self._topic, self._ready

    def expect(self) -> tuple[bytes, Pending[Message]]:
        """Number a request; its response settles the promise."""
        correlation = next(self._next).to_bytes(8, "big")
        response: Pending[Message] = Pending()
        self._expected[correlation] = response
        return correlation, response

    def forget(self, correlation: bytes) -> None:
        """Nobody waits for this response any more."""
        self._expected.pop(correlation, None)

    # --- for the driver -----------------------------------------------------------------------

    def offer(self, messages: list[Message]) -> None:
        """Give responses to those who wait."""
        for message in messages:
            response = self._expected.pop(message.correlation_data or b"", None)
            if response is not None:
                response._settle(message)
            self._driver.accept(message)

    def end(self, error: QuantuMQTTError | None) -> None:
        """No response will come any more."""
        while self._expected:
            _, response = self._expected.popitem()
            response._settle(None, error or ResponseTimeout("the client was closed"))


def timed_out(topic: str, timeout_s: float) -> ResponseTimeout:
    """The error of a request that nobody answered."""
    return ResponseTimeout(
        f"no response to {topic!r} within {timeout_s:g} s", "does anybody answer there?"
    )
