"""What is generated and kept says what would be generated now."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from docs.site import codemap, configuration, messages, pictures, screenshots
from monitor.alarm.message import AlertMessage
from monitor.errors import InputError
from monitor.evidence.document import Evidence
from monitor.policy.manifest import RecurrentManifest, SightedManifest
from monitor.sidecar.config.reading import config_schema
from monitor.sidecar.pipeline import StatusMessage
from monitor.stream import decode
from tests.docs.blocks import PAGES, ROOT

SENT = {"v": 1, "episode": "e", "seq": 0, "state": 0}
MORE = {"action": 0, "time": 1.0, "reward": 0.5, "terminated": True, "truncated": False, "policy": "a" * 64} | {
    "inputs": [0.5],
    "extra": {"ward": 3},
}

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
DIGEST = re.compile(r"evidence [0-9a-f]{32}")


def test_the_configuration_page_is_that_of_the_schema() -> None:
    kept = configuration.PAGE.read_text(encoding="utf-8")
    assert kept == configuration.page(), "python -m docs.site.configuration"


def test_the_codemap_is_that_of_the_sources() -> None:
    assert codemap.PAGE.read_text(encoding="utf-8") == codemap.page(), "python -m docs.site.codemap"


def test_every_screenshot_is_small_and_shown() -> None:
    """`make screenshots` makes them; what a demo shows differs each time."""
    made = set(re.findall(r'"(page-\w+)"', Path(screenshots.__file__).read_text(encoding="utf-8")))
    kept = {file.stem: file.stat().st_size for file in screenshots.FOLDER.glob("page-*.webp")}
    assert kept.keys() == made, "make screenshots"
    assert max(kept.values()) < 100_000
    text = "\n".join(page.read_text(encoding="utf-8") for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
    assert [name for name in made if f"pictures/{name}.webp" not in text] == []


@pytest.mark.parametrize("name", messages.PAGES)
def test_the_tables_of_fields_are_those_of_the_types(name: str) -> None:
    kept = (messages.FOLDER / name).read_text(encoding="utf-8")
    assert kept == messages.page(name), "python -m docs.site.messages"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("step.md", [*SENT, "observation", *MORE]),
        ("alert.md", AlertMessage.__struct_fields__),
        ("status.md", StatusMessage.__struct_fields__),
        ("manifest.md", {**SightedManifest.model_fields, **RecurrentManifest.model_fields}),
        ("evidence.md", Evidence.__struct_fields__),
    ],
)
def test_every_field_has_its_row(name: str, fields: Iterable[str]) -> None:
    kind, _ = messages.PAGES[name]
    table = messages.page(name).split(messages.BEGIN.format(kind))[1].split(messages.END)[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", table, flags=re.MULTILINE)
    assert [row for row, *_ in rows if not re.search(r"[.\[]", row)] == list(fields)
    assert all(kind.strip() and meaning.strip() for _, kind, meaning in rows)


def test_a_step_has_the_keys_of_the_table_and_no_others() -> None:
    decode("ada", json.dumps(SENT | MORE).encode())
    with pytest.raises(InputError, match="send only") as refused:
        decode("ada", json.dumps({**SENT, "other": 1}).encode())
    assert sorted(messages.STEP) == refused.value.detail.rpartition("send only ")[2].split(", ")


def keys(section: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(section["properties"].items())


def test_every_key_has_a_meaning_a_default_and_a_row() -> None:
    schema, page = config_schema(), configuration.page()
    sections = [schema, *schema["$defs"].values()]
    described = [(key, setting) for section in sections for key, setting in keys(section)]
    assert len(described) > 50
    for key, setting in described:
        assert setting.get("description"), key
        assert not {"ge", "le", "gt", "lt"} & setting.keys(), key  # no words of JSON Schema
        if "$ref" not in setting:
            assert f"| `{key}` |" in page


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_pictures_are_those_that_would_be_drawn(name: str) -> None:
    kept = DIGEST.sub("", (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8"))
    drawn = DIGEST.sub("", pictures.PICTURES[name]())  # the evidence's id depends on every last digit
    assert NUMBER.sub("0", kept) == NUMBER.sub("0", drawn), "python -m docs.site.pictures"
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (kept, drawn)]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.011)  # the last of two digits may be the machine's


def test_every_picture_is_shown_and_none_else_is_kept() -> None:
    shown = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert {file.stem for file in pictures.FOLDER.glob("*.svg")} == pictures.PICTURES.keys()
    for name in pictures.PICTURES:
        assert f"pictures/{name}.svg)" in shown
