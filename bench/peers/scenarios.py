"""The rows of the comparison, each with what we mean to reach.

Names are what `just bench peers NAME…` takes. All speak MQTT 3.1.1 unless the name says otherwise,
since every peer does.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from bench.measure import Kind, Load


class Measure(StrEnum):
    """What a target is about; `x` is a ratio to Mosquitto, above 1 where we are better."""

    CPU = "CPU per unit, x"
    LATENCY = "p50, x"
    BYTES = "bytes"
    SECONDS = "seconds"
    OLDER_VERSION = "CPU against our 3.1.1, x"


@dataclass(frozen=True, slots=True)
class Target:
    """What must be reached and what we would like to reach."""

    measure: Measure
    must: float
    goal: float

    @property
    def smaller_is_better(self) -> bool:
        """Bytes and seconds are absolute; everything else is a ratio."""
        return self.measure in (Measure.BYTES, Measure.SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row."""

    name: str
    title: str
    load: Load
    target: Target | None = None
    qos: int = 0
    v5: bool = False
    only_ours: bool = False
    in_default: bool = True


_DURATION: Final = ("--duration", "2")
_V311: Final = ("-V", "4")
_PAIRS: Final = ("pairs", "-c", "10", *_DURATION)
_MANY: Final = ("pairs", "-c", "500", "-q", "1", "-F", "1", *_DURATION, *_V311)


def _cpu(must: float, goal: float) -> Target:
    return Target(Measure.CPU, must, goal)


def _sizes() -> list[Scenario]:
    return [
        Scenario(
            name=f"pairs-q{qos}-{label}",
            title=f"pairs QoS {qos}, 10/10, {label}",
            load=Load(arguments=(*_PAIRS, *_V311, "-q", str(qos), "-s", str(size), "-F", window)),
            qos=qos,
            in_default=qos == 0,
        )
        for qos in (0, 1)
        for label, size, window in (("1k", 1024, "100"), ("64k", 65_536, "10"))
    ]


SCENARIOS: Final = (
    Scenario(
        name="fan-in-q0",
        title="fan-in QoS 0, 8 → 1",
        load=Load(arguments=("fan-in", "-c", "8", *_DURATION, *_V311)),
        target=_cpu(18, 40),
    ),
    Scenario(
        name="pairs-q0",
        title="pairs QoS 0, 10/10",
        load=Load(arguments=(*_PAIRS, *_V311)),
        target=_cpu(18, 40),
    ),
    Scenario(
        name="pairs-q0-v5",
        title="pairs QoS 0, 10/10, MQTT 5",
        load=Load(arguments=(*_PAIRS, "-V", "5")),
        target=Target(Measure.OLDER_VERSION, 0.9, 0.97),
        v5=True,
    ),
    Scenario(
        name="fan-out-q0",
        title="fan-out QoS 0, 1 → 50",
        load=Load(arguments=("fan-out", "--subscribers", "50", *_DURATION, *_V311)),
        target=_cpu(50, 100),
    ),
    Scenario(
        name="pairs-q1",
        title="pairs QoS 1, window 100",
        load=Load(arguments=(*_PAIRS, *_V311, "-q", "1", "-F", "100")),
        target=_cpu(22, 40),
        qos=1,
    ),
    Scenario(
        name="pairs-q2",
        title="pairs QoS 2, window 100",
        load=Load(arguments=(*_PAIRS, *_V311, "-q", "2", "-F", "100")),
        target=_cpu(25, 45),
        qos=2,
    ),
    Scenario(
        name="persistent-q1",
        title="pairs QoS 1, persistent subscribers",
        load=Load(arguments=(*_PAIRS, *_V311, "-q", "1", "-F", "100", "-C", "false")),
        qos=1,
    ),
    Scenario(
        name="many-q1",
        title="QoS 1, 500/500, window 1",
        load=Load(arguments=_MANY),
        target=_cpu(1.3, 1.5),
        qos=1,
    ),
    Scenario(
        name="many-q1-single",
        title="QoS 1, 500/500, window 1, one message per write",
        load=Load(arguments=(*_MANY, "--single-writes")),
        target=_cpu(1.3, 1.5),
        qos=1,
        in_default=False,
    ),
    Scenario(
        name="pairs-q1-single",
        title="pairs QoS 1, window 100, one message per write",
        load=Load(arguments=(*_PAIRS, *_V311, "-q", "1", "-F", "100", "--single-writes")),
        target=_cpu(1.3, 1.5),
        qos=1,
    ),
    Scenario(
        name="connects",
        title="connects",
        load=Load(arguments=("conn", "-c", "50", *_DURATION, *_V311)),
        target=_cpu(1, 1.3),
    ),
    Scenario(
        name="idle-memory",
        title="memory per idle connection",
        load=Load(
            kind=Kind.MEMORY,
            arguments=("idle", "--duration", "0.2", *_V311),
            connections=5_000,
        ),
        target=Target(Measure.BYTES, 1536, 700),
    ),
    Scenario(
        name="latency-q1",
        title="latency at 5 000/s, QoS 1",
        load=Load(
            kind=Kind.LATENCY,
            arguments=(
                "latency",
                "-c",
                "10",
                "--rate",
                "5000",
                "-q",
                "1",
                "--duration",
                "3",
                *_V311,
            ),
        ),
        target=Target(Measure.LATENCY, 1 / 1.1, 1 / 0.9),
        qos=1,
    ),
    Scenario(
        name="ready",
        title="start to accepting, empty",
        load=Load(kind=Kind.READY),
        target=Target(Measure.SECONDS, 1, 0.3),
    ),
    *_sizes(),
    Scenario(
        name="pairs-q0-unbounded",
        title="pairs QoS 0, 10/10, no window",
        load=Load(arguments=(*_PAIRS, *_V311, "-F", "0")),
    ),
    Scenario(
        name="pairs-q0-2shards",
        title="pairs QoS 0, 10/10, two shards on both processors",
        load=Load(arguments=(*_PAIRS, *_V311), shards=2),
        only_ours=True,
    ),
    Scenario(
        name="pairs-q1-2shards",
        title="pairs QoS 1, window 100, two shards on both processors",
        load=Load(arguments=(*_PAIRS, *_V311, "-q", "1", "-F", "100"), shards=2),
        qos=1,
        only_ours=True,
        in_default=False,
    ),
    Scenario(
        name="million-subscriptions",
        title="pairs QoS 0, 10/10, beside 1 000 000 subscriptions",
        load=Load(arguments=(*_PAIRS, *_V311), subscriptions=1_000_000),
        in_default=False,
    ),
)
QUICK: Final = ("fan-in-q0", "pairs-q0", "fan-out-q0", "pairs-q1", "pairs-q2", "connects")


def chosen(names: list[str]) -> list[Scenario]:
    """Give scenarios by name; without any the default set, with `all` every one.

    Raises:
        KeyError: There is no scenario of that name.
    """
    if not names:
        return [scenario for scenario in SCENARIOS if scenario.in_default]
    if names == ["all"]:
        return list(SCENARIOS)
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    return [by_name[name] for name in names]


def shortened(scenario: Scenario) -> Scenario:
    """Give the same with half a second of load, for a look."""
    arguments = list(scenario.load.arguments)
    if "--duration" in arguments:
        arguments[arguments.index("--duration") + 1] = "0.5"
    return replace(scenario, load=replace(scenario.load, arguments=tuple(arguments)))
