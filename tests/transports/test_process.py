"""The program: flags people know, a file of Mosquitto, SIGHUP, and what is said of bad files."""

import json
import signal
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.harness.certificates import Authority
from tests.harness.mqtt_peer import MqttPeer
from tests.harness.node_process import PROGRAM, NodeProcess, clean_environment
from tests.harness.packets import Version
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.raw_peer import DEADLINE_S


def secure_peer(context: ssl.SSLContext, port: int) -> MqttPeer:
    bare = MqttPeer(LOOPBACK, port, Version.V5)
    wire = context.wrap_socket(bare._socket, server_hostname="localhost")
    return MqttPeer(LOOPBACK, port, Version.V5, over=wire)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


@pytest.mark.requirement("NET-01")
@pytest.mark.hardening("stale-certificate")
def test_a_day_with_certificates(own_authority: Authority, tmp_path: Path) -> None:
    authority = own_authority
    server, client = authority.server(), authority.client("ada")
    flags = (
        *("--listen", f"tls://{LOOPBACK}:0", "--listen", f"wss://{LOOPBACK}:0/mqtt"),
        *("--cert", str(server.certificate), "--key", str(server.key)),
        *("--cafile", str(authority.file), "--require-certificate", "--profile", "production"),
        *("--data", str(tmp_path / "data")),
    )
    announced = ("configuration not reloaded",)
    with NodeProcess(*flags, announced_errors=announced) as process:
        tls_url, wss_url = process.urls
        assert wss_url.startswith("wss://127.0.0.1:")
        assert wss_url.endswith("/mqtt")
        context = authority.context(client)
        with secure_peer(context, port_of(tls_url)) as kept:
            kept.open("kept")
            good = server.key.read_bytes()
            server.key.write_bytes(b"")
            process.signal(signal.SIGHUP)
            line = json.loads(process.wait_log("configuration not reloaded"))
            assert f"key = {server.key}: holds no private key" in line["why"]
            assert line["remedy"]
            server.key.write_bytes(good)
            process.signal(signal.SIGHUP)
            process.wait_log("configuration reloaded")
            with secure_peer(context, port_of(tls_url)) as fresh:
                fresh.open("fresh")
            kept.ping()


def test_bad_files_end_the_start_with_their_names(own_authority: Authority) -> None:
    server = own_authority.server()
    for cert, key, complaint in (
        (server.certificate, "absent.key", "key = absent.key: cannot be read"),
        (server.key, server.key, f"certificate = {server.key}: holds nothing of the kind"),
        (server.certificate, own_authority.server().key, "does not belong to the certificate"),
    ):
        said = [*PROGRAM, "serve", "--listen", f"tls://{LOOPBACK}:0", "--admin", "off"]
        for more in ((), ("--check-config",)):
            ran = subprocess.run(
                [*said, "--cert", str(cert), "--key", str(key), *more],
                env=clean_environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=DEADLINE_S,
            )
            assert ran.returncode == 2
            assert complaint in ran.stderr


def test_certificates_are_checked_with_the_file_that_names_them(
    own_authority: Authority, tmp_path: Path
) -> None:
    server = own_authority.server()
    file = tmp_path / "broker.toml"
    table = f'[[listener]]\nurl = "tls://127.0.0.1:0"\ncertificate = "{server.certificate}"\n'
    for key, code in ((server.key, 0), (own_authority.server().key, 2)):
        file.write_text(f'{table}key = "{key}"\n', encoding="utf-8")
        ran = subprocess.run(
            [*PROGRAM, "check-config", str(file)],
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        assert ran.returncode == code, ran.stderr


def test_file_of_mosquitto_with_every_kind_of_listener(
    own_authority: Authority, tmp_path: Path
) -> None:
    authority = own_authority
    server = authority.server()
    ports = [free_port() for _ in range(2)]
    conf = tmp_path / "mosquitto.conf"
    conf.write_text(
        f"listener {ports[0]} {LOOPBACK}\ncertfile {server.certificate}\nkeyfile {server.key}\n"
        f"cafile {authority.file}\nrequire_certificate true\nuse_identity_as_username true\n"
        f"crlfile {authority.revoke()}\n"
        f"listener {ports[1]} {LOOPBACK}\nprotocol websockets\n"
        f"listener 0 {tmp_path / 'mqtt.sock'}\nallow_anonymous false\n",
        encoding="utf-8",
    )
    command = [*PROGRAM, "serve", "--mosquitto-conf", str(conf), "--json", "--admin", "off"]
    process = subprocess.Popen(
        [*command, "--log-format", "json"],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        urls = json.loads(process.stdout.readline())["listeners"]
        assert urls == [
            f"ws://{LOOPBACK}:{ports[1]}/mqtt",
            f"unix://{tmp_path / 'mqtt.sock'}",
            f"tls://{LOOPBACK}:{ports[0]}",
        ]
        context = authority.context(authority.client("ada"))
        with secure_peer(context, ports[0]) as peer:
            peer.open("by certificate")
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert not (tmp_path / "mqtt.sock").exists()
