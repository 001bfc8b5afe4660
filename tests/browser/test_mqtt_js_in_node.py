"""MQTT.js under Node over TCP: every QoS, retained, a will, a session, in both versions."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.harness.node_process import NodeProcess

FOLDER = Path(__file__).parent
DEADLINE_S = 60.0


@pytest.mark.needs_program("node")
@pytest.mark.parametrize("level", [4, 5])
def test_node_tells_the_story_of_stock_clients(level: int) -> None:
    assert (FOLDER / "node_modules" / "mqtt").exists(), "run `just browser`: it fetches MQTT.js"
    with NodeProcess("--durability", "memory", "--shards", "2") as broker:
        ran = subprocess.run(
            ["node", "client.mjs", str(broker.port), str(level)],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert [(one["qos"], one["payload"]) for one in seen["qos"]] == [
        (0, "hello"),
        (1, "hello"),
        (2, "hello"),
    ]
    assert (seen["retained"]["payload"], seen["retained"]["retain"]) == ("kept", True)
    assert seen["will"]["payload"] == "gone"
    assert seen["present"] is True
    assert seen["missed"]["payload"] == "missed"
