"""The client's reference page is generated, complete and up to date."""

from tools.client_reference import PAGE, public_names, render


def test_the_page_is_what_the_sources_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "run `python -m tools.client_reference --write`"
    )


def test_every_public_name_and_its_methods_are_there() -> None:
    page = render()
    for name in public_names():
        assert f"### {name}\n" in page or f"### `{name}()`\n" in page
    for part in ("publish_nowait()", "Client.subscribe()", "SyncClient.publish()", "Stream.next()"):
        assert part in page
    assert "_driver" not in page
