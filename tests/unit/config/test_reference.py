"""The reference page is generated, complete and up to date."""

from pathlib import Path

from quantumqtt.config.keys import catalogue
from quantumqtt.config.limits import Limits
from quantumqtt.config.listeners import ListenerSettings, TlsSettings
from quantumqtt.config.reference import render
from quantumqtt.config.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def test_page_is_what_the_models_say() -> None:
    assert PAGE.read_text("utf-8") == render(), (
        "run `python -m quantumqtt.config.reference > docs/reference/configuration.md`"
    )


def test_every_key_is_on_the_page_with_its_variable_and_meaning() -> None:
    page = render()
    tables = {"log", "limits", "storage", "tls"}
    names = {name for name in Settings.model_fields if name not in tables}
    names |= {f"limits.{name}" for name in Limits.model_fields}
    names |= {f"tls.{name}" for name in TlsSettings.model_fields}
    names |= {f"listener.{name}" for name in ListenerSettings.model_fields}
    assert names <= catalogue().keys()
    for key in catalogue().values():
        assert f"| `{key.name}` |" in page
        assert f"`{key.environment}`" in page
        assert key.meaning.endswith(".")


def test_variables_nest_with_two_underscores() -> None:
    assert catalogue()["limits.packet_bytes_max"].environment == (
        "QUANTUMQTT_LIMITS__PACKET_BYTES_MAX"
    )
