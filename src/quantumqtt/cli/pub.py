"""`quantumqtt pub`: publish, with the flags of mosquitto_pub."""

import os
import sys
import time
from typing import Final

from quantumqtt.cli.mosquitto.options import PUB, V5, Options
from quantumqtt.cli.mosquitto.program import complainer, finish, run_program
from quantumqtt.cli.mosquitto.properties import TOPIC_ALIAS
from quantumqtt.cli.mosquitto.talk import Part, Talk
from quantumqtt.cli.mosquitto.usage import refuse

_FIRST_ERROR: Final = 0x80
_READ_BYTES: Final = 64 * 1024
_PAYLOAD_BYTES_MAX: Final = 268_435_455


def run(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    return run_program(PUB, arguments, _publish)


def _publish(options: Options) -> int:
    publisher = Publisher(options)
    code = finish(publisher.talk, publisher.talk.run())
    if options.json:
        publisher.report(code)
    return code


def read_message(options: Options) -> bytes:
    """Read the one message that is to be sent.

    Raises:
        UsageError: It cannot be read, is empty where that makes no sense, or is too large.
    """
    payload = options.message or b""
    if options.source == "file" and options.file is not None:
        try:
            with open(options.file, "rb") as file:
                payload = file.read(_PAYLOAD_BYTES_MAX + 1)
        except OSError as error:
            refuse(f"-f {options.file}: {error.strerror or error}")
    elif options.source == "stdin":
        check_input()
        payload = sys.stdin.buffer.read(_PAYLOAD_BYTES_MAX + 1)
        if not payload:
            refuse("-s: standard input is empty", "-n sends an empty message")
    if len(payload) > _PAYLOAD_BYTES_MAX:
        refuse(f"a message is at most {_PAYLOAD_BYTES_MAX} bytes")
    return payload


def check_input() -> None:
    """Refuse to read what is not there.

    Raises:
        UsageError: Standard input is closed.
    """
    if sys.stdin is None:
        refuse("standard input is closed")


class Lines:
    """Lines of standard input, read as they come and only while they can be sent."""

    def __init__(self) -> None:
        check_input()
        self._descriptor = sys.stdin.fileno()
        self._rest = b""
        self.has_ended = False

    @property
    def descriptor(self) -> int:
        """What to wait on."""
        return self._descriptor

    def read(self) -> list[bytes]:
        """Take the lines that are whole; the last needs no end. Call when input is ready."""
        data = os.read(self._descriptor, _READ_BYTES)
        if not data:
            self.has_ended = True
            rest, self._rest = self._rest, b""
            return [rest] if rest else []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class Publisher(Part):
    """Publishes one message, so often as asked, or each line of standard input."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._complain = complainer(options)
        self._lines = Lines() if options.source == "lines" else None
        self._payload = read_message(options)
        self._ready: list[bytes] = []
        self._sent = self._done = 0
        self._next_at = 0.0
        self._reason_codes: list[int] = []
        self._properties = options.properties.block("publish") if options.version == V5 else b""
        self._has_alias = options.properties.has("publish", TOPIC_ALIAS)
        self.talk = Talk(options, self, reconnects=self._lines is not None)

    def on_connected(self) -> None:
        """Send the one message, unless there are lines to read."""
        if self._lines is None and self._sent == 0:
            self._send(self._payload)

    def on_idle(self) -> float | None:
        """Send what can be sent now; leave when all is done."""
        if self._lines is not None:
            self._pump(self._lines)
            return None
        if self._done < self._sent:
            return None
        if self._sent >= self._options.repeat_count:
            self.talk.leave()
        elif time.monotonic() < self._next_at:
            return self._next_at
        else:
            self._send(self._payload)
        return None

    def _pump(self, lines: Lines) -> None:
        """Send lines while the window has room; standard input is read only then."""
        self.talk.watch(None)
        while self.talk.has_room:
            if self._ready:
                self._send(self._ready.pop())
            elif lines.has_ended:
                break
            elif _is_readable(lines.descriptor):
                self._ready = lines.read()[::-1]
            else:
                self.talk.watch(lines.descriptor)
                return
        if lines.has_ended and not self._ready and not self.talk.has_unpublished:
            self.talk.leave()

    def _send(self, payload: bytes) -> None:
        options = self._options
        topic = "" if self._has_alias and self._sent else options.topic
        assert topic is not None, "checked before"
        self._sent += 1
        self.talk.publish(
            topic, payload, options.qos, retain=options.retain, properties=self._properties
        )

    def on_published(self, packet_id: int, reason_code: int, reason: str | None) -> None:
        """Count, and tell of what the broker refused."""
        self._done += 1
        self._next_at = time.monotonic() + self._options.repeat_delay_s
        if reason_code >= _FIRST_ERROR:
            self._reason_codes.append(reason_code)
            why = f" ({reason})" if reason else ""
            self._complain(f"publish {packet_id} failed with {reason_code:#04x}{why}")

    def report(self, code: int) -> None:
        """Say as JSON what became of it."""
        from quantumqtt.cli.mosquitto.json_text import json_text

        text = json_text(
            [
                ("ok", code == 0 and not self._reason_codes),
                ("topic", self._options.topic),
                ("qos", self._options.qos),
                ("published", self._sent),
                ("acknowledged", self._done - len(self._reason_codes)),
                ("reason_codes", [*self._reason_codes]),
            ]
        )
        sys.stdout.buffer.write(text + b"\n")


def _is_readable(descriptor: int) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
