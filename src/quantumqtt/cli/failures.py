"""How the command line says no: what is wrong, what to do about it, which exit code."""

import sys
from enum import IntEnum
from typing import Final, TextIO

from quantumqtt.config import split_error
from quantumqtt.errors import ConfigError, QuantuMQTTError, TransportError
from quantumqtt.operations import Painter


class ExitCode(IntEnum):
    """Every exit code of the program."""

    OK = 0
    FAILED = 1
    USAGE = 2
    VIOLATED = 3
    INTERRUPTED = 130


EXIT_CODE_MEANINGS: Final = {
    ExitCode.OK: "done; for `serve`: drained after SIGTERM or SIGINT",
    ExitCode.FAILED: "failed while running; the last lines on standard error say why",
    ExitCode.USAGE: "wrong usage or configuration, or the start was not possible with it (port in "
    "use, directory not writable, too few descriptors); nothing was started",
    ExitCode.VIOLATED: "for `bench` and `test`: the broker broke a promise (lost, repeated, "
    "reordered, altered or refused something, or violated a clause), and the summary names it",
    ExitCode.INTERRUPTED: "interrupted: for `serve`, a second SIGTERM or SIGINT cut the draining "
    "short; for `bench`, Ctrl-C ended the run early and nothing was judged",
}


def exit_code_of(error: QuantuMQTTError) -> ExitCode:
    """Tell what the operator can repair from what broke by itself."""
    return ExitCode.USAGE if isinstance(error, ConfigError | TransportError) else ExitCode.FAILED


def report(error: QuantuMQTTError, *, stream: TextIO | None = None) -> None:
    """Write an error with its remedy to standard error, coloured only on a terminal."""
    stream = stream or sys.stderr
    paint = Painter.for_stream(stream).paint
    pairs = (
        list(split_error(error)) if isinstance(error, ConfigError) else [(str(error), error.hint)]
    )
    for line, remedy in pairs:
        print(f"{paint('bold red', 'error:')} {line}", file=stream)
        if remedy:
            print(f"  {paint('green', 'remedy:')} {remedy}", file=stream)
