"""What a person sees when the broker starts: where it listens, what it promises, what to try."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from quantumqtt.config import Durability
from quantumqtt.operations.terminal import Painter

_PROMISES: Final[dict[Durability, str]] = {
    "memory": "memory: acknowledgements are not on disk; a crash loses what was in flight",
    "group": "group: acknowledged after a bounded delay, with many others in one sync",
    "strict": "strict: acknowledged only when it is on disk",
}
_WILDCARD_HOSTS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Door:
    """A listener as the banner shows it."""

    url: str
    host: str
    port: int
    allow_anonymous: bool
    scheme: str = "tcp"

    @property
    def reached_by(self) -> str | None:
        """The options by which Mosquitto's programs reach it; None where those cannot."""
        host = _WILDCARD_HOSTS.get(self.host, self.host)
        match self.scheme:
            case "tcp":
                return f"-h {host} -p {self.port}"
            case "tls":
                return f"-h {host} -p {self.port} --cafile CA.pem"
            case "unix":
                return f"--unix {self.host}"
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Banner:
    """What there is to say at the start."""

    version: str
    doors: Sequence[Door]
    durability: Durability
    admin_url: str | None
    log_url: str | None = None

    def lines(self) -> Iterable[tuple[str, str]]:
        """Give label and text of every line; an empty label continues the one above."""
        for number, door in enumerate(self.doors):
            who = "" if door.allow_anonymous else "  (credentials required)"
            yield ("listening" if number == 0 else ""), f"{door.url}{who}"
        yield "admin", self.admin_url or "off"
        if self.log_url is not None:
            yield "log", self.log_url
        yield "durability", _PROMISES[self.durability]
        for number, (label, command) in enumerate(self._things_to_try()):
            yield ("try" if number == 0 else ""), f"{command}  # {label}"

    def show(self, stream: TextIO) -> None:
        """Write it, coloured only on a terminal."""
        paint = Painter.for_stream(stream).paint
        title = paint("bold", f"QuantuMQTT {self.version}")
        lines = [f"{paint('dim', f'  {label:<11}')}{text}" for label, text in self.lines()]
        print(title, *lines, sep="\n", file=stream, flush=True)

    def _things_to_try(self) -> Iterable[tuple[str, str]]:
        open_doors = [door for door in self.doors if door.allow_anonymous]
        where = next((door.reached_by for door in open_doors if door.reached_by), None)
        if where is not None:
            yield "listen", f"mosquitto_sub {where} -t 'demo/#' -v"
            yield "say something", f"mosquitto_pub {where} -t demo/hello -q 1 -m 'hello'"
        elif not open_doors:
            yield "let clients in without credentials", "quantumqtt serve --allow-anonymous"
        if self.admin_url is not None:
            yield "watch it live", f"xdg-open {self.admin_url}/"
        else:
            yield "watch it live", "pip install 'quantumqtt[server]'"
