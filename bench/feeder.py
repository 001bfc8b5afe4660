"""A server that is faster than any client and loses nothing: it feeds whoever subscribes.

Brokers drop QoS 0 for a subscriber that is too slow, so a slow client could never finish a fixed
count. Here TCP's own back-pressure holds the sender. One client, one filter; the port is printed.

    python -m bench.feeder COUNT PAYLOAD_BYTES
"""

import socket
import sys
from typing import Final

BLOCK_MESSAGES: Final = 500
_CONNECT: Final = 1
_SUBSCRIBE: Final = 8
_UNSUBSCRIBE: Final = 10
_PINGREQ: Final = 12
_V5: Final = 5


def serve(count: int, payload_bytes: int) -> None:
    """Wait for one client, feed it, and answer its pings until it leaves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        link, _ = listener.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rest, is_v5 = b"", False
    with link:
        while data := link.recv(4096):
            rest += data
            while len(rest) > 1 and len(rest) >= 2 + rest[1]:
                packet, rest = rest[: 2 + rest[1]], rest[2 + rest[1] :]
                kind = packet[0] >> 4
                if kind == _CONNECT:
                    is_v5 = packet[8] == _V5
                    link.sendall(b"\x20\x03\x00\x00\x00" if is_v5 else b"\x20\x02\x00\x00")
                elif kind == _SUBSCRIBE:
                    _feed(link, packet, is_v5=is_v5, count=count, payload_bytes=payload_bytes)
                elif kind == _UNSUBSCRIBE:
                    answer = packet[2:4] + (b"\x00\x00" if is_v5 else b"")
                    link.sendall(bytes([0xB0, len(answer)]) + answer)
                elif kind == _PINGREQ:
                    link.sendall(b"\xd0\x00")


def _feed(
    link: socket.socket, packet: bytes, *, is_v5: bool, count: int, payload_bytes: int
) -> None:
    packet_id, at = packet[2:4], 5 if is_v5 else 4
    topic = packet[at : at + 2 + int.from_bytes(packet[at : at + 2], "big")]
    block_id = packet_id + (b"\x00" if is_v5 else b"")
    link.sendall(bytes([0x90, len(block_id) + 1]) + block_id + b"\x00")
    body = topic + (b"\x00" if is_v5 else b"") + b"x" * payload_bytes
    length = len(body)
    varint = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    block = (b"\x30" + varint + body) * BLOCK_MESSAGES
    for _ in range(count // BLOCK_MESSAGES):
        link.sendall(block)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
