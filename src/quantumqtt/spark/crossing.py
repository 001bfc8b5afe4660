"""Typed errors on their way through the JVM.

Spark turns an exception of a Python worker into a text inside a Java exception. So what leaves our
code on the Spark side carries its fields in its words (`quantumqtt.logwire.refusals`), and whoever
started the query finds them again with `typed_error`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from quantumqtt.errors import QuantuMQTTError
from quantumqtt.logwire import read_refusal, write_refusal


@contextmanager
def spelled_errors() -> Iterator[None]:
    """Let typed errors leave with their fields in their words."""
    try:
        yield
    except QuantuMQTTError as error:
        if read_refusal(str(error)) is None:
            error.args = (write_refusal(error),)
        raise


def typed_error(failure: BaseException) -> QuantuMQTTError | None:
    """Find our error in what Spark raised; None when the failure is Spark's own."""
    if isinstance(failure, QuantuMQTTError):
        return read_refusal(str(failure)) or failure
    return read_refusal(str(failure))
