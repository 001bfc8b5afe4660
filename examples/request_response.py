"""One service, many callers, MQTT 5 request and response: `python request_response.py [URL]`."""

import asyncio
import sys

from quantumqtt import Client, Message


async def main(url: str) -> None:
    """Answer requests with one client and ask with another."""
    async with Client(url, version="5") as service, Client(url, version="5") as caller:

        async def answer(message: Message) -> None:
            await service.respond(message, message.payload.upper())

        await service.handle("shout", answer, qos=1, parallel=4).ready
        answers = await asyncio.gather(
            *(caller.request("shout", word) for word in ("quantum", "mqtt", "speaks"))
        )
        print(*(message.payload.decode() for message in answers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "mqtt://localhost"))
