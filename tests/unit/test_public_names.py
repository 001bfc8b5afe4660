"""The names the package offers: complete, lazy, and cheap to import."""

import subprocess
import sys
from pathlib import Path

import pytest

import quantumqtt

SOURCE = Path(quantumqtt.__file__).parents[1]


def test_every_public_name_loads_and_is_listed() -> None:
    assert sorted(quantumqtt.__all__) == quantumqtt.__all__
    for name in quantumqtt.__all__:
        assert getattr(quantumqtt, name) is not None
    assert set(quantumqtt.__all__) <= set(dir(quantumqtt))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Brokr'"):
        _ = quantumqtt.Brokr


def test_importing_the_package_loads_no_room_and_no_library() -> None:
    """A client program must not pay for the server's settings."""
    script = (
        "import sys; before = set(sys.modules); import quantumqtt; "
        "print(sorted(name for name in set(sys.modules) - before"
        " if name.startswith('quantumqtt.') or name.partition('.')[0] in"
        " ('pydantic', 'typer', 'rich', 'structlog', 'starlette', 'uvicorn')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "[]"
