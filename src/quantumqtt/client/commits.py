"""Keeps bytes back until what they rest on is stored: write ahead, and one sync for many.

Theory of operation. The loop puts in what the session handed out in one turn: records, bytes, and
whose acceptance the records are. Nothing is under way → a commit begins, on a thread that exists
for the store. What comes meanwhile waits and makes the next commit, all of it at once. When a
commit is done its bytes are written and its acceptances are told, on the loop.

A store that fails ends the client: what we told the broker and what we would find again after a
crash must not drift apart.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from quantumqtt.client.journal import Contents
from quantumqtt.client.receipts import Receipt
from quantumqtt.client.store import Store
from quantumqtt.errors import QuantuMQTTError, StorageError

Output = tuple[asyncio.Transport, bytes]


class Commits:
    """One client's row of commits. All methods run on the loop's thread."""

    def __init__(self, store: Store, on_failed: Callable[[QuantuMQTTError], None]) -> None:
        self._store: Final = store
        self._on_failed: Final = on_failed
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="quantumqtt store")
        self._records: list[bytes] = []
        self._accepted: list[Receipt] = []
        self._outputs: list[Output] = []
        self._is_rewrite = False
        self._under_way: asyncio.Future[None] | None = None
        self._error: QuantuMQTTError | None = None
        self._is_open = False

    async def open(self, client_id: str, *, is_fixed: bool) -> Contents:
        """Open the store.

        Raises:
            StorageError: It cannot be read, is in use, or is another client's.
        """
        loop = asyncio.get_running_loop()
        work = partial(self._store.open, client_id, is_fixed=is_fixed)
        contents = await loop.run_in_executor(self._executor, work)
        self._is_open = True
        return contents

    def put(
        self,
        records: list[bytes],
        accepted: list[Receipt],
        output: Output | None,
    ) -> None:
        """Store records, then write bytes; in the order of calls."""
        if self._error is not None or not self._is_open:
            return
        if self._under_way is None and not records:
            if output is not None:
                _write([output])
            return
        self._records += records
        self._accepted += accepted
        if output is not None:
            self._outputs.append(output)
        self._begin()

    def wants_rewrite(self, live_bytes: int) -> bool:
        """Whether the store should be written anew; asked between two commits only."""
        if self._under_way is not None or self._error is not None or not self._is_open:
            return False
        return self._store.wants_rewrite(live_bytes)

    def replace(self, records: list[bytes], accepted: list[Receipt]) -> None:
        """Write the store anew; the records amount to all that was ever put in."""
        self._records = records
        self._accepted += accepted
        self._is_rewrite = True
        self._begin()

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way is not None:
            await asyncio.wait([self._under_way])

    async def close(self) -> None:
        """Finish what is under way and let go of the store. Idempotent."""
        await self.idle()
        was_open, self._is_open = self._is_open, False
        if was_open:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._store.close)
        self._executor.shutdown()

    def _begin(self) -> None:
        if self._under_way is not None or not (self._records or self._is_rewrite):
            return
        work = self._store.rewrite if self._is_rewrite else self._store.commit
        records, self._records, self._is_rewrite = self._records, [], False
        accepted, self._accepted = self._accepted, []
        outputs, self._outputs = self._outputs, []
        loop = asyncio.get_running_loop()
        under_way = loop.run_in_executor(self._executor, work, records)
        self._under_way = under_way
        under_way.add_done_callback(partial(self._on_done, accepted, outputs))

    def _on_done(
        self, accepted: list[Receipt], outputs: list[Output], done: asyncio.Future[None]
    ) -> None:
        self._under_way = None
        error = done.exception()
        if error is not None:
            self._on_error(error, [*accepted, *self._accepted])
            return
        for receipt in accepted:
            if not receipt.acceptance.done():
                receipt.acceptance._settle(None)
        _write(outputs)
        if self._records or self._is_rewrite:
            self._begin()
        elif self._outputs:
            outputs, self._outputs = self._outputs, []
            _write(outputs)

    def _on_error(self, cause: BaseException, accepted: list[Receipt]) -> None:
        error = self._error = (
            cause
            if isinstance(cause, QuantuMQTTError)
            else StorageError(f"the store failed: {cause!r}", "what it is made of says why")
        )
        self._records, self._accepted, self._outputs = [], [], []
        for receipt in accepted:
            if not receipt.acceptance.done():
                receipt.acceptance._settle(None, error)
        self._on_failed(error)


def _write(outputs: list[Output]) -> None:
    for transport, data in outputs:
        if not transport.is_closing():
            transport.write(data)
