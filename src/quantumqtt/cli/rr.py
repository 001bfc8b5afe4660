"""`quantumqtt rr`: publish a request, print the response, with the flags of mosquitto_rr."""

import sys

from quantumqtt._core import Message
from quantumqtt.cli.mosquitto.options import RR, V5, Options
from quantumqtt.cli.mosquitto.output import Printer
from quantumqtt.cli.mosquitto.program import complain, complainer, finish, run_program
from quantumqtt.cli.mosquitto.talk import Part, Talk
from quantumqtt.cli.pub import read_message
from quantumqtt.cli.sub import paints


def run(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    return run_program(RR, arguments, _request)


def _request(options: Options) -> int:
    requester = Requester(options)
    return finish(requester.talk, requester.talk.run())


class Requester(Part):
    """Listens where the response will come, asks, prints the first answer, and leaves."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._payload = read_message(options)
        self._printer = Printer(options, complainer(options), paints=paints())
        self._properties = options.properties.block("publish") if options.version == V5 else b""
        self.talk = Talk(options, self, reconnects=False)

    def on_connected(self) -> None:
        """Listen before asking."""
        assert self._options.response_topic is not None, "checked before"
        self.talk.subscribe([self._options.response_topic])

    def on_subscribed(self, packet_id: int, codes: bytes) -> None:
        """Ask, now that the answer will be heard."""
        options = self._options
        if codes[0] >= 0x80:
            if not options.quiet:
                complain(f"the broker refuses to let us listen on {options.response_topic}")
            self.talk.leave()
            return
        assert options.topic is not None, "checked before"
        self.talk.publish(
            options.topic,
            self._payload,
            options.qos,
            retain=options.retain,
            properties=self._properties,
        )

    def on_message(self, message: Message) -> None:
        """Print the answer."""
        if message.retain and self._options.skip_retained:
            return
        sys.stdout.buffer.write(self._printer.text(message))
        self.talk.leave()
