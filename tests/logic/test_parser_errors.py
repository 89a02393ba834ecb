"""Every way a formula can be wrong: what the error says, and where its caret stands."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.errors import FormulaError
from monitor.logic import parse
from monitor.logic import parser as parser_module
from monitor.logic.grammar import MAX_HORIZON
from monitor.logic.parser import MAX_DEPTH, MAX_LENGTH, MAX_PARTS
from tests.tiers import examples

LAW = settings(max_examples=examples(25, 400))


def refused(text: str) -> FormulaError:
    with pytest.raises(FormulaError) as caught:
        parse(text)
    return caught.value


def caret(error: FormulaError) -> str:
    """The character the caret points at, as a person sees it; empty beyond the end."""
    shown, pointer = str(error).split("\n")[-2:]
    assert pointer.strip() == "^"
    return shown[pointer.index("^") :][:1]


# ¦ stands in front of the place the caret must point at
WRONG = [
    # unbounded
    ('P=? [ F ¦"a" ]', "F needs an interval such as <=10 or [2,5]: every formula is bounded"),
    ('P=? [ G ¦"a" ]', "G needs an interval"),
    ('P=? [ "a" U ¦"b" ]', "U needs an interval"),
    ('P=? [ "a" W ¦"b" ]', "W needs an interval"),
    ('P=? [ "a" R ¦"b" ]', "R needs an interval"),
    ('P=? [ F ¦>=3 "a" ]', "F needs an interval"),
    ("R=? [ C ¦]", "unexpected ']'; expected '<=', '=', '['"),
    # reversed, negative, fractional, huge
    ('P=? [ F[¦3,1] "a" ]', "reversed interval [3,1]: the lower bound comes first"),
    ("R=? [ C[¦1,0] ]", "reversed interval [1,0]"),
    ('P=? [ F<=¦-1 "a" ]', "unexpected '-1'; expected a whole number"),
    ('P=? [ F<=1¦.5 "a" ]', "unexpected '.'"),
    ('P=? [ F[1,¦2000000] "a" ]', "2000000 is larger than 1000000"),
    ('P=? [ F<=¦99999999999999999999999999 "a" ]', "99999999999999999999 is larger than 1000000"),
    ('@¦1000001.P>0.5 [ "a" ]', "offset 1000001 is larger than 1000000"),
    ('alt@¦-99999999999.P>0.5 [ "a" ]', "offset -99999999999 is larger than 1000000"),
    ('alt[¦1000001].P>0.5 [ "a" ]', "1000001 is larger than 1000000"),
    ("do(1)[¦1000001].P>0.5 [ true ]", "1000001 is larger than 1000000"),
    # bounds of quantities
    ("P>=¦1.5 [ true ]", "1.5 is not a probability: it must lie in [0, 1]"),
    ("P<¦-0.1 [ true ]", "-0.1 is not a probability"),
    ("@5.P>=¦5 [ true ]", "5 is not a probability"),
    ("delta(alt,nominal)@2.P>¦2 [ true ]", "2 is not an effect on a probability: it must lie in [-1, 1]"),
    ("delta(alt,nominal)@2.P>¦-1.5 [ true ]", "-1.5 is not an effect on a probability"),
    ("P>=0.5 [ P>=¦1.5 [ true ] ]", "1.5 is not a probability"),
    ("regret(alt, P>=¦1.5 [ true ])", "1.5 is not a probability"),
    ("R<¦1e999 [ C<=1 ]", "1e999 is too large for a number"),
    ("P>=¦.5 [ true ]", "unexpected '.'; expected a number"),
    ("P¦=0.5 [ true ]", "unexpected '='; expected '<', '<=', '=?', '>', '>='"),
    # what may stand where
    ('¦F<=3 "a"', "a temporal operator outside the brackets of P; write P=? [ ... ] around it"),
    ('"a" & ("b" ¦U<=3 "a")', "a temporal operator outside the brackets of P"),
    ('!¦X "a"', "a temporal operator outside the brackets of P"),
    ('P>0.5 [ true ] => ¦G<=2 "a"', "a temporal operator outside the brackets of P"),
    ('"b" ¦W<=2 "a"', "a temporal operator outside the brackets of P"),
    ('"b" ¦R<=2 "a"', "a temporal operator outside the brackets of P"),
    ("P>=0.5 [ P¦=? [ true ] ]", "'=?' may only stand as the whole formula; inside, compare with a bound"),
    ("P>=0.5 [ R¦=? [ C<=2 ] ]", "'=?' may only stand as the whole formula"),
    ('"a" & P¦=? [ true ]', "'=?' may only stand as the whole formula"),
    ("regret(alt, P¦=? [ true ])", "'=?' may only stand as the whole formula"),
    ("nominal[¦3].P>0.5 [ true ]", "nominal takes no number of steps: it is what happens without an intervention"),
    ("model:icy¦[3].P>0.5 [ true ]", "unexpected '['; expected ')', ',', '.', '@'"),
    ("  ¦regret(nominal, P>0.5 [ true ])", "regret compares nominal with one alternative, such as fallback@5"),
    ("¦regret(delta(alt,nominal), P>0.5 [ true ])", "regret compares nominal with one alternative"),
    ("¦regret(@2, P>0.5 [ true ])", "regret compares nominal with one alternative"),
    ("regret(alt, ¦alt.P>0.5 [ true ])", "unexpected 'alt'; expected 'P', 'R'"),
    ("P>0.5 [ ¦regret(alt, P>0.5 [ true ]) ]", "unexpected 'regret'"),
    ("¦handover(nominal, P>0.5 [ true ], 5)", "handover needs a policy or an action to hand over to, not nominal"),
    (
        "true & ¦handover(model:icy, P>0.5 [ true ], 5)<1",
        "handover needs a policy or an action to hand over to, not model:icy",
    ),
    ("handover(alt, P¦=? [ true ], 5)", "'=?' may only stand as the whole formula"),
    ("handover(alt, ¦alt.P>0.5 [ true ], 5)", "unexpected 'alt'; expected 'P', 'R'"),
    ("handover(alt¦@2, P>0.5 [ true ], 5)", "unexpected '@'; expected ','"),
    ("handover(alt, P>0.5 [ true ]¦)", "unexpected ')'; expected ','"),
    ("handover(alt, P>0.5 [ true ], ¦-5)", "unexpected '-5'; expected a whole number"),
    ("handover(alt, P>0.5 [ true ], ¦1000001)", "1000001 is larger than 1000000"),
    ("handover(alt, P>0.5 [ true ], 5) >= ¦1.5", "1.5 is not a probability"),
    ("handover(alt, P>=¦1.5 [ true ], 5)", "1.5 is not a probability"),
    ("true & handover(alt, P>0.5 [ true ], 5)¦", "the formula ends here; expected '<', '<=', '>', '>='"),
    ('R=? [ ¦F<=3 "a" ]', "unexpected 'F'; expected 'C'"),
    ("P=? [ ¦C<=3 ]", "unexpected 'C'"),
    # unknown words, stray characters, what is missing
    ("P=? [ unsafe ¦]", "unexpected ']'"),
    ('P=? [ XX ¦"a" ]', "unexpected '\"a\"'; expected ')', ',', '.', '@', '['"),
    ('P=? [ FOR ¦"a" ]', "unexpected '\"a\"'"),
    ('P=? [ "a" ¦and "b" ]', "unexpected 'and'; expected '&', ')', '<=>', '=>', 'R', 'U', 'W', ']'"),
    ("P=? [ ¦'a' ]", 'unexpected "\'"'),
    ('P=? [ ¦"a b" ]', "unexpected '\"'"),
    ('P=? [ ¦"" ]', "unexpected '\"'"),
    ('"a" ¦? "b"', "unexpected '?'"),
    ("¦? true", "unexpected '?'"),
    ("R¦[ C<=2 ]", "unexpected '['; expected '<', '<=', '=?', '>', '>='"),
    ("P=? [ true¦ ", "the formula ends here; expected"),
    ("P>0.5 ¦true", "unexpected 'true'; expected '['"),
    ("P=?¦", "the formula ends here; expected '['"),
    ("¦", "the formula ends here; expected"),
    ("alt@¦.P>0.5 [ true ]", "unexpected '.'; expected an offset"),
    ("alt@1.¦5.P>0.5 [ true ]", "unexpected '5'; expected 'P', 'R'"),
    ("delta(alt¦).P>0 [ true ]", "unexpected ')'; expected ','"),
    ("do(¦).P>0 [ true ]", "unexpected ')'; expected a name, a number"),
    ("nominal¦", "the formula ends here"),
    ("¦U@1.P>0.5 [ true ]", "unexpected 'U'; expected"),
    ("do(¦F).P>0.5 [ true ]", "unexpected 'F'; expected a name, a number"),
    ("P>0.5 [ true ] ¦P", "unexpected 'P'"),
    # several lines, comments, tabs, Windows line ends
    ('// first\n"a" &\n  P>=¦2 [ true ] // last', "2 is not a probability"),
    ('"a" & // & is none\n¦& "b"', "unexpected '&'"),
    ('\t"a" &\r\n\t\t¦F<=2 "a"', "a temporal operator outside"),
    ('"a"\r\n | P¦=? [ "b" ]', "'=?' may only stand as the whole formula"),
    ('"a" &\n\n\n P¦=', "unexpected '='"),
    ('"a" &\x0c\n ¦& "b"', "unexpected '&'"),
    ('\n¦F<=3 "a"', "a temporal operator outside"),
]


@pytest.mark.parametrize(("marked", "problem"), WRONG)
def test_says_what_and_where(marked: str, problem: str) -> None:
    at = marked.index("¦")
    text = marked.replace("¦", "")
    error = refused(text)
    assert error.problem.startswith(problem)
    assert error.line == text[:at].count("\n") + 1
    assert error.column == at - (text[:at].rfind("\n") + 1) + 1
    assert caret(error) == text[at : at + 1]
    assert error.text == text
    assert str(error).startswith(f"formula, line {error.line}, column {error.column}: {error.problem}\n")


def test_too_deep() -> None:
    error = refused("!" * MAX_DEPTH + '"a"')
    assert error.problem == f"nested deeper than {MAX_DEPTH}"
    assert (error.line, error.column) == (1, 1)
    parse("!" * (MAX_DEPTH - 1) + '"a"')
    assert refused(f'P=? [ {"!" * (MAX_DEPTH - 1)}"a" ]').problem == error.problem


def test_as_large_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser_module, "MAX_PARTS", 9)
    parse('"a" <=> "b"')  # an and of two ors of a label and a negated one
    with pytest.raises(FormulaError, match="more than 9 parts"):
        parse('!("a" <=> "b")')


def test_at_most_eight_things_expected_are_named() -> None:
    assert len(refused("").problem.removeprefix("the formula ends here; expected ").split(", ")) == 8


def test_parentheses_alone_are_not_depth() -> None:
    parse("(" * 3000 + '"a"' + ")" * 3000)


def test_too_long() -> None:
    error = refused('"a"' + " " * MAX_LENGTH)
    assert error.problem == f"longer than {MAX_LENGTH} characters"
    assert len(str(error)) < 400
    assert (error.text, error.line, error.column) == ('"a"' + " " * 77, 1, 81)  # behind what is shown of it
    parse('"a"' + " " * (MAX_LENGTH - 3))


def test_too_large_once_written_out() -> None:
    error = refused(" <=> ".join(['"a"'] * 20))
    assert error.problem == f"more than {MAX_PARTS} parts once written out (each <=> doubles its operands)"
    assert (error.line, error.column) == (1, 1)
    parse(" <=> ".join(['"a"'] * 8))


def test_the_largest_horizon_and_offset() -> None:
    parse(f'@-{MAX_HORIZON}.P>0.5 [ F[{MAX_HORIZON},{MAX_HORIZON}] "a" ]')


def test_a_long_line_is_shown_around_the_caret() -> None:
    error = refused('"a" & ' * 300 + '& "b"' + ' | "c"' * 300)
    assert error.column == 1801
    assert caret(error) == "&"
    assert max(map(len, str(error).split("\n"))) <= 122


def test_control_characters_never_reach_the_terminal() -> None:
    error = refused('"a" \x1c & & "b" \x7f')
    assert "\x1c" not in str(error)
    assert caret(error) == "&"


TOKENS = st.sampled_from(
    [
        *["P", "R", "C", "F", "G", "X", "U", "W", "=?", "<=", ">=", "<", ">", "=", "[", "]", "(", ")", "!", "&", "|"],
        *[
            "=>",
            "<=>",
            "nominal",
            "alt",
            "do",
            "model",
            ":",
            "delta",
            "regret",
            "handover",
            "@",
            ",",
            ".",
            "-",
            "1",
            "0.5",
            "2e3",
        ],
        *['"a"', '"b.c"', "true", "false", " ", "\n", "\t", "// x\n", "//", "\u2028", "\x00", "é", "9" * 400, "1e400"],
    ]
)


def read_or_refused(text: str) -> FormulaError | None:
    """Nothing but a FormulaError may come out of the parser."""
    try:
        parse(text)
    except FormulaError as error:
        return error
    return None


@LAW
@given(
    st.one_of(
        st.text(max_size=60), st.lists(TOKENS, max_size=25).map("".join), st.lists(TOKENS, max_size=25).map(" ".join)
    )
)
def test_any_text_is_read_or_refused(text: str) -> None:
    if error := read_or_refused(text):
        assert 1 <= error.line <= text.count("\n") + 1
        assert 1 <= error.column <= len(text) + 1
        assert str(error).split("\n")[-1].strip() == "^"


FORMULAS = [
    'fallback@5.P>=0.95 [ G<=20 !"unsafe" ] & delta(fallback[3],model:icy)@-2.R<-1.5 [ C[2,7] ]',
    'regret(do(0)[2]@3, P<0.9 [ "a" U[1,4] (P>0.5 [ X "b" ]) <=> !("a" R=2 "b") ])',
    'handover(do(0)[2], P<0.9 [ "a" U[1,4] "b" ], 5) >= 0.25 & "c"',
    'P=? [ F<=20 ("key" & F<=20 ("door" & F<=10 "goal")) ] // the key first',
]


@LAW
@given(st.sampled_from(FORMULAS), st.lists(st.integers(0, 100), min_size=2, max_size=2).map(sorted), TOKENS)
def test_a_formula_cut_or_altered_is_read_or_refused(whole: str, cuts: list[int], token: str) -> None:
    text = whole[: cuts[0]] + token + whole[cuts[1] :]
    if error := read_or_refused(text):
        assert error.text == text
