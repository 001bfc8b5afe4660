"""What a caller holds while something is under way: receipts of publishes, answers of operations.

Theory of operation. A `Pending` is settled once. Its outcome may be written under the session lock;
whoever waits is called after every lock is released (CLI-11). Most are never waited for one by
one, so waiting costs only those who do: a waiter is a plain callable, kept in a list that exists
only when somebody asked.

Settling writes the outcome first and looks for waiters second; adding a waiter writes the list
first and looks for the outcome second. So one of the two sees the other, and since a waiter is
taken out of the list under a lock, it is called exactly once. The lock is shared by all, held for
a list operation, and taken only when there are waiters.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Generator
from typing import Final, Generic, Self, TypeVar

_WAITERS: Final = threading.Lock()

Result = TypeVar("Result")


class Pending(Generic[Result]):
    """Something under way: await it, wait for it in a thread, or ask to be called."""

    __slots__ = ("_outcome", "_waiters")

    def __init__(self) -> None:
        self._outcome: tuple[Result | None, BaseException | None] | None = None
        self._waiters: list[Callable[[], None]] | None = None

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._outcome is not None

    def exception(self) -> BaseException | None:
        """Why it failed; None when it succeeded or is still under way."""
        return self._outcome[1] if self._outcome is not None else None

    def result(self) -> Result:
        """The outcome.

        Raises:
            asyncio.InvalidStateError: It is still under way.
            QuantuMQTTError: It failed, and this is why.
        """
        if self._outcome is None:
            raise asyncio.InvalidStateError("still under way: await it, or wait() for it")
        result, error = self._outcome
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def wait(self, timeout: float | None = None) -> Result:
        """Block this thread until the outcome is known, and return it.

        Never call this on an event loop: await there.

        Raises:
            TimeoutError: It is still under way after `timeout` seconds; it goes on.
            QuantuMQTTError: It failed, and this is why.
        """
        if self._outcome is None:
            known = threading.Event()
            self._add_waiter(known.set)
            if not known.wait(timeout):
                self._remove_waiter(known.set)
                raise TimeoutError(f"still under way after {timeout} s")
        return self.result()

    def __await__(self) -> Generator[object, None, Result]:
        """Wait on an event loop. Cancelling the wait leaves what is under way alone."""
        if self._outcome is None:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            waker = _LoopWaker(loop, future)
            self._add_waiter(waker)
            try:
                yield from future
            finally:
                self._remove_waiter(waker)
        return self.result()

    def future(self) -> concurrent.futures.Future[Result]:
        """A `concurrent.futures.Future` of the same outcome, for executors and `wait()`."""
        future: concurrent.futures.Future[Result] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def settle() -> None:
            error = self.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(self.result())

        self._add_waiter(settle)
        return future

    def _add_waiter(self, waiter: Callable[[], None]) -> None:
        with _WAITERS:
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
        if self._outcome is not None:
            self._call_waiters()

    def _remove_waiter(self, waiter: Callable[[], None]) -> None:
        with _WAITERS:
            if self._waiters is not None and waiter in self._waiters:
                self._waiters.remove(waiter)

    def _settle(self, result: Result | None, error: BaseException | None = None) -> None:
        """Make the outcome known. Called once, without any lock."""
        self._outcome = (result, error)
        if self._waiters is not None:
            self._call_waiters()

    def _call_waiters(self) -> None:
        with _WAITERS:
            waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            waiter()


class _LoopWaker:
    """Wakes a future of an event loop from whatever thread settles."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        self._loop = loop
        self._future = future

    def __call__(self) -> None:
        if _running_loop() is self._loop:
            self._wake()
        else:
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                return  # the loop was closed, and nobody waits on it any more

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Receipt(Pending[int]):
    """What became of one publish; the result is the broker's reason code.

    A receipt exists once the client holds the publish; it will not forget it while the process
    lives. The publish is *accepted* when the client's store has it: at once, or, when the store is
    a file and the QoS is 1 or 2, when the disk has it. It is *acknowledged*, and so done, when the
    broker has taken it over: at QoS 0 when the bytes left for the network, at QoS 1 with PUBACK, at
    QoS 2 with PUBCOMP.
    """

    __slots__ = (
        "_acceptance",
        "bytes_count",
        "flags",
        "packet_id",
        "payload",
        "properties",
        "released",
        "sequence",
        "topic",
    )
    _acceptance: Pending[None]

    def __init__(self, topic: str, payload: bytes, flags: int, properties: bytes) -> None:
        # Pending.__init__ written out: this runs per message.
        self._outcome = None
        self._waiters = None
        self.topic: str = topic
        self.payload: bytes = payload
        self.flags: int = flags
        self.properties: bytes = properties
        self.bytes_count: int = len(topic) + len(payload) + len(properties)
        self.packet_id: int = 0
        self.released: bool = False
        # Its number in the store; 0 when it is in none.
        self.sequence: int = 0

    @property
    def acceptance(self) -> Pending[None]:
        """Await it, or `wait()` for it, to know that the publish survives a crash.

        Without a store, and at QoS 0, there is nothing to wait for.
        """
        return self._acceptance if self.sequence else _NOTHING_TO_WAIT_FOR

    @property
    def accepted(self) -> bool:
        """Whether the client's store has it."""
        return self.acceptance.done() and self.acceptance.exception() is None

    @property
    def qos(self) -> int:
        """The QoS it was accepted with."""
        return self.flags >> 1 & 0b11

    @property
    def retain(self) -> bool:
        """Whether the broker is asked to keep it."""
        return bool(self.flags & 1)

    @property
    def acknowledged(self) -> bool:
        """Whether the broker has taken it over."""
        return self._outcome is not None and self._outcome[1] is None

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback` with this receipt once the outcome is known, or at once if it is.

        It runs where the outcome becomes known; `SyncClient.publish` returns tokens whose
        callbacks run on a thread of their own instead.
        """
        self._add_waiter(lambda: _ignore(callback(self)))

    def __repr__(self) -> str:
        state = "under way" if not self.done() else str(self.exception() or "acknowledged")
        return f"<Receipt {self.topic!r} QoS {self.qos}: {state}>"


_NOTHING_TO_WAIT_FOR: Final[Pending[None]] = Pending()
_NOTHING_TO_WAIT_FOR._settle(None)


def _ignore(_: object) -> None:
    """Drop a result that nobody asked for."""


class Operation(Pending[tuple[int, ...]]):
    """A SUBSCRIBE or UNSUBSCRIBE under way; the result is one reason code per filter."""

    __slots__ = ("filters", "is_subscribe", "packet_id")

    def __init__(self, filters: tuple[tuple[str, int], ...], *, is_subscribe: bool) -> None:
        super().__init__()
        self.filters: tuple[tuple[str, int], ...] = filters
        self.is_subscribe: bool = is_subscribe
        self.packet_id: int = 0
