"""The live page: self-contained, and held to it by its policy."""

import base64
import hashlib
import re

from quantumqtt.api.page import live_page


def page_text() -> str:
    return live_page().body.decode()


def test_nothing_is_fetched_from_elsewhere() -> None:
    text = page_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", text)
    assert "@import" not in text
    assert "url(" not in text
    assert set(re.findall(r'fetch\("([^"]+)"', text)) == {"/v1/statistics"}


def test_the_policy_allows_exactly_what_stands_in_the_page() -> None:
    text, policy = page_text(), live_page().content_security_policy
    for element in ("script", "style"):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_the_policy_would_stop_nothing_that_the_page_does() -> None:
    """Inline handlers and style attributes are not covered by hashes, so there must be none."""
    body = re.sub(r"<(script|style)>.*?</\1>", "", page_text(), flags=re.DOTALL)
    assert not re.search(r"<[^>]+\s(on\w+|style)=", body)


def test_text_from_the_broker_never_becomes_markup() -> None:
    text = page_text()
    for dangerous in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert dangerous not in text


def test_every_element_that_the_script_names_exists_once() -> None:
    text = page_text()
    present = re.findall(r'\bid="([^"]+)"', text)
    assert len(present) == len(set(present))
    assert set(re.findall(r'byId\("([\w-]+)"\)', text)) <= set(present)


def test_it_works_in_light_and_dark() -> None:
    text = page_text()
    assert "prefers-color-scheme: dark" in text
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in _palettes(text))
    assert light == dark


def _palettes(text: str) -> tuple[str, str]:
    first, second = re.findall(r":root \{(.*?)\}", text, re.DOTALL)[:2]
    return first, second
