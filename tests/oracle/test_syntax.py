"""The parser reads the grammar: how tightly things bind, and what a word means where."""

from __future__ import annotations

import pytest

from tests.oracle.syntax import GrammarError, Parser

SAME = [
    ('P>0 [ "a" & "b" | "c" ]', 'P>0 [ ("a" & "b") | "c" ]'),
    ('P>0 [ "a" | "b" & "c" ]', 'P>0 [ "a" | ("b" & "c") ]'),
    ('P>0 [ "a" => "b" => "c" ]', 'P>0 [ "a" => ("b" => "c") ]'),
    ('P>0 [ "a" => "b" <=> "c" | "a" ]', 'P>0 [ ("a" => "b") <=> ("c" | "a") ]'),
    ('P>0 [ "a" U<=1 "b" & "c" ]', 'P>0 [ ("a" U[0,1] "b") & "c" ]'),
    ('P>0 [ "a" U<=1 "b" W=2 "c" ]', 'P>0 [ "a" U[0,1] ("b" W[2,2] "c") ]'),
    ('P>0 [ ! "a" R<=1 "b" ]', 'P>0 [ (!"a") R[0,1] "b" ]'),
    ('P>0 [ F<=2 "a" & "b" ]', 'P>0 [ (F[0,2] "a") & "b" ]'),
    ('P>0 [ X X "a" ]', 'nominal@0.P>0 [ X (X "a") ]'),
    ('@5.P=? [ "a" ] // the end', 'nominal@5 . P =? [ "a" ]'),
    ("P>0 [ R>1 [ C<=2 ] ]", "P>0 [ nominal.R>1 [ C[0,2] ] ]"),
    ("alt[2]@-1.R=? [ C=1 ]", "alt [ 2 ] @-1 . R=? [ C[1,1] ]"),
]


@pytest.mark.parametrize(("short", "spelled"), SAME)
def test_both_texts_are_the_same_formula(short: str, spelled: str) -> None:
    parser = Parser()
    assert parser.parse(short) is parser.parse(spelled)


def test_regret_spells_out_both_goals() -> None:
    parser = Parser()
    regret = parser.parse('regret(alt@3, P>=0.5 [ G<=1 "a" ])')
    assert parser.parse('alt@3.P>=0.5 [ G[0,1] "a" ]') is getattr(regret, "under", None)
    assert parser.parse('@3.P>=0.5 [ G[0,1] "a" ]') is getattr(regret, "nominal", None)


@pytest.mark.parametrize("text", ["", '"a', 'P>0 [ "a" ', 'P>0 [ "a" U "b" ]', 'P>0 [ "a" ] "b"', "Q>0 [ true ]"])
def test_what_is_outside_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(GrammarError):
        Parser().parse(text)
