"""Words for sentences: interventions and numbers. Numbers have as many decimals as are needed to distinguish them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from monitor.logic.syntax import Comparison, InterventionRef
from monitor.types.notices import Departing, WrongRow
from monitor.types.verdicts import RestsOn

MOST_DECIMALS = 12
"""Maximum number of decimals shown. Numbers that differ only in later decimals are equal for a verdict too."""
LARGE = 1e7
"""Numbers from this size on are shown with a power of ten."""

NOUN: Final = {
    "nominal": "'nominal'",
    "policy": "'{}'",
    "action": "action {}",
    "model": "model '{}'",
    "optimal": "the optimal policy",
}
DO: Final = {"policy": "Hand over to {}", "action": "Take {}", "best": "Act optimally", "optimal": "Act optimally"}
DOING: Final = {
    "policy": "handing over to {}",
    "action": "taking {}",
    "best": "acting optimally",
    "optimal": "acting optimally",
}
ACTING: Final = {
    "policy": "handing over",
    "action": "taking it",
    "best": "acting optimally",
    "optimal": "acting optimally",
}
BEEN: Final = {
    "policy": "'{}' taken over",
    "action": "action {} been taken",
    "model": "model '{}' been in force",
    "optimal": "the optimal policy taken over",
}
"""Words for kinds of intervention: as a noun, as an instruction, as a gerund, and after "had". `noun` and `been` give
the words for the other kinds."""

NEEDED: Final[Mapping[Comparison, str]] = {"<": "less than", "<=": "at most", ">=": "at least", ">": "more than"}


def noun(change: InterventionRef, *, hindsight: bool = True) -> str:
    """Return an intervention as a noun.

    `hindsight`: whether decisions made for the goal use knowledge of later transitions.
    """
    known = " in hindsight" * hindsight
    if change.limit is not None:
        return f"at most {_decisions(change.limit)} changed{_towards(change)}{known}"
    if _towards(change):
        return f"decisions{_towards(change)}{known}{_lasting(change)}"
    if change.kind == "best":
        return f"the best decisions{known}{_lasting(change)}"
    return NOUN[change.kind].format(change.name) + _lasting(change)


def been(change: InterventionRef, *, hindsight: bool = True) -> str:
    """Return an intervention in the form that follows "had". `hindsight`: as in `noun`."""
    known = " in hindsight" * hindsight
    if change.limit is not None:
        towards = _towards(change) or " for the better"
        return f"at most {_decisions(change.limit)} been changed{towards}{known}, starting"
    if _towards(change):
        return f"every decision been the one{_towards(change)}{known}{_lasting(change)}, starting"
    if change.kind == "best":
        return f"every decision been the best{known}{_lasting(change)}, starting"
    return BEEN[change.kind].format(change.name) + _lasting(change)


def _towards(change: InterventionRef) -> str:
    """Return the purpose of the decisions of `max` and `min`; empty for other interventions."""
    match change.name:
        case "max" | "min" if change.decides:
            return f" for the {'largest' if change.largest else 'smallest'} value"
        case _:
            return ""


def _lasting(change: InterventionRef) -> str:
    return "" if change.steps is None else f" for {steps(change.steps)}"


def _decisions(count: int) -> str:
    return f"{count} decision" if count == 1 else f"{count} decisions"


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[0].upper() + text[1:]


def steps(count: float) -> str:
    """Return a number of steps in words. The number may be a fraction, for example a median.

    >>> steps(1), steps(2.0), steps(2.5)
    ('1 step', '2 steps', '2.5 steps')
    """
    shown = f"{count:g}" if isinstance(count, float) else f"{count}"
    return f"{shown} step{'' if count == 1 else 's'}"


def basis_text(basis: RestsOn) -> str:
    """Return the recorded support of a value, as words that follow "rests on".

    >>> basis_text(RestsOn(1204, rare=0.031, never=0.0))
    '1,204 recorded steps, 3.1 % of its steps are ones recorded fewer than 5 times'
    >>> basis_text(RestsOn(1204, rare=0.0, never=0.004))
    '1,204 recorded steps, 0.4 % of its paths take an action that was never recorded in that state'
    >>> basis_text(RestsOn(1, rare=0.0, never=0.0)), basis_text(RestsOn(900, rare=None, never=0.5))
    ('1 recorded step', '900 recorded steps, 50 % of its paths go beyond them')
    """
    said = [f"{f'{basis.steps:,}' if basis.steps else 'no'} recorded step{'' if basis.steps == 1 else 's'}"]
    if basis.rare:
        said.append(f"{percent(basis.rare)} of its steps are ones recorded fewer than 5 times")
    if basis.never > 0.0:
        where = "go beyond them" if basis.rare is None else "take an action that was never recorded in that state"
        said.append(f"{percent(basis.never)} of its paths {where}")
    return ", ".join(said)


def bases_text(bases: Mapping[str, RestsOn]) -> list[str]:
    """Return a sentence on the recorded support of each value. `bases`: intervention as text -> support."""
    return [f"{name!r} rests on {basis_text(basis)}" for name, basis in bases.items()]


def percent(fraction: float) -> str:
    """Return a fraction in percent with two digits. Only 0 and 1 are shown as 0 % and 100 %.

    >>> [percent(fraction) for fraction in (0.0, 0.00001, 0.004, 0.125, 0.9999, 1.0)]
    ['0 %', 'under 0.1 %', '0.4 %', '12 %', 'over 99 %', '100 %']
    """
    if 0.0 < fraction < 0.001:
        return "under 0.1 %"
    if 0.99 < fraction < 1.0:
        return "over 99 %"
    return f"{100 * fraction:.2g} %" if fraction < 0.99 else "100 %"


def decimals(*values: float, least: int = 2) -> list[str]:
    """Return the numbers with enough decimals to distinguish them, at least `least`; large numbers with enough digits.

    >>> decimals(0.7999, 0.8), decimals(1e300, 2.5), decimals(0.5, least=3)
    (['0.7999', '0.8000'], ['1e+300', '2.5'], ['0.500'])
    """
    return _with_places(values, max(least, places(*values)))


def places(*values: float) -> int:
    """Return the number of decimals that distinguishes the numbers, at least two."""
    for count in range(2, MOST_DECIMALS):
        if len(set(_with_places(values, count))) == len(set(values)):
            return count
    return MOST_DECIMALS


def _with_places(values: tuple[float, ...], count: int) -> list[str]:
    large = any(abs(value) >= LARGE for value in values)
    # z: a number that rounds to zero has no sign
    return [f"{value:.{count + 2}g}" if large else f"{value:z.{count}f}" for value in values]


def shortened(name: str, most: int) -> str:
    """Return a name with at most `most` characters. A longer name keeps both ends, with an ellipsis in between.

    >>> shortened("warehouse-north-agv-0017", 12)
    'wareho…-0017'
    """
    if len(name) <= most:
        return name
    tail = (most - 1) // 2
    return f"{name[: most - 1 - tail]}…{name[len(name) - tail :]}"


def departing_text(departing: Departing) -> str:
    """Return a transition's observed and expected counts as text."""
    d = departing
    return f"({d.state}, {d.action}) -> {d.successor} seen {d.seen} times of {d.of}, expected {d.expected:.1f}"


def wrong_row_text(row: WrongRow) -> str:
    """Return a rejected row of the model, and its deviation from the observations, as text."""
    words = f"state {row.state}, action {row.action}: next state {row.successor} seen {row.seen} times of {row.visits}"
    words += f", the model's probability is {row.probability:.3g}"
    if row.impossible:
        words += f"; {row.impossible} of these steps led where the model gives probability 0"
    return f"{words}; e-value 1e{row.log10_e:.1f}"
