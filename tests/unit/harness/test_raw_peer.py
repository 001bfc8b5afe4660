"""The raw peer itself: it must notice what is wrong, or no wire test means anything."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness.raw_peer import RawPeer, as_bytes, connect_packet, packet, text


@contextmanager
def scripted_server(*replies: bytes) -> Iterator[int]:
    """Accept one connection, send the replies, close."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted:
                for reply in replies:
                    accepted.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()


def test_it_accepts_exactly_what_was_expected() -> None:
    with scripted_server(b"\x20\x02", b"\x00\x00") as port, RawPeer("127.0.0.1", port) as peer:
        peer.expect("20 02 00 00")
        peer.expect_closed()


def test_it_rejects_other_bytes_early_ends_and_late_ones() -> None:
    with scripted_server(b"\x20\x02") as port, RawPeer("127.0.0.1", port) as peer:
        with pytest.raises(AssertionError, match="expected 20 03, got 20 02"):
            peer.expect("20 03")
        with pytest.raises(AssertionError, match="closed after nothing"):
            peer.expect("00")
    with (
        scripted_server(b"\xd0\x00") as port,
        RawPeer("127.0.0.1", port) as peer,
        pytest.raises(AssertionError, match="expected a close, got d0 00"),
    ):
        peer.expect_closed()


def test_it_reads_packets_of_any_length_and_notices_a_bad_length() -> None:
    long = packet(0x30, text("t"), b"x" * 70_000)
    replies = [long, b"\xd0\x00", b"\x30\xff\xff\xff\xff\x01"]
    with scripted_server(*replies) as port, RawPeer("127.0.0.1", port) as peer:
        assert peer.receive_packet() == long
        assert peer.receive_packet() == b"\xd0\x00"
        with pytest.raises(AssertionError, match="bad length"):
            peer.receive_packet()


def test_silence_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        with RawPeer("127.0.0.1", port, deadline_s=0.02) as peer, pytest.raises(TimeoutError):
            peer.expect("00")


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 2_097_152])
def test_a_fixed_header_tells_the_length_of_its_body(length: int) -> None:
    built = packet(0x30, b"x" * length)
    digits = [byte & 0x7F for byte in built[1 : len(built) - length]]
    assert sum(digit << (7 * place) for place, digit in enumerate(digits)) == length


def test_packets_are_spelled_as_the_standard_has_them() -> None:
    assert connect_packet("a") == as_bytes("10 0d 00 04 4d515454 04 02 00 3c 00 01 61")
    assert connect_packet("a", level=5) == as_bytes("10 0e 00 04 4d515454 05 02 00 3c 00 00 01 61")
