"""Password checks: on a few threads, never on the event loop.

Theory of operation. Requests wait in a bounded row. As many workers as there are threads take them
one by one, since a check takes milliseconds on purpose and others should not wait for a batch. A
good verdict may be remembered by the native half, which then admits the same credentials without a
question; so this row is long only when many clients come for the first time.

Storms: equal credentials that are being checked are checked once. Requests whose client has been
told "busy" meanwhile are skipped. The threads run at lower priority than shards.

A verdict counts only if the users it was found with are still those in force; otherwise it is
looked for again.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from quantumqtt.config.settings import cpus_usable
from quantumqtt.mqtt import ReasonCode
from quantumqtt.node.native import NativeEvent, NativeNode
from quantumqtt.policy.password_file import Users
from quantumqtt.policy.passwords import Argon2Hash, PasswordHash

_log = logging.getLogger(__name__)

THREADS_MAX: Final = 4
NICENESS: Final = 10

# Checked for users nobody knows, so that an answer's time does not tell who exists. The hash of
# sixteen random bytes that were thrown away, with the parameters of `passwords.py`.
_NOBODY: Final = Argon2Hash(
    "$argon2id$v=19$m=19456,t=2,p=1$86KtBWdklNHvgjTmvc4kxw"
    "$8T7Z/ccNvvfoaBrIyqbkUfmrhnXPWGOnxMzkn5YJfHY"
)


class PasswordDesk:
    """Answers admission requests from a table of users."""

    def __init__(
        self,
        node: NativeNode,
        users: Users,
        *,
        timeout_ms: int,
        queue_count_max: int,
        now_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        """Remember whom to answer, and how long an answer is worth having."""
        self._node = node
        self._users = users
        self._timeout_ms = timeout_ms
        self._now_ms = now_ms
        self._waiting: asyncio.Queue[NativeEvent] = asyncio.Queue(queue_count_max)
        self._threads = min(THREADS_MAX, cpus_usable())
        self._pool: ThreadPoolExecutor | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._checking: dict[tuple[str, bytes], asyncio.Future[bool]] = {}

    @property
    def users(self) -> Users:
        """The users in force."""
        return self._users

    def replace(self, users: Users) -> None:
        """From now on verdicts are found with these users."""
        self._users = users
        self._checking = {}

    def start(self) -> None:
        """Start threads and workers on the running loop; `stop` waits for them."""
        self._pool = ThreadPoolExecutor(
            self._threads, thread_name_prefix="quantumqtt-password", initializer=_step_back
        )
        loop = asyncio.get_running_loop()
        self._workers = [
            loop.create_task(self._serve(), name=f"password-{number}")
            for number in range(self._threads)
        ]

    async def stop(self) -> None:
        """Cancel the workers and wait for them and their threads."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers = []
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
            self._pool = None

    def on_requests(self, events: Iterable[NativeEvent]) -> None:
        """Queue requests; those that do not fit, and those without a password, are refused."""
        answers: list[tuple[int, int]] = []
        for event in events:
            if event.ticket is None:
                continue
            if event.user_name is None and event.password is None:
                answers.append((event.ticket, int(ReasonCode.NOT_AUTHORIZED)))
                continue
            if not event.user_name or event.password is None:
                answers.append((event.ticket, int(ReasonCode.BAD_USER_NAME_OR_PASSWORD)))
                continue
            try:
                self._waiting.put_nowait(event)
            except asyncio.QueueFull:
                answers.append((event.ticket, int(ReasonCode.SERVER_BUSY)))
        if answers:
            self._node.answer_admissions(answers)

    async def _serve(self) -> None:
        while True:
            event = await self._waiting.get()
            if event.ticket is None or self._now_ms() > event.at_ms + self._timeout_ms:
                continue  # the client has been told "busy"
            try:
                is_good = await self._is_good(event.user_name or "", event.password or b"")
            except Exception:
                # The task must go on for others; this client may come again.
                _log.exception("a password could not be checked")
                self._node.answer_admissions([(event.ticket, int(ReasonCode.SERVER_UNAVAILABLE))])
                continue
            code = ReasonCode.SUCCESS if is_good else ReasonCode.BAD_USER_NAME_OR_PASSWORD
            self._node.answer_admissions([(event.ticket, int(code))], may_be_remembered=is_good)

    async def _is_good(self, name: str, password: bytes) -> bool:
        while True:
            users = self._users
            verdict = await self._check(users.get(name), name, password)
            if users is self._users:
                return verdict

    async def _check(self, known: PasswordHash | None, name: str, password: bytes) -> bool:
        """Check once for everybody who waits for the same."""
        key = (name, password)
        running = self._checking.get(key)
        if running is None:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._pool, (known or _NOBODY).verify, password)
            checking = self._checking
            checking[key] = running
            running.add_done_callback(lambda _: checking.pop(key, None))
        verdict = await asyncio.shield(running)
        return verdict and known is not None


def _step_back() -> None:
    """Let shards go first: on Linux niceness belongs to the thread."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
