"""From a command line to an exit code: reading, running, telling what went wrong."""

import os
import sys
from collections.abc import Callable
from typing import Final

from quantumqtt.cli.mosquitto import talk
from quantumqtt.cli.mosquitto.flags import read
from quantumqtt.cli.mosquitto.help import help_text
from quantumqtt.cli.mosquitto.options import Options
from quantumqtt.cli.mosquitto.usage import UsageError
from quantumqtt.errors import ConnectFailed, ConnectionLost, ProtocolError, QuantuMQTTError

USAGE: Final = 1
PIPE_CLOSED: Final = 141

Run = Callable[[Options], int]


def run_program(command: str, arguments: list[str], run: Run) -> int:
    """Run one of the three programs; returns its exit code."""
    try:
        options = read(command, arguments)
        if options is None:
            print(help_text(command), end="")
            return 0
    except UsageError as error:
        complain(str(error), error.hint)
        return USAGE
    try:
        code = run(options)
        sys.stdout.buffer.flush()
        return code
    except BrokenPipeError:
        # Whoever read our output has gone. What Python would still flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except QuantuMQTTError as error:
        if not options.quiet or isinstance(error, UsageError):
            complain(str(error), error.hint)
        return _code_of(error)


def _code_of(error: QuantuMQTTError) -> int:
    if isinstance(error, UsageError | ConnectFailed):
        return USAGE
    if isinstance(error, ConnectionLost):
        return talk.LOST
    if isinstance(error, ProtocolError):
        return talk.BROKEN
    return USAGE


def complain(what: str, hint: str | None = None) -> None:
    """Say on standard error what is wrong, in colours only where a person looks."""
    red, green, plain = "", "", ""
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        red, green, plain = "\x1b[1;31m", "\x1b[32m", "\x1b[0m"
    print(f"{red}error:{plain} {what}", file=sys.stderr)
    if hint:
        print(f"  {green}remedy:{plain} {hint}", file=sys.stderr)


def complainer(options: Options) -> Callable[[str], None]:
    """What complains during a run, unless it is to be quiet."""
    return (lambda _what: None) if options.quiet else complain


def finish(conversation: talk.Talk, code: int) -> int:
    """Tell how a run ended that ended against its wish; returns the exit code."""
    if conversation.options.quiet:
        return code
    if conversation.timed_out:
        complain(f"nothing more came within {conversation.options.timeout_s} s (-W)")
    elif conversation.refused_with is not None:
        complain(f"connection refused: {conversation.refusal}", _remedy(conversation))
    return code


def _remedy(conversation: talk.Talk) -> str | None:
    code = conversation.refused_with
    if code in (1, 0x84):
        return "choose another version with -V"
    if code in (4, 5, 0x86, 0x87):
        return "check -u and -P, or ask the broker's operator"
    if code in (2, 0x85):
        return "choose another client id with -i"
    return None
