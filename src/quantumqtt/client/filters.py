"""Subscription options as the byte that stands behind a filter."""

from collections.abc import Sequence
from typing import Final, Literal

from quantumqtt.client.options import check_qos
from quantumqtt.errors import LocalProtocolError
from quantumqtt.mqtt import TopicFilter

RetainHandling = Literal["send", "send_if_new", "do_not_send"]
_RETAIN_HANDLING: Final = {"send": 0, "send_if_new": 1, "do_not_send": 2}


def options_byte(
    qos: int,
    *,
    no_local: bool = False,
    retain_as_published: bool = False,
    retain_handling: RetainHandling = "send",
) -> int:
    """Write subscription options.

    Raises:
        LocalProtocolError: The QoS does not exist.
        ValueError: The retain handling does not exist.
    """
    if retain_handling not in _RETAIN_HANDLING:
        raise ValueError(f"retain_handling {retain_handling!r}: one of {list(_RETAIN_HANDLING)}")
    handling = _RETAIN_HANDLING[retain_handling]
    return check_qos(qos) | no_local << 2 | retain_as_published << 3 | handling << 4


def with_options(topic_filters: str | Sequence[str], options: int) -> list[tuple[str, int]]:
    """Check filters and put their options beside them.

    Raises:
        LocalProtocolError: A filter breaks MQTT, or there is none.
    """
    texts = [topic_filters] if isinstance(topic_filters, str) else list(topic_filters)
    if not texts:
        raise LocalProtocolError("no topic filter", "name at least one")
    for text in texts:
        TopicFilter(text)
    return [(text, options) for text in texts]
