"""MQTT.js in a real browser, over `ws` and `wss`: the one client no test of ours can imitate.

`just browser` fetches the pinned MQTT.js; Chromium is the distribution's. The browser trusts the
broker's certificate by its key alone (`--ignore-certificate-errors-spki-list`), nothing else.
"""

import base64
import hashlib
import http.server
import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from quantumqtt.config import FlagLayer, settings_from
from tests.harness.certificates import Authority
from tests.harness.live_broker import LiveBroker
from tests.harness.ports import LOOPBACK

FOLDER = Path(__file__).parent
SCRIPT = FOLDER / "node_modules" / "mqtt" / "dist" / "mqtt.min.js"
DEADLINE_S = 60.0


class Desk(http.server.BaseHTTPRequestHandler):
    """Serves the page and its script, and takes the result."""

    results: queue.Queue[dict[str, object]]

    def do_GET(self) -> None:
        """Give the page or the script."""
        file = SCRIPT if self.path.endswith(".js") else FOLDER / "page.html"
        content = file.read_bytes()
        kind = "text/javascript" if file is SCRIPT else "text/html"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        """Take what the page found out."""
        told = self.rfile.read(int(self.headers["Content-Length"]))
        self.results.put(json.loads(told))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def desk() -> Iterator[http.server.ThreadingHTTPServer]:
    """A web server for one page load."""
    Desk.results = queue.Queue()
    server = http.server.ThreadingHTTPServer((LOOPBACK, 0), Desk)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def key_pin(certificate: Path) -> str:
    """Hash a certificate's public key as Chromium names it."""
    read = x509.load_pem_x509_certificate(certificate.read_bytes())
    key = read.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


@pytest.mark.requirement("NET-13")
@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_page_speaks_mqtt_through_a_browser(
    scheme: str, desk: http.server.ThreadingHTTPServer, tmp_path: Path
) -> None:
    assert SCRIPT.exists(), "run `just browser`: it fetches MQTT.js first"
    server = Authority(tmp_path).server()
    page = f"http://{LOOPBACK}:{desk.server_address[1]}"
    asked: dict[str, object] = {
        "tls": {"certificate": server.certificate, "key": server.key},
        "listener": [{"url": f"{scheme}://{LOOPBACK}:0/mqtt", "origins": [page]}],
    }
    with LiveBroker(settings_from([FlagLayer(asked, spoken_by_caller=True)])) as broker:
        command = [
            os.environ.get("CHROMIUM", "chromium"),
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
            f"--ignore-certificate-errors-spki-list={key_pin(server.certificate)}",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"{page}/#{quote(broker.listeners[0].url, safe='')}",
        ]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            result = Desk.results.get(timeout=DEADLINE_S)
        finally:
            browser.terminate()
            browser.wait()
        assert result.get("topic") == "page/hello", result
        assert result["same"] is True
        opened = broker.wait_event("session_opened", listener=f"{scheme}-1")
        assert broker.wait_event("session_closed", client_id=opened.client_id).reason == "normal"
