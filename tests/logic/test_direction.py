"""Comparisons that look turned around: which draw a notice, and that none of the documentation does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from monitor.errors import FormulaError
from monitor.logic import Formula, parse
from monitor.logic.direction import FormulaUse, reversed_goals

ROOT = Path(__file__).parents[2]
Fires = Literal["fails", "holds"]


def noted(*formulas: tuple[str, Fires | None]) -> list[str]:
    watched = [FormulaUse(str(n), parse(text), fires) for n, (text, fires) in enumerate(formulas)]
    return [f"{name}: {note}" for name, note in reversed_goals(watched)]


TURNED = [
    ('regret(slow@2, P<=0.8 [ G<=9 !"hit" ])', "fails", "write P>=0.8"),
    ('regret(slow@2, P<0.8 [ G<=9 !"hit" ])', None, "write P>0.8"),
    ('P<=0.8 [ G<=9 !"hit" ]', "fails", "write P>=0.8"),
    ('slow@2.P<=0.8 [ G<=9 (!"hit" & !"lost") ]', "fails", 'if "hit" or "lost" is to be avoided'),
    ('P<=0.8 [ !F<=9 ("hit" | "lost") ]', "fails", 'if "hit" or "lost" is to be avoided'),
    ('P<=0.8 [ G<=9 !"hit" & G<=5 !"lost" ]', "fails", 'if "hit" or "lost" is to be avoided'),
    ('P>=0.1 [ F<=9 "home" ] & P<=0.8 [ G<=9 !"hit" ]', "fails", "write P>=0.8"),
    ('P>=0.8 [ G<=9 !"hit" ]', "holds", "write when: fails"),
    ('handover(slow, P<=0.8 [ G<=9 !"hit" ], 3) >= 0.2', "holds", "write P>=0.8"),
]


@pytest.mark.parametrize(("text", "fires", "advice"), TURNED)
def test_what_looks_turned_around_draws_one_notice(text: str, fires: Fires | None, advice: str) -> None:
    (note,) = noted((text, fires))
    assert advice in note
    assert "is avoided with a probability above 0.8; if" in note
    assert note.endswith("if it is to be reached, compare P [ F .. ] instead")


RIGHT: list[tuple[str, Fires | None]] = [
    ('regret(slow@2, P>=0.8 [ G<=9 !"hit" ])', "fails"),
    ('P<0.8 [ G<=9 !"hit" ]', "holds"),
    ('P<=0.8 [ G<=9 !"hit" ]', None),  # only asked
    ('P<=0.2 [ F<=9 "hit" ]', "fails"),
    ('P>=0.2 [ F<=9 "hit" ]', "fails"),  # nobody knows what a hit is
    ('P<=0.2 [ F<=9 !"safe" ]', "fails"),
    ('P<=0.2 [ G<=9 "waiting" ]', "fails"),
    ('P<=0.2 [ G<=9 (!"hit" | "home") ]', "fails"),
    ('P<=0.2 [ !"hit" U<=9 "home" ]', "fails"),
    ('delta(slow,nominal)@2.P<=0.2 [ G<=9 !"hit" ]', "fails"),
    ('P>=0.1 [ F<=9 "home" ] => P<=0.8 [ G<=9 !"hit" ]', "fails"),
    ('handover(slow, P>=0.8 [ G<=9 !"hit" ], 3) >= 0.2', "holds"),
    ("R<=3 [ C<=9 ]", "fails"),
    ('P=? [ G<=9 !"hit" ]', "fails"),
    ('P<=0.8 [ G<=9 (P<=0.5 [ X "hit" ]) ]', "fails"),
]


@pytest.mark.parametrize(("text", "fires"), RIGHT)
def test_what_may_be_meant_draws_none(text: str, fires: Fires | None) -> None:
    assert noted((text, fires)) == []


def test_to_reach_what_another_formula_avoids_draws_a_notice() -> None:
    avoids: list[tuple[str, Fires]] = [
        ('regret(slow@2, P>=0.8 [ G<=9 !"hit" ])', "fails"),
        ('P<=0.2 [ F<=9 "hit" ]', "fails"),
    ]
    for other in avoids:
        (note,) = noted(other, ('P>=0.2 [ F<=5 "hit" ]', "fails"))
        assert note == (
            '1: P>=0.2 [ F<=5 "hit" ] wants "hit" reached, and \'0\' wants "hit" avoided. '
            "If that is right, write P<=0.2"
        )
        (note,) = noted(('P<=0.2 [ F<=5 ("hit" | "lost") ]', "holds"), other)
        assert note.startswith("0: the alarm fires while P<=0.2")
        assert note.endswith("write when: fails")
        assert noted(other, ('P>=0.2 [ F<=5 "home" ]', "fails")) == []


ON_PURPOSE = parse('regret(fallback@5, P<=0.1 [ G<=20 !"unsafe" ])')
"""What docs/language.md shows as turned around."""


def documented() -> Iterator[tuple[Path, Formula]]:
    """Every text in the documentation and the shipped configurations that is a formula."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("config/**/*.y*ml"), *ROOT.glob("deploy/**/*")]
    for page in (each for each in pages if each.suffix in (".md", ".yaml", ".yml", ".json") and each.is_file()):
        text = page.read_text(encoding="utf-8")
        for found in re.findall(
            r"`([^`\n]+)`|'([^'\n]+)'|(?:formula|text):\s+(.+)|(regret\(.+\)|handover\(.+\).*)$", text, re.MULTILINE
        ):
            with_quotes = next(filter(None, found), "").replace('\\"', '"').strip()
            try:
                yield page, parse(with_quotes)
            except FormulaError:
                continue


def test_no_documented_formula_looks_turned_around() -> None:
    known = list(documented())
    assert len(known) > 100
    for page, formula in known:
        for fires in ("fails", None):
            found = reversed_goals([FormulaUse("it", formula, fires)])
            assert (found == []) != (formula == ON_PURPOSE), page
