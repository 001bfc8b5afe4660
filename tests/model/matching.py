"""Which filter matches which topic, straight from section 4.7 of the standard."""

from functools import lru_cache


@lru_cache(maxsize=100_000)
def matches(pattern: str, topic: str) -> bool:
    """Compare level by level; `pattern` is a filter without its share prefix."""
    wanted, found = pattern.split("/"), topic.split("/")
    # Topics of the broker's own, such as $SYS, are met by name only [MQTT-4.7.2-1].
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for place, level in enumerate(wanted):
        # `#` stands for any number of levels, none included: `a/#` matches `a`.
        if level == "#":
            return True
        if place >= len(found) or level not in ("+", found[place]):
            return False
    return len(wanted) == len(found)


@lru_cache(maxsize=100_000)
def order(pattern: str, topic: str) -> tuple[object, ...]:
    """Sort filters that match one topic; only the order of copies for one client depends on it.

    MQTT leaves it open. This broker takes filters whose `#` stands for something first, shortest
    first, then those as long as the topic; in either, a literal level comes before `+`.
    """
    levels = pattern.split("/")
    has_hash = levels[-1] == "#"
    named = levels[:-1] if has_hash else levels
    pluses = tuple(level == "+" for level in named)
    if has_hash and len(named) < len(topic.split("/")):
        return (0, len(named), pluses)
    return (1, 0, pluses, has_hash)


@lru_cache(maxsize=10_000)
def is_valid(text: str) -> bool:
    """Whether a SUBSCRIBE may carry this filter [MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.8.2-1]."""
    group, pattern = split_share(text)
    if group is not None and (group == "" or "+" in group or "#" in group):
        return False
    levels = pattern.split("/")
    is_plain = all(level in ("+", "#") or not {"+", "#"} & set(level) for level in levels)
    return pattern != "" and "\0" not in text and is_plain and "#" not in levels[:-1]


def split_share(text: str) -> tuple[str | None, str]:
    """Take `$share/{group}/{filter}` apart; the group is None for a plain filter."""
    if not text.startswith("$share/"):
        return None, text
    group, _, pattern = text.removeprefix("$share/").partition("/")
    return group, pattern
