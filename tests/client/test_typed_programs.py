"""A user's program is clean under `mypy --strict` and pyright, as they see the package."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.node_process import clean_environment
from tools.setup import HOUSE

DEADLINE_S = 110.0
PROGRAM = """
import asyncio
from collections.abc import Callable

from quantumqtt import Backoff, Client, Message, QuantuMQTTError, SyncClient, Will
from quantumqtt.client import Connected, Delivery, FileStore, Outgoing, Receipt, Stream, Token
from quantumqtt.client.auth import ScramSha256
from quantumqtt.testing import BrokerProcess, Recorder


def tag(outgoing: Outgoing) -> Outgoing:
    return outgoing.with_user_property("by", "me")


def on_connected(news: Connected) -> None:
    print(news.session_present, news.capabilities.version)


async def handler(message: Message) -> None:
    print(message.topic.upper(), len(message.payload), message.content_type or "none")


async def main(url: str) -> None:
    client = Client(
        [url, "wss://backup.example/mqtt"],
        authenticator=ScramSha256("me", "secret"),
        will=Will(topic="gone"),
        reconnect=Backoff(first_s=1),
        store=FileStore("folder/file"),
        publish_interceptors=[tag],
        on_connected=on_connected,
    )
    async with client:
        plain: Stream[Message] = client.subscribe("a/#", qos=1)
        manual: Stream[Delivery] = client.subscribe(["b", "c"], qos=2, manual_ack=True)
        granted: tuple[int, ...] = await plain.ready
        receipt: Receipt = client.publish_nowait("a", "x", qos=1, user_properties={"k": "v"})
        code: int = await receipt
        code += await client.publish("a", b"x", full="raise")
        async for delivery in manual:
            await delivery.ack()
        client.handle("d", handler, parallel=4)
        answer: bytes = (await client.request("double", "21")).payload
        print(granted, code, answer)


def threads(url: str) -> None:
    try:
        with SyncClient(url) as client:
            client.subscribe("a", lambda message: print(message.payload)).ready.wait(1)
            token: Token = client.publish("a", b"x", qos=2)
            token.add_done_callback(lambda done: print(done.result()))
            reason: int = token.wait(timeout=1.5)
            print(reason, token.future().result())
            for message in client.subscribe("b"):
                print(message.user_properties[0][0].lower())
    except QuantuMQTTError as error:
        print(error.hint, error.retryable)


def test_mine(broker: BrokerProcess, record: Callable[..., Recorder]) -> None:
    assert record("a").wait_for(1, timeout=2)[0].qos == int(broker.url != "")


asyncio.run(main("mqtt://localhost"))
"""
# Each line is wrong in its own way; a checker that finds nothing here has not looked.
WRONG = """
from quantumqtt import Client, SyncClient

Client(keep_alive="60")
SyncClient().publish(1)
SyncClient().subscribe("a").get().payload.encode()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    for example in sorted((HOUSE / "examples").glob("*.py")):
        if example.name.startswith("log_"):
            continue  # their libraries are in the Spark environment alone
        (tmp_path / f"example_{example.name}").write_text(example.read_text("utf-8"))
    return tmp_path


def check(folder: Path, *command: str) -> str:
    ran = subprocess.run(
        command,
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return ran.stdout + ran.stderr


def test_mypy_strict(folder: Path) -> None:
    cache = HOUSE / "target" / "mypy-of-users"
    command = (sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache))
    good = [file.name for file in folder.glob("*.py") if file.name != "wrong.py"]
    said = check(folder, *command, *good)
    assert "Success" in said, said
    assert said.count("\n") == 1, said
    assert check(folder, *command, "wrong.py").count("error:") == 3


def test_pyright(folder: Path) -> None:
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "exclude": ["wrong.py"],
        "reportMissingModuleSource": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    program = str(Path(sys.executable).with_name("basedpyright"))
    command = (program, "--outputjson", "--pythonpath", sys.executable)
    said = json.loads(check(folder, *command))
    assert said["summary"]["errorCount"] == 0, said["generalDiagnostics"]
    assert said["summary"]["filesAnalyzed"] >= 2
    settings["exclude"] = []
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    said = json.loads(check(folder, *command))
    assert said["summary"]["errorCount"] >= 3
    assert {Path(one["file"]).name for one in said["generalDiagnostics"]} == {"wrong.py"}
