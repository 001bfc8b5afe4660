"""A process that publishes through a store until it is killed; says what was accepted.

    python storing_publisher.py URL VERSION STORE TOPIC FIRST COUNT

Even numbers go at QoS 1, odd ones at QoS 2. `accepted N` means that the store has N, `recovered N`
that an earlier life left N, `acknowledged` that the broker has everything there ever was.
"""

import asyncio
import sys
from functools import partial

from quantumqtt.client import Client, Receipt

WINDOW = 200
DEADLINE_S = 60.0


def say(line: str) -> None:
    """Say it before anything else happens: we may be dead the next moment."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(url: str, version: str, store: str, topic: str, first: int, count: int) -> None:
    """Publish numbers, in bursts so that commits are groups."""
    async with Client(
        url,
        version=version,  # type: ignore[arg-type]
        store=store,
        inflight_max=50,
    ) as client:
        for _ in client.recovered:
            say("recovered")
        receipts: list[Receipt] = list(client.recovered)
        for number in range(first, first + count):
            receipt = client.publish_nowait(topic, str(number), qos=1 + number % 2)
            receipt.acceptance._add_waiter(partial(say, f"accepted {number}"))
            receipts.append(receipt)
            if len(receipts) % 10 == 0:
                await asyncio.sleep(0)
            if len(receipts) > WINDOW:
                await receipts.pop(0)
        async with asyncio.timeout(DEADLINE_S):
            for receipt in receipts:
                await receipt
        say("acknowledged")


if __name__ == "__main__":
    url, version, store, topic, first, count = sys.argv[1:]
    asyncio.run(main(url, version, store, topic, int(first), int(count)))
