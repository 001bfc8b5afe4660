"""What programs that speak MQTT import in their tests: brokers to hurt, messages to wait for.

With pytest nothing needs importing: the fixtures `broker`, `broker_tls`, `broker_certificates`,
`kill_and_restart` and `record` come with the package. Without pytest the classes here do the same.
Hypothesis strategies are in `quantumqtt.testing.strategies`, which alone needs Hypothesis.

The names are loaded when they are first used, because pytest looks at this package in every run of
every project that has it installed.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quantumqtt.testing.broker_process import BrokerProcess
    from quantumqtt.testing.certificates import Certificates
    from quantumqtt.testing.recorder import Recorder

__all__ = ["BrokerProcess", "Certificates", "Recorder"]

_FILE_OF: Final = {
    "BrokerProcess": "broker_process",
    "Certificates": "certificates",
    "Recorder": "recorder",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    file = _FILE_OF.get(name)
    if file is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{file}"), name)
    globals()[name] = value
    return value
