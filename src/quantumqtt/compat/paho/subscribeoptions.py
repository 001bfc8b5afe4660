"""Subscription options of MQTT 5 with paho's names."""

from quantumqtt.client.filters import RetainHandling, options_byte

_HANDLING: tuple[RetainHandling, ...] = ("send", "send_if_new", "do_not_send")


class SubscribeOptions:
    """How one filter is subscribed."""

    RETAIN_SEND_ON_SUBSCRIBE, RETAIN_SEND_IF_NEW_SUB, RETAIN_DO_NOT_SEND = range(3)

    def __init__(
        self,
        qos: int = 0,
        noLocal: bool = False,  # noqa: N803 - paho's name
        retainAsPublished: bool = False,  # noqa: N803 - paho's name
        retainHandling: int = RETAIN_SEND_ON_SUBSCRIBE,  # noqa: N803 - paho's name
    ) -> None:
        """Choose the options."""
        self.QoS = qos
        self.noLocal = noLocal
        self.retainAsPublished = retainAsPublished
        self.retainHandling = retainHandling

    def as_byte(self) -> int:
        """The options as SUBSCRIBE carries them."""
        return options_byte(
            self.QoS,
            no_local=self.noLocal,
            retain_as_published=self.retainAsPublished,
            retain_handling=_HANDLING[self.retainHandling],
        )

    def json(self) -> dict[str, object]:
        """The options by name."""
        names = ("QoS", "noLocal", "retainAsPublished", "retainHandling")
        return {name: getattr(self, name) for name in names}
