"""Threads that publish, one that listens: `python worker_threads.py [URL]`."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from quantumqtt import Message, SyncClient
from quantumqtt.client import Token

COUNT = 100


def main(url: str) -> None:
    """Publish from several threads at QoS 1 and wait until all came back."""
    seen: list[bytes] = []
    complete = threading.Event()

    def on_message(message: Message) -> None:
        seen.append(message.payload)
        if len(seen) == COUNT:
            complete.set()

    with SyncClient(url) as client:
        client.subscribe("work/#", on_message, qos=1).ready.wait(timeout=5)

        def publish(number: int) -> Token:
            return client.publish(f"work/{number}", str(number), qos=1)

        with ThreadPoolExecutor(4) as pool:
            tokens = list(pool.map(publish, range(COUNT)))
        for token in tokens:
            token.wait(timeout=5)
        complete.wait(timeout=5)
    print(f"{len(seen)} of {COUNT} messages came back")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "mqtt://localhost")
