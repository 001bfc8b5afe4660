"""`--help` of `pub`, `sub` and `rr`, made from the table of flags."""

from typing import Final

from quantumqtt.cli.mosquitto.flags import FLAGS
from quantumqtt.cli.mosquitto.options import PUB, RR, SUB

_WIDTH: Final = 96
_COLUMN: Final = 34

_USAGE: Final = {
    PUB: "Usage: quantumqtt pub -t TOPIC {-m TEXT | -f FILE | -l | -n | -s} [OPTION …]",
    SUB: "Usage: quantumqtt sub -t FILTER [-t FILTER …] [OPTION …]",
    RR: "Usage: quantumqtt rr -t TOPIC -e TOPIC {-m TEXT | -f FILE | -n | -s} [OPTION …]",
}
PURPOSE: Final = {
    PUB: "Publish to any MQTT broker. The options are those of mosquitto_pub 2.0.",
    SUB: "Print what any MQTT broker has for us. The options are those of mosquitto_sub 2.0.",
    RR: "Publish a request and print the response. The options are those of mosquitto_rr 2.0.",
}
_FORMATS: Final = r"""
Formats of -F:
  %t topic    %p payload   %x %X payload in hexadecimal   %l its length
  %q QoS      %r retain    %m packet id    %I ISO 8601 time    %U Unix time
  %j %J all of it as JSON, the payload as text or as JSON of its own
  %C content type   %D correlation data   %E message expiry   %F payload format
  %P user properties   %R response topic   %S subscription id   %A topic alias
  %-12.8t left-aligned, at least 12 and at most 8 bytes wide;   %06l with zeros
  @Y @m @d @H … as strftime, @N nanoseconds, %% @@ \\ themselves,
  \n \t \r \0 \a \e \v control characters
"""
_CONFIGURED: Final = """
Options may also stand in $XDG_CONFIG_HOME/mosquitto_{command} or ~/.config/mosquitto_{command},
one per line; the command line comes after them.
"""
_CODES: Final = """
Exit codes: 0 done; 1 wrong usage, or no connection; 2 the broker breaks MQTT; 7 the connection was
lost{timeout}; when the broker refuses the connection, the code of its answer: 1 to 5 before
MQTT 5, 128 and more in MQTT 5; 141 nobody reads our output any more.
"""


def help_text(command: str) -> str:
    """The whole help of one program."""
    lines = [_USAGE[command], "", PURPOSE[command]]
    groups: dict[str, list[tuple[str, str]]] = {}
    for flag in FLAGS:
        if command in flag.commands:
            names = ", ".join(flag.names)
            left = names if flag.value is None else f"{names} {flag.value}"
            groups.setdefault(flag.group, []).append((left, flag.help))
    for group, rows in groups.items():
        lines += ["", f"{group}:"]
        for left, text in rows:
            lines += _row(left, text)
    parts = ["\n".join(lines) + "\n"]
    if command != PUB:
        parts.append(_FORMATS)
    parts.append(_CONFIGURED.format(command=command))
    timeout = "" if command == PUB else "; 27 the time of -W is over"
    parts.append(_CODES.format(timeout=timeout))
    return "".join(parts)


def _row(left: str, text: str) -> list[str]:
    """One flag: its names in a column, its meaning beside them, wrapped."""
    indent = " " * _COLUMN
    lines = [f"  {left}".ljust(_COLUMN)]
    if len(lines[0]) > _COLUMN:
        lines.append(indent)
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append(indent)
        separator = "" if len(lines[-1]) <= _COLUMN else " "
        lines[-1] += separator + word
    return [line.rstrip() for line in lines]
