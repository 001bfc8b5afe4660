"""`quantumqtt sub`: print what comes, with the flags and formats of mosquitto_sub."""

import os
import sys

from quantumqtt._core import Message
from quantumqtt.cli.mosquitto.options import SUB, Options
from quantumqtt.cli.mosquitto.output import Printer
from quantumqtt.cli.mosquitto.program import complain, complainer, finish, run_program
from quantumqtt.cli.mosquitto.talk import Part, Talk


def run(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    return run_program(SUB, arguments, _subscribe)


def _subscribe(options: Options) -> int:
    subscriber = Subscriber(options)
    subscriber.talk.leave_on_signals()
    return finish(subscriber.talk, subscriber.talk.run())


def paints() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Match a filter against a topic, `[MQTT-4.7]`."""
    if topic[:1] == "$" and topic_filter[:1] in ("+", "#"):
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


class Subscriber(Part):
    """Subscribes, prints, and knows when it has had enough."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._printer = Printer(options, complainer(options), paints=paints())
        self._print = sys.stdout.buffer.write
        self._count = 0
        self._is_done = False
        self._removing: set[int] = set()
        self._draws = options.print_percent < 100.0
        self.talk = Talk(options, self, reconnects=True)

    def on_connected(self) -> None:
        """Subscribe, and unsubscribe."""
        self.talk.subscribe(self._options.topics)
        for text in self._options.unsubscribes:
            self.talk.unsubscribe(text)

    def on_subscribed(self, packet_id: int, codes: bytes) -> None:
        """Leave when nothing was granted, or nothing else was wanted."""
        if not self._options.quiet:
            granted = ", ".join(str(code) for code in codes)
            self.talk.say(f"Subscribed (mid: {packet_id}): {granted}")
        if all(code >= 0x80 for code in codes):
            if not self._options.quiet:
                complain("the broker refuses every subscription", "may this client read there?")
            self.talk.leave()
        elif self._options.exit_after_subscribing:
            self.talk.leave()

    def on_message(self, message: Message) -> None:
        """Print what is wanted."""
        options = self._options
        if self._is_done:
            return
        if options.retained_only and not message.retain:
            self._end()
            return
        if message.retain and options.skip_retained:
            return
        if any(topic_matches(text, message.topic) for text in options.filters_out):
            return
        if options.remove_retained and message.retain:
            self._removing.add(self.talk.publish(message.topic, b"", 1, retain=True))
        if not self._draws or self._is_drawn():
            self._print(self._printer.text(message))
        if options.count_max:
            self._count += 1
            if self._count == options.count_max:
                self._end()

    def _is_drawn(self) -> bool:
        import random

        return random.random() * 100.0 < self._options.print_percent

    def on_published(self, packet_id: int, reason_code: int, reason: str | None) -> None:
        """Note that a removal has arrived."""
        self._removing.discard(packet_id)
        if self._is_done and not self._removing:
            self.talk.leave()

    def _end(self) -> None:
        """Print no more; leave once every removal has arrived."""
        self._is_done = True
        if not self._removing:
            self.talk.leave()
