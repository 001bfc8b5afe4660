"""The MQTT client: `Client` for asyncio, `SyncClient` for threads.

`protocol.py` holds the whole of MQTT without I/O; `driver.py` gives it sockets and time; the two
clients are faces of the driver.
"""

from quantumqtt._core import Message
from quantumqtt.client.backoff import Backoff
from quantumqtt.client.client import Client
from quantumqtt.client.driver import Statistics
from quantumqtt.client.options import Authenticator, Will
from quantumqtt.client.protocol import Capabilities, Connected
from quantumqtt.client.publishing import Outgoing
from quantumqtt.client.receipts import Operation, Receipt
from quantumqtt.client.store import FileStore, Store
from quantumqtt.client.streams import Delivery, Stream
from quantumqtt.client.sync import Subscription, SyncClient, Token
from quantumqtt.client.transports import tls_context

__all__ = [
    "Authenticator",
    "Backoff",
    "Capabilities",
    "Client",
    "Connected",
    "Delivery",
    "FileStore",
    "Message",
    "Operation",
    "Outgoing",
    "Receipt",
    "Statistics",
    "Store",
    "Stream",
    "Subscription",
    "SyncClient",
    "Token",
    "Will",
    "tls_context",
]
