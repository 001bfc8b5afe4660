"""Topic names and topic filters that were checked once and stay valid.

The rules live in the native module, where the broker applies them; Python asks the same code, so
that client and broker cannot disagree.
"""

from dataclasses import dataclass
from typing import Final

from quantumqtt import _core

_SHARE_PREFIX: Final = "$share/"


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic as a PUBLISH may carry it.

    Raises:
        LocalProtocolError: The name breaks MQTT.
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse a name that MQTT forbids."""
        _core.validate_topic(self.text)

    def __str__(self) -> str:
        """The name itself."""
        return self.text


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """A filter as a SUBSCRIBE may carry it, `$share/{group}/` included.

    Raises:
        LocalProtocolError: The filter breaks MQTT.
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse a filter that MQTT forbids."""
        _core.validate_filter(self.text)

    def __str__(self) -> str:
        """The filter itself."""
        return self.text

    @property
    def share_group(self) -> str | None:
        """The group of a shared subscription."""
        if not self.text.startswith(_SHARE_PREFIX):
            return None
        return self.text.split("/", 2)[1]

    @property
    def pattern(self) -> str:
        """What is matched against topics: the filter without its share prefix."""
        return self.text if self.share_group is None else self.text.split("/", 2)[2]
