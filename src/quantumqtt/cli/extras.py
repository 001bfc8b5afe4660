"""Commands that need an extra say so, instead of a traceback about a module."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from quantumqtt.errors import ConfigError

_BRINGS: Final = {
    "deltalake": "spark",
    "numpy": "spark",
    "pandas": "spark",
    "pyarrow": "server",
    "pyspark": "spark",
}


@contextmanager
def extras_explained() -> Iterator[None]:
    """Turn a missing module of an extra into the sentence that names the extra.

    Raises:
        ConfigError: The module is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _BRINGS:
            raise
        raise ConfigError(
            f"{module} is not installed", hint=f"pip install 'quantumqtt[{_BRINGS[module]}]'"
        ) from error
