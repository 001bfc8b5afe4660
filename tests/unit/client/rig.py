"""A session and a pretend broker, joined by a wire that a test holds in its hands."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

from quantumqtt._core import Message
from quantumqtt.client.journal import Contents
from quantumqtt.client.options import SessionOptions
from quantumqtt.client.protocol import Event, Session, State
from quantumqtt.client.receipts import Operation, Receipt
from quantumqtt.errors import ConnectionLost
from tests.harness.pretend_broker import PretendBroker

CUT = ConnectionLost("cut by the test")


@dataclass(eq=False)
class Collector:
    """A sink that keeps what it is given."""

    messages: list[Message] = field(default_factory=list)


class Rig:
    """Both ends of one pretend wire; nothing moves unless a test says so."""

    def __init__(
        self, broker: PretendBroker | None = None, options: SessionOptions | None = None
    ) -> None:
        self.broker = broker or PretendBroker()
        self.session: Session[Collector] = Session(options or SessionOptions(client_id="rig"))
        self.sink = Collector()
        self.events: list[Event] = []
        self.now = 0.0
        self.to_broker = b""
        self.to_client = b""
        # What a store would hold, when the options say that there is one.
        self.stored = Contents(self.session.client_id)
        if self.session._options.is_stored:
            self.recovered = self.session.restore(self.stored, Receipt)

    def crash(self) -> list[Receipt]:
        """The process dies and another one begins with what is stored; returns its receipts."""
        self.to_broker = self.to_client = b""
        self.broker.cut()
        self.session = Session(self.session._options)
        self.sink = Collector()
        return self.session.restore(copy.deepcopy(self.stored), Receipt)

    def connect(self) -> None:
        """Open a connection and let everything settle."""
        self.begin()
        self.settle()

    def begin(self) -> None:
        """Open a connection; CONNECT is on the wire."""
        self.session.begin(self.now)
        self.collect()

    def publish(self, payload: bytes, qos: int, topic: str = "up") -> Receipt:
        """Publish through the session; the bytes are on the wire, or wait."""
        receipt = Receipt(topic, payload, qos << 1, b"")
        self.session.publish(receipt)
        self.collect()
        return receipt

    def subscribe(self, *filters: str, qos: int = 2) -> Operation:
        """Subscribe the rig's sink."""
        operation = self.session.subscribe([(text, qos) for text in filters])
        for text in filters:
            self.session.routes.add(text, self.sink)
        self.collect()
        return operation

    def broker_sends(self, data: bytes) -> None:
        """Put bytes of the broker on the wire."""
        self.to_client += data

    def carry_up(self, count: int | None = None) -> None:
        """Carry bytes to the broker."""
        taken, self.to_broker = _split(self.to_broker, count)
        self.to_client += self.broker.take(taken)

    def carry_down(self, count: int | None = None) -> None:
        """Carry bytes to the client."""
        taken, self.to_client = _split(self.to_client, count)
        if taken:
            self.session.receive(taken)
        self.collect()

    def settle(self) -> None:
        """Carry bytes until the wire is silent."""
        self.collect()
        while self.to_broker or self.to_client:
            self.carry_up()
            self.carry_down()

    def cut(self) -> None:
        """Lose the connection with all that is on the wire."""
        self.to_broker = self.to_client = b""
        self.session.lost(CUT)
        self.broker.cut()
        self.collect()

    def collect(self) -> None:
        """Do what a driver does: fetch everything and act on it."""
        session = self.session
        output = session.take_output(self.now)
        if session._options.is_stored:
            records, accepted = session.take_records()
            self.stored.apply(b"".join(records))
            for receipt in accepted:
                receipt.acceptance._settle(None)
        self.to_broker += output
        self.events += session.take_events()
        for sinks, messages in session.take_deliveries():
            for sink in sinks:
                sink.messages += messages
        for promise in session.take_settled():
            promise._call_waiters()
        if session.state is State.IDLE:
            self.to_broker = b""

    def accept_all(self, until: Callable[[Message], bool] = lambda message: True) -> None:
        """Accept what the sink holds, as an application does when it is done."""
        for message in self.sink.messages:
            if message.packet_id is not None and until(message):
                self.session.accept(message.packet_id, message.session)
        self.collect()


def _split(data: bytes, count: int | None) -> tuple[bytes, bytes]:
    return (data, b"") if count is None else (data[:count], data[count:])
