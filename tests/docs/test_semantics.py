"""The definitions: sections cited elsewhere exist, names in their table exist, and sections have examples.

A lower-case "section" with a number cites a page of docs/semantics/, the one that has the section, and names the page;
sections of other works have a capital letter.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import ROOT

PAGE: Final = ROOT / "docs/semantics.md"
LED_TO: Final = re.findall(r"\[(\d+)\. ([^]]+)\]\((semantics/[\w-]+\.md)#", PAGE.read_text(encoding="utf-8"))
PARTS: Final = {ROOT / "docs" / name: None for _, _, name in LED_TO}
"""The pages that it leads to, in its order."""
FOLDERS: Final = ("monitor", "tests", "docs", "experiments", "policies", "config", "deploy")
HEADING: Final = re.compile(r"^###? (\d+(?:\.\d+)?)\.? (.+)$", re.MULTILINE)
CITED: Final = re.compile(
    r"(?:docs/semantics/([\w-]+)\.md,[\s#]+)?"
    r"\bsections?[\s#]+(\d+(?:\.\d+)*)(?:,? (?:and|or|to) (\d+(?:\.\d+)*))?"
)
OLD: Final = re.compile(r"\b[Ss]emantics,[\s#]+(?:section[\s#]+)?\d")
OWN: Final = re.compile(r"\b[Ss]ections?\s+((?:\d+(?:\.\d+)?(?:,? and | to |, )?)+)")
WITHOUT_EXAMPLE: Final = {"12.2", "15"}  # a comparison with the paper, and the table of symbols


TEXT: Final = "".join(page.read_text(encoding="utf-8") for page in PARTS)


def sections() -> dict[str, str]:
    """Section number -> its text up to the next heading."""
    found = list(HEADING.finditer(TEXT))
    ends = [heading.start() for heading in found[1:]] + [len(TEXT)]
    return {heading[1]: TEXT[heading.end() : end] for heading, end in zip(found, ends, strict=True)}


SECTIONS: Final = sections()
PAGES: Final = {number: page.stem for page in PARTS for number, _ in HEADING.findall(page.read_text(encoding="utf-8"))}
"""Section number -> the page that has the section."""


def wrong(text: str) -> Iterator[str]:
    """Citations that are not of the one form, or of a section that the named page does not have."""
    for found in CITED.finditer(text):
        if any(PAGES.get(number, "") != found[1] for number in found.groups()[1:] if number):
            yield found[0]
    for found in OLD.finditer(text):
        yield found[0]


def files() -> list[Path]:
    """All text in which a citation may be."""
    inside = [file for folder in FOLDERS for end in ("py", "md") for file in (ROOT / folder).rglob(f"*.{end}")]
    return sorted({*inside, *ROOT.glob("*.md")} - {PAGE, *PARTS, Path(__file__).resolve()})


def test_the_page_leads_to_every_chapter_and_every_part() -> None:
    assert {*PARTS} == {*(ROOT / "docs/semantics").glob("*.md")}
    for number, title, name in LED_TO:
        assert f"\n## {number}. {title}\n" in (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert [number for number, _, _ in LED_TO] == [number for number in SECTIONS if "." not in number]


def test_every_cited_section_exists() -> None:
    cited = {str(file.relative_to(ROOT)): list(wrong(file.read_text(encoding="utf-8"))) for file in files()}
    assert {file: found for file, found in cited.items() if found} == {}
    good = sum(found[1] is not None for file in files() for found in CITED.finditer(file.read_text(encoding="utf-8")))
    assert good > 30


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("see {page}, section 3.1", 0),
        ("# see {page},\n# section 3.1", 0),
        ("Kazemi & Paoletti, Section 9.9", 0),
        ("see {page}, section 99", 1),
        ("see {page}, section 3.9", 1),
        ("see section 3.1", 1),
        ("see section 99", 1),
        ("see docs/semantics.md, section 3.1", 1),
        ("see docs/semantics/formulas.md, section 3.1", 1),
        ("see {page}, sections 2.1 and 3.1", 0),
        ("see {page}, sections 3.1 and 8.4", 1),
        ("(semantics, section 3)", 2),
        ("(semantics, 7)", 1),
    ],
)
def test_a_citation_that_is_made_up_or_has_another_form_is_found(text: str, count: int) -> None:
    assert len(list(wrong(text.format(page="docs/semantics/worlds.md")))) == count


def test_sections_are_numbered_in_order_and_cite_each_other_rightly() -> None:
    expected: list[str] = []
    for number in SECTIONS:
        chapter, _, part = number.partition(".")
        last = expected[-1].partition(".") if expected else ("0", "", "")
        following = (last[0], str(int(last[2] or 0) + 1)) if part else (str(int(last[0]) + 1), "")
        assert (chapter, part) == following
        expected.append(number)
    named = {number for found in OWN.finditer(TEXT) for number in re.findall(r"\d+(?:\.\d+)?", found[1])}
    assert len(named) > 20
    assert named - SECTIONS.keys() == set()


def test_every_section_has_an_example() -> None:
    chapters = {number for number in SECTIONS if f"{number}.1" in SECTIONS}
    bare = {number for number, text in SECTIONS.items() if number not in chapters and ">>> " not in text}
    assert bare == WITHOUT_EXAMPLE


def test_every_chapter_says_where_its_numbers_come_from() -> None:
    chapters = {number.partition(".")[0] for number in SECTIONS}
    said = {number.partition(".")[0] for number, text in SECTIONS.items() if "Provenance" in text}
    assert chapters - said == {"12", "15"}


ROWS: Final = re.findall(r"^\| (.+?) \| (`.+`) \| `(.+)` \|$", SECTIONS["15"], re.MULTILINE)


def test_the_table_of_symbols_is_read_whole() -> None:
    assert len(ROWS) == len(re.findall(r"^\| ", SECTIONS["15"], re.MULTILINE)) - 1 > 50  # but for its head


@pytest.mark.parametrize(("names", "file"), [row[1:] for row in ROWS], ids=[row[1] for row in ROWS])
def test_every_name_in_the_table_of_symbols_exists(names: str, file: str) -> None:
    assert (ROOT / file).is_file()
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    for name in re.findall(r"`([\w.]+)`", names):
        first, *inner = name.split(".")
        thing = getattr(module, first)
        assert getattr(thing, "__module__", module.__name__) == module.__name__, f"{name} is defined elsewhere"
        for part in inner:
            assert part in {*getattr(thing, "__annotations__", ()), *dir(thing)}, name
