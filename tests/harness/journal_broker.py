"""A small durable broker in plain Python, and the lies a judge of brokers has to catch.

Told no lie it keeps every promise of MQTT that `quantumqtt torture` looks at, over `kill -9` and
over power cuts: each input is one line of a journal, synced before anything it causes leaves, and a
start replays the journal through the same code. Told a lie it breaks one promise and keeps the
others. So it shows both sides of the tool: silence where all is well, and the right name where it
is not.

Run it: `python -m tests.harness.journal_broker PORT DATA [LIE]`. It speaks 3.1.1 and 5, as much of
them as the torture needs, and refuses nothing.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from tests.harness import packets
from tests.harness.packets import Cursor, Key, Kind, Version

LIES: Final = (
    "forgets",  # acknowledges every tenth publish without keeping or delivering it
    "doubles",  # delivers every tenth QoS 2 publish under two packet ids
    "invents",  # delivers a message nobody published
    "reorders",  # holds every tenth publish back behind the next
    "denies-sessions",  # resumes, and says session present 0
    "claims-sessions",  # says session present 1 to newcomers
    "loses-filters",  # loses every second subscription at a restart
    "keeps-filters",  # finds subscriptions again that had been taken away, at a restart
    "loses-retained",  # keeps no retained message over a restart
    "swallows-wills",  # never publishes a will
    "serves-wills-always",  # publishes wills after a goodbye, too
    "forgets-goodbyes",  # knows nothing of a DISCONNECT after a restart
    "never-syncs",  # writes the journal without a sync
    "never-writes",  # has no journal at all
    "dies",  # does not start a second time
)
_FOR_EVER: Final = 0xFFFF_FFFF
Record = dict[str, object]


@dataclass
class Session:
    """What outlives a connection."""

    version: int
    expiry_s: int
    filters: dict[str, int] = field(default_factory=dict)
    waiting: dict[int, tuple[str, bytes, int]] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    next_id: int = 0
    will: tuple[str, bytes, int] | None = None
    will_delay_s: int = 0
    will_at: float | None = None


class Connection(asyncio.Protocol):
    """One socket."""

    def __init__(self, broker: "JournalBroker") -> None:
        self._broker = broker
        self._half = b""
        self.client: str | None = None
        self.version = Version.V311
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._half + data
        while (length := packet_length(data)) is not None and length <= len(data):
            self._broker.on_packet(self, data[:length])
            data = data[length:]
        self._half = data
        self._broker.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._broker.on_lost(self)
        self._broker.flush()

    def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


def packet_length(data: bytes) -> int | None:
    """How long the packet at the start is; None when that cannot be told yet."""
    length = 0
    for place in range(1, 5):
        if place >= len(data):
            return None
        length |= (data[place] & 0x7F) << (7 * (place - 1))
        if not data[place] & 0x80:
            return 1 + place + length
    raise AssertionError("a length of five bytes")


class JournalBroker:
    """State, journal and the connections of now."""

    def __init__(self, data: Path, lie: str) -> None:
        self._lie = lie
        self._sessions: dict[str, Session] = {}
        self._retained: dict[str, bytes] = {}
        self._connections: dict[str, Connection] = {}
        self._out: list[tuple[Connection, bytes]] = []
        self._fresh: list[Record] = []
        self._published = 0
        self._held: tuple[str, bytes, int] | None = None
        self._is_replaying = False
        self._file = data / "journal"
        had_journal = self._file.exists()
        if lie == "dies" and had_journal:
            sys.exit("this broker does not start twice")
        self._replay()
        self._journal = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if lie != "never-syncs":
            folder = os.open(data, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        if had_journal:
            self._after_restart()

    # --- journal ------------------------------------------------------------------------------

    def _replay(self) -> None:
        """Read whole lines; a torn one at the end was never acknowledged and is cut off."""
        if not self._file.exists() or self._lie == "never-writes":
            return
        self._is_replaying = True
        whole = 0
        for line in self._file.read_bytes().split(b"\n")[:-1]:
            try:
                record = json.loads(line)
            except ValueError:
                break
            whole += len(line) + 1
            self._apply(record)
        os.truncate(self._file, whole)
        self._is_replaying = False
        self._out.clear()
        for session in self._sessions.values():
            if session.will is not None and session.will_at is None:
                session.will_at = time.time() + session.will_delay_s

    def _after_restart(self) -> None:
        # A session without a life of its own ended with the process that held its connection.
        for client in [one for one, session in self._sessions.items() if not session.expiry_s]:
            self._do(do="will", client=client, publish=True)
            self._do(do="end", client=client)
        self.flush()
        for session in self._sessions.values():
            if self._lie == "loses-filters":
                session.filters = dict(list(session.filters.items())[::2])
        if self._lie == "loses-retained":
            self._retained.clear()

    def _do(self, **record: object) -> None:
        """Apply a change now; what it sends waits for the journal."""
        self._fresh.append(record)
        self._apply(record)

    def flush(self) -> None:
        """Write and sync the changes of this turn, then let out what they caused."""
        if self._fresh and self._lie != "never-writes":
            lines = "".join(json.dumps(record) + "\n" for record in self._fresh)
            os.write(self._journal, lines.encode())
            if self._lie != "never-syncs":
                os.fdatasync(self._journal)
        self._fresh.clear()
        out, self._out = self._out, []
        for connection, data in out:
            connection.send(data)

    # --- the state machine --------------------------------------------------------------------

    def _apply(self, record: Record) -> None:
        name = cast("str", record.pop("do"))
        getattr(self, f"_apply_{name}")(**record)
        record["do"] = name

    def _apply_open(
        self, client: str, version: int, expiry: int, clean: bool, will: list[object] | None
    ) -> None:
        session = self._sessions.get(client)
        if session is None or clean:
            session = self._sessions[client] = Session(version, expiry)
        session.version, session.expiry_s = version, expiry
        session.will, session.will_at = None, None
        if will is not None:
            topic, payload, qos, delay = cast("tuple[str, str, int, int]", will)
            session.will, session.will_delay_s = (topic, payload.encode(), qos), delay

    def _apply_end(self, client: str) -> None:
        self._sessions.pop(client, None)

    def _apply_will(self, client: str, publish: bool) -> None:
        session = self._sessions.get(client)
        if session is None or session.will is None:
            return
        will, session.will, session.will_at = session.will, None, None
        if publish and self._lie != "swallows-wills":
            self._route(*will)

    def _apply_subscribe(self, client: str, topic_filter: str, qos: int) -> None:
        self._sessions[client].filters[topic_filter] = qos

    def _apply_unsubscribe(self, client: str, topic_filter: str) -> None:
        if not (self._lie == "keeps-filters" and self._is_replaying):
            self._sessions[client].filters.pop(topic_filter, None)

    def _apply_publish(
        self, client: str, topic: str, payload: str, qos: int, retain: bool, packet_id: int
    ) -> None:
        session = self._sessions[client]
        if qos == 2:
            if packet_id in session.taken:
                return
            session.taken.add(packet_id)
        content = payload.encode()
        if retain:
            self._retained[topic] = content
            if not content:
                del self._retained[topic]
        self._published += 1
        tenth = self._published % 10 == 0 and not retain
        if tenth and self._lie == "forgets":
            return
        if tenth and self._lie == "invents":
            self._route(topic, b"a word nobody said", qos)
        if tenth and self._lie == "reorders" and self._held is None:
            self._held = (topic, content, qos)
            return
        self._route(topic, content, qos)
        if tenth and self._lie == "doubles" and qos == 2:
            self._route(topic, content, qos)
        if self._held is not None and self._held[0] == topic and self._held[2] == qos:
            held, self._held = self._held, None
            self._route(*held)

    def _apply_release(self, client: str, packet_id: int) -> None:
        self._sessions[client].taken.discard(packet_id)

    def _apply_answered(self, client: str, packet_id: int, is_received: bool) -> None:
        session = self._sessions.get(client)
        if session is None:
            return
        if is_received:
            session.released.add(packet_id)
        else:
            session.released.discard(packet_id)
            session.waiting.pop(packet_id, None)

    def _route(self, topic: str, payload: bytes, qos: int) -> None:
        for client, session in self._sessions.items():
            granted = [
                granted
                for topic_filter, granted in session.filters.items()
                if topic == topic_filter
                or (topic_filter.endswith("/#") and topic.startswith(topic_filter[:-1]))
            ]
            if granted:
                self._deliver(client, session, topic, payload, min(qos, max(granted)))

    def _deliver(self, client: str, session: Session, topic: str, payload: bytes, qos: int) -> None:
        while True:
            session.next_id = session.next_id % 65_535 + 1
            if session.next_id not in session.waiting:
                break
        session.waiting[session.next_id] = (topic, payload, qos)
        connection = self._connections.get(client)
        if connection is not None:
            self._out.append((connection, message(session, session.next_id, dup=False)))

    # --- packets ------------------------------------------------------------------------------

    def on_packet(self, connection: Connection, data: bytes) -> None:
        """Turn one packet into records and answers."""
        kind, flags = Kind(data[0] >> 4), data[0] & 0x0F
        cursor = Cursor(data[1:])
        cursor.varint()
        if kind == Kind.CONNECT:
            self._on_connect(connection, cursor)
            return
        client = connection.client
        assert client is not None, "CONNECT comes first"
        if self._connections.get(client) is not connection:
            return
        if kind == Kind.PUBLISH:
            self._on_publish(connection, client, flags, cursor)
        elif kind in (Kind.PUBACK, Kind.PUBCOMP):
            self._do(do="answered", client=client, packet_id=cursor.number(2), is_received=False)
        elif kind == Kind.PUBREC:
            packet_id = cursor.number(2)
            self._do(do="answered", client=client, packet_id=packet_id, is_received=True)
            self._out.append((connection, packets.ack(Kind.PUBREL, packet_id)))
        elif kind == Kind.PUBREL:
            packet_id = cursor.number(2)
            self._do(do="release", client=client, packet_id=packet_id)
            self._out.append((connection, packets.ack(Kind.PUBCOMP, packet_id)))
        elif kind == Kind.SUBSCRIBE:
            self._on_subscribe(connection, client, cursor)
        elif kind == Kind.UNSUBSCRIBE:
            self._on_unsubscribe(connection, client, cursor)
        elif kind == Kind.PINGREQ:
            self._out.append((connection, b"\xd0\x00"))
        elif kind == Kind.DISCONNECT:
            if self._lie == "forgets-goodbyes":
                self._apply_will(client, publish=False)
            else:
                self._do(do="will", client=client, publish=self._lie == "serves-wills-always")
            self._close(connection, client)

    def _on_connect(self, connection: Connection, cursor: Cursor) -> None:
        cursor.text()
        version, flags = cursor.number(1), cursor.number(1)
        cursor.number(2)
        connection.version = Version(version)
        expiry = 0 if version == Version.V5 or flags & 2 else _FOR_EVER
        if version == Version.V5:
            expiry = int(cast("int", packets.value(cursor.properties(), Key.SESSION_EXPIRY) or 0))
        client = connection.client = cursor.text()
        will: list[object] | None = None
        if flags & 4:
            wished = cursor.properties() if version == Version.V5 else ()
            delay = packets.value(wished, Key.WILL_DELAY) or 0
            topic = cursor.text()
            payload = cursor.take(cursor.number(2)).decode()
            will = [topic, payload, flags >> 3 & 3, delay]
        older = self._connections.pop(client, None)
        if older is not None:
            self._lose(client, is_takeover=True)
            assert older.transport is not None
            older.transport.abort()
        clean = bool(flags & 2)
        present = client in self._sessions and not clean
        self._do(do="open", client=client, version=version, expiry=expiry, clean=clean, will=will)
        said = present and self._lie != "denies-sessions"
        said = said or (self._lie == "claims-sessions" and not clean)
        block = b"\0" if version == Version.V5 else b""
        answer = bytes([0x20, 2 + len(block), int(said), 0]) + block
        self._connections[client] = connection
        self._out.append((connection, answer))
        session = self._sessions[client]
        for packet_id in session.waiting:
            if packet_id in session.released:
                self._out.append((connection, packets.ack(Kind.PUBREL, packet_id)))
            else:
                self._out.append((connection, message(session, packet_id, dup=True)))

    def _on_publish(self, connection: Connection, client: str, flags: int, cursor: Cursor) -> None:
        topic, qos = cursor.text(), flags >> 1 & 3
        packet_id = cursor.number(2)
        if connection.version == Version.V5:
            cursor.properties()
        self._do(
            do="publish",
            client=client,
            topic=topic,
            payload=cursor.rest().decode(),
            qos=qos,
            retain=bool(flags & 1),
            packet_id=packet_id,
        )
        kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
        self._out.append((connection, packets.ack(kind, packet_id)))

    def _on_subscribe(self, connection: Connection, client: str, cursor: Cursor) -> None:
        packet_id = cursor.number(2)
        if connection.version == Version.V5:
            cursor.properties()
        topic_filter, qos = cursor.text(), cursor.number(1) & 3
        self._do(do="subscribe", client=client, topic_filter=topic_filter, qos=qos)
        block = b"\0" if connection.version == Version.V5 else b""
        body = packets.two_bytes(packet_id) + block + bytes([qos])
        self._out.append((connection, bytes([0x90, len(body)]) + body))
        for topic, payload in self._retained.items():
            if topic_filter.endswith("/#") and topic.startswith(topic_filter[:-1]):
                self._deliver(client, self._sessions[client], topic, payload, qos)

    def _on_unsubscribe(self, connection: Connection, client: str, cursor: Cursor) -> None:
        packet_id = cursor.number(2)
        if connection.version == Version.V5:
            cursor.properties()
        self._do(do="unsubscribe", client=client, topic_filter=cursor.text())
        block = b"\0\0" if connection.version == Version.V5 else b""
        body = packets.two_bytes(packet_id) + block
        self._out.append((connection, bytes([0xB0, len(body)]) + body))

    # --- ends ---------------------------------------------------------------------------------

    def _close(self, connection: Connection, client: str) -> None:
        self._connections.pop(client, None)
        self._lose(client, is_takeover=False)
        self.flush()
        assert connection.transport is not None
        connection.transport.close()

    def on_lost(self, connection: Connection) -> None:
        """A connection ended without a goodbye."""
        client = connection.client
        if client is not None and self._connections.get(client) is connection:
            del self._connections[client]
            self._lose(client, is_takeover=False)

    def _lose(self, client: str, *, is_takeover: bool) -> None:
        session = self._sessions.get(client)
        if session is None:
            return
        if session.will is not None:
            if session.will_delay_s and session.expiry_s:
                session.will_at = time.time() + session.will_delay_s
            else:
                self._do(do="will", client=client, publish=True)
        if not session.expiry_s and not is_takeover:
            self._do(do="end", client=client)

    async def serve(self, port: int) -> None:
        """Accept connections, and look after wills whose time has come."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self), "127.0.0.1", port)
        async with server:
            while True:
                await asyncio.sleep(0.05)
                now = time.time()
                for client, session in list(self._sessions.items()):
                    is_due = session.will_at is not None and session.will_at <= now
                    if is_due and client not in self._connections:
                        self._do(do="will", client=client, publish=True)
                self.flush()


def message(session: Session, packet_id: int, *, dup: bool) -> bytes:
    """The PUBLISH of something that waits."""
    topic, payload, qos = session.waiting[packet_id]
    return packets.publish(
        topic,
        payload,
        version=Version(session.version),
        qos=qos,
        packet_id=packet_id,
        dup=dup,
    )


def main() -> None:
    """Serve on the port with the data directory named, telling the lie named."""
    port, data, *lie = sys.argv[1:]
    chosen = lie[0] if lie else "none"
    assert chosen in ("none", *LIES), f"no such lie: {chosen}"
    asyncio.run(JournalBroker(Path(data), chosen).serve(int(port)))


if __name__ == "__main__":
    main()
