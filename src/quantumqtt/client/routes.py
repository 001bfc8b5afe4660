"""Which subscribers in this process get a message: filters against topics, remembered per topic."""

from typing import Final, Generic, TypeVar

from quantumqtt.mqtt import TopicFilter

_REMEMBERED_MAX: Final = 16_384

Sink = TypeVar("Sink")


def matches(pattern: str, topic: str) -> bool:
    """Match a filter without share prefix against a topic name, `[MQTT-4.7]`."""
    if topic.startswith("$") and pattern[:1] in ("+", "#"):
        return False
    wanted, levels = pattern.split("/"), topic.split("/")
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


class Routes(Generic[Sink]):
    """Filters and who listens behind them. A topic is matched once and then remembered."""

    def __init__(self) -> None:
        self._sinks: dict[str, list[Sink]] = {}
        self._remembered: dict[str, tuple[Sink, ...]] = {}

    def add(self, topic_filter: str, sink: Sink) -> None:
        """Let `sink` listen behind a filter."""
        self._sinks.setdefault(topic_filter, []).append(sink)
        self._remembered.clear()

    def remove(self, topic_filter: str, sink: Sink) -> bool:
        """Take a listener away; True when the filter has none left."""
        sinks = self._sinks.get(topic_filter)
        if sinks is None or sink not in sinks:
            return False
        sinks.remove(sink)
        self._remembered.clear()
        if sinks:
            return False
        del self._sinks[topic_filter]
        return True

    def behind(self, topic_filter: str) -> tuple[Sink, ...]:
        """Who listens behind exactly this filter."""
        return tuple(self._sinks.get(topic_filter, ()))

    def all(self) -> tuple[Sink, ...]:
        """Everybody who listens."""
        return tuple(sink for sinks in self._sinks.values() for sink in sinks)

    def for_topic(self, topic: str) -> tuple[Sink, ...]:
        """Who listens to a topic."""
        sinks = self._remembered.get(topic)
        if sinks is None:
            sinks = self._match(topic)
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[topic] = sinks
        return sinks

    def _match(self, topic: str) -> tuple[Sink, ...]:
        found: list[Sink] = []
        for text, sinks in self._sinks.items():
            if matches(TopicFilter(text).pattern, topic):
                found += [sink for sink in sinks if sink not in found]
        return tuple(found)
