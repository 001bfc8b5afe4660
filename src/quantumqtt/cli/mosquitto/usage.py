"""How a command line is refused: before anything is sent, with a remedy."""

from typing import NoReturn

from quantumqtt.errors import QuantuMQTTError


class UsageError(QuantuMQTTError):
    """The command line cannot be what was meant; nothing was sent."""


def refuse(what: str, hint: str | None = None) -> NoReturn:
    """Refuse a command line.

    Raises:
        UsageError: Always.
    """
    raise UsageError(what, hint)


def number(flag: str, text: str, low: int, high: int) -> int:
    """Read a whole number between two bounds.

    Raises:
        UsageError: It is none.
    """
    try:
        value = int(text, 10)
    except ValueError:
        refuse(f"{flag} {text!r}: not a whole number")
    if not low <= value <= high:
        refuse(f"{flag} {value}: out of range", f"from {low} to {high}")
    return value


def decimal(flag: str, text: str, low: float, high: float) -> float:
    """Read a number between two bounds.

    Raises:
        UsageError: It is none.
    """
    try:
        value = float(text)
    except ValueError:
        refuse(f"{flag} {text!r}: not a number")
    if not low <= value <= high:
        refuse(f"{flag} {text}: out of range", f"from {low:g} to {high:g}")
    return value
