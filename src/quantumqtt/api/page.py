"""The live page: one file, nothing fetched from elsewhere, held to that by its own policy.

Script and style stand inside the page. The content security policy names them by their hash, so
nothing else runs, even if a client id with markup in it ever reached the page.
"""

import base64
import functools
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

_PAGE: Final = "live.html"


@dataclass(frozen=True, slots=True)
class Page:
    """A page and the policy it is served with."""

    body: bytes
    content_security_policy: str


@functools.cache
def live_page() -> Page:
    """Load the page that ships with the package."""
    text = (resources.files("quantumqtt.api") / "pages" / _PAGE).read_text("utf-8")
    policy = [
        "default-src 'none'",
        f"script-src {_hashes(text, 'script')}",
        f"style-src {_hashes(text, 'style')}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return Page(text.encode(), "; ".join(policy))


def _hashes(text: str, element: str) -> str:
    contents = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    digests = (hashlib.sha256(content.encode()).digest() for content in contents)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
