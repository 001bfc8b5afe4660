"""Readings that survive this process: `python durable_outbox.py [URL] [FILE]`.

Kill it while it runs and start it again: what was accepted and not acknowledged is sent then.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from quantumqtt import Client

COUNT = 200


async def main(url: str, file: Path) -> None:
    """Send what an earlier run left, then readings of our own, and wait for the broker."""
    async with Client(url, store=file) as client:
        for receipt in client.recovered:
            await receipt
        print(f"{len(client.recovered)} readings of an earlier run were sent")
        receipts = [client.publish_nowait("readings", str(n), qos=2) for n in range(COUNT)]
        await receipts[-1].acceptance
        print(f"{COUNT} readings are on disk")
        for receipt in receipts:
            await receipt
        print(f"{COUNT} readings are at the broker")


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "mqtt://localhost"
    with tempfile.TemporaryDirectory() as folder:
        outbox = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder) / "outbox"
        asyncio.run(main(where, outbox))
