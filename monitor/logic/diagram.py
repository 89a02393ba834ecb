"""Timing diagrams for people who learn or teach the language. They show where on a path a path formula holds."""

from __future__ import annotations

from monitor.errors import FormulaError
from monitor.logic.automaton import FALSE, TRUE, PathAutomaton
from monitor.logic.parser import parse
from monitor.logic.syntax import Goal, Label, Probability


def timing(path_formula: str, **labels: str) -> str:
    """Draw where a path formula holds on a sequence of states. A label is given as `#` (holds) and `.` (does not hold).

    There is one line for each label, and one for the formula. At each offset the formula's line has `#` if the path
    from there on satisfies the formula, `.` if not, and `?` if the given states do not decide it. Raises FormulaError
    for a formula with other labels or with nested quantities, and ValueError for sequences of different lengths.

    >>> print(timing('"a" U[1,3] "b"', a="##.#", b="..#."))
    offset         0 1 2 3
    "a"            # # . #
    "b"            . . # .
    "a" U[1,3] "b" # # . ?
    """
    wrapper = parse(f"P=? [ {path_formula} ]")
    assert isinstance(wrapper, Goal)
    assert isinstance(wrapper.measure, Probability)
    automaton = PathAutomaton(wrapper.measure.path)
    length = len(next(iter(labels.values()), ""))
    if any(len(sequence) != length for sequence in labels.values()):
        raise ValueError("every label needs the same number of states")
    masks = [_label_set(automaton, path_formula, labels, offset) for offset in range(length)]
    rows = [("offset", "".join(str(offset % 10) for offset in range(length)))]
    rows += [(f'"{name}"', sequence) for name, sequence in labels.items()]
    rows.append((path_formula, "".join(_truth(automaton, masks[offset:]) for offset in range(length))))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}} {' '.join(marks)}" for name, marks in rows)


def _label_set(automaton: PathAutomaton, text: str, labels: dict[str, str], offset: int) -> int:
    mask = 0
    for bit, atom in enumerate(automaton.atoms):
        if not isinstance(atom, Label) or atom.name not in labels:
            raise FormulaError("a diagram needs a sequence for every label, and nothing nested", text, 1, 1)
        mask |= (labels[atom.name][offset] == "#") << bit
    return mask


def _truth(automaton: PathAutomaton, masks: list[int]) -> str:
    obligation = automaton.start
    for mask in masks:
        obligation = automaton.step(obligation, mask)
    return {FALSE: ".", TRUE: "#"}.get(obligation, "?")
