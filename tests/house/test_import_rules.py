"""A wrong import is a red line that names the path which led to it."""

import shutil
from pathlib import Path

import pytest

from tools import import_rules


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Copy what the import rules look at."""
    shutil.copytree(
        import_rules.HOUSE / "src",
        tmp_path / "src",
        ignore=shutil.ignore_patterns("__pycache__", "*.so"),
    )
    shutil.copy(import_rules.HOUSE / "pyproject.toml", tmp_path)
    return tmp_path


def plant(house: Path, module: str, source: str) -> None:
    """Write a module, and the room around it where there is none yet."""
    file = house / "src" / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").touch()
    file.write_text(source, encoding="utf-8")


def test_tree_as_it_stands_keeps_every_contract(house: Path) -> None:
    kept, words = import_rules.check_imports(house)
    assert kept, words
    assert "0 broken" in words


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        pytest.param("quantumqtt.client.planted", "quantumqtt.config", id="user-wing-to-server"),
        pytest.param("quantumqtt.config.planted", "quantumqtt.client", id="server-wing-to-user"),
        pytest.param("quantumqtt.mqtt.planted", "quantumqtt.node", id="cellar-to-wing"),
        pytest.param("quantumqtt.config.planted", "quantumqtt.policy", id="upwards-in-a-wing"),
        pytest.param("quantumqtt.api.planted", "quantumqtt.operations", id="between-siblings"),
        pytest.param("quantumqtt.node.planted", "quantumqtt.cli", id="wing-to-roof"),
        pytest.param("quantumqtt.config.planted", "quantumqtt._core", id="not-allowed-at-bridge"),
        pytest.param("quantumqtt.queues.planted", "pyspark", id="spark-outside-its-room"),
    ],
)
def test_wrong_import_is_rejected_with_its_path(house: Path, module: str, imported: str) -> None:
    plant(house, module, f"import {imported}\n")
    kept, words = import_rules.check_imports(house)
    assert not kept
    assert f"{module} -> {imported}" in words


def test_wrong_import_by_way_of_a_third_module_is_rejected(house: Path) -> None:
    # Each step is allowed where it stands; together they lead an executor into the server wing.
    plant(house, "quantumqtt.spark.planted", "import quantumqtt.mqtt.detour\n")
    plant(house, "quantumqtt.mqtt.detour", "import quantumqtt.policy\n")
    kept, words = import_rules.check_imports(house)
    assert not kept
    assert "quantumqtt.spark.planted -> quantumqtt.mqtt.detour" in words
    assert "quantumqtt.mqtt.detour -> quantumqtt.policy" in words


def test_room_without_a_place_is_rejected(house: Path) -> None:
    plant(house, "quantumqtt.attic.planted", "")
    kept, words = import_rules.check_imports(house)
    assert not kept
    assert "quantumqtt.attic" in words


def test_every_room_of_the_contracts_is_mirrored(house: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    import_rules.build_mirror(house, mirror)
    assert (mirror / "quantumqtt" / "_core.py").exists()
    for room in ("connectors", "spark", "simulation"):
        assert (mirror / "quantumqtt" / room / "__init__.py").exists()
