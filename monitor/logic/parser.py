"""Parse text to formulas. Errors point at the place of the mistake."""

from __future__ import annotations

import re

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from monitor.errors import FormulaError
from monitor.logic.grammar import Problem, grammar
from monitor.logic.syntax import TIMED, Formula, Goal, InterventionRef, Probability, Regret, Temporal, Test, WorldRef
from monitor.logic.traversal import children, nested_goals

MAX_LENGTH = 10_000
"""Largest length of a formula, in characters; usual formulas have a few hundred."""
MAX_DEPTH = 100
"""Deepest nesting of a formula. Every traversal needs at most 7 frames for each level, and Python's stack has 1,000."""
MAX_PARTS = 20_000
"""Largest number of parts of a formula after its sugar is expanded (`<=>` repeats its operands)."""

WORDS = {
    "$END": "the end of the formula",
    "<END-OF-FILE>": "the end of the formula",
    "LABEL": 'a "label"',
    "NATURAL": "a whole number",
    "OFFSET": "an offset",
    "NUMBER": "a number",
    "NAME": "a name",
    "BEST": "a name",
    "OPTIMAL": "a name",
}


def parse(text: str) -> Formula:
    """Parse a formula. Raises `FormulaError` with line, column and a caret.

    Labels and policies are only names here; `monitor.exact` looks them up in a model.

    >>> parse('fallback@5.P>=0.95 [ G<=20 !"unsafe" ]').world.change
    InterventionRef(kind='policy', name='fallback', steps=None, limit=None, largest=True)
    """
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"longer than {MAX_LENGTH} characters", text[:80], 1, 81)
    try:
        formula: Formula = grammar().parse(text)  # type: ignore[assignment] # the transformer makes the tree a Formula
    except UnexpectedInput as error:
        raise _unexpected(error, text) from None
    except Problem as error:
        raise error_at(error.problem, text, error.at) from None
    _check_shape(formula, text)
    return formula


def error_at(problem: str, text: str, at: int) -> FormulaError:
    """Return a FormulaError at a character position (from 0)."""
    line = text.count("\n", 0, at) + 1
    return FormulaError(problem, text, line, at - (text.rfind("\n", 0, at) + 1) + 1)


def _unexpected(error: UnexpectedInput, text: str) -> FormulaError:
    if isinstance(error, UnexpectedToken):
        at = len(text.rstrip()) if error.token.type == "$END" else error.token.start_pos or 0
        found = "the formula ends here" if error.token.type == "$END" else f"unexpected {str(error.token)!r}"
        expected = error.expected
    else:
        assert isinstance(error, UnexpectedCharacters)
        at = error.pos_in_stream or 0
        found, expected = f"unexpected {text[at]!r}", error.allowed
    if text[at:].startswith(("=?", "= ?")):
        return error_at("'=?' may only stand as the whole formula; inside, compare with a bound", text, at)
    operator = re.search(rf"\b({'|'.join(TIMED.values())})\s*\Z", text[:at])
    if operator and text[at : at + 1] != "[":
        return error_at(f"{operator[1]} needs an interval such as <=10 or [2,5]: every formula is bounded", text, at)
    wanted = ", ".join(sorted({_in_words(word) for word in expected or ()})[:8])
    return error_at(f"{found}; expected {wanted}" if wanted else found, text, at)


def _in_words(terminal: str) -> str:
    return WORDS.get(terminal) or f"'{grammar().get_terminal(terminal).pattern.value}'"


def _check_shape(formula: Formula, text: str) -> None:
    """Raise FormulaError for mistakes that the grammar alone does not exclude."""
    level: list[tuple[Formula, bool]] = [(formula, False)]
    depth = nodes = 0
    while level:
        depth, nodes = depth + 1, nodes + len(level)
        if depth > MAX_DEPTH:
            raise error_at(f"nested deeper than {MAX_DEPTH}", text, 0)
        if nodes > MAX_PARTS:
            raise error_at(f"more than {MAX_PARTS} parts once written out (each <=> doubles its operands)", text, 0)
        deeper: list[tuple[Formula, bool]] = []
        for node, inside in level:
            _check_node(node, text, inside=inside)
            deeper += [(child, inside or isinstance(node, Goal)) for child in children(node)]
        level = deeper


def _check_node(node: Formula, text: str, *, inside: bool) -> None:
    match node:
        case Goal(WorldRef(change, baseline)) | Regret(WorldRef(change, baseline)):
            for each in (change, *([] if baseline is None else [baseline])):
                if each.decides and (problem := _undecidable(node, each, inside=inside)):
                    raise error_at(problem, text, each.at)
        case _:
            pass
    match node:
        case Temporal(at=at) if not inside:
            raise error_at("a temporal operator outside the brackets of P; write P=? [ ... ] around it", text, at)
        case Goal(WorldRef(_, None, _), Probability(), Test(_, bound, at)) if not 0.0 <= bound <= 1.0:
            raise error_at(f"{bound:g} is not a probability: it must lie in [0, 1]", text, at)
        case Goal(WorldRef(), Probability(), Test(_, bound, at)) if not -1.0 <= bound <= 1.0:
            raise error_at(f"{bound:g} is not an effect on a probability: it must lie in [-1, 1]", text, at)
        case Regret(WorldRef(change, baseline, _), _) if baseline is not None or change.kind == "nominal":
            problem = "regret compares nominal with one alternative, such as fallback@5"
            raise error_at(problem, text, text.find("regret"))
        case _:
            pass


def _undecidable(node: Goal | Regret, change: InterventionRef, *, inside: bool) -> str:
    """Return why `change`, such as `best`, cannot decide for a goal; empty if it can."""
    word, goal = change.name, node if isinstance(node, Goal) else node.goal
    if inside:
        return f"{word} decides for a whole goal, so it may not stand inside the brackets of P"
    if isinstance(goal.measure, Probability) and any(nested_goals(goal.measure.path)):
        return f"{word} cannot decide for a goal with another P or R nested inside its brackets"
    if word in ("max", "min"):
        return ""
    if node.world.baseline is not None:
        return f"{word} decides for one goal, and delta has two values; say max or min"
    if goal.test is None:
        return f"{word} serves a comparison such as P>=0.9; for =? say max or min"
    return ""
