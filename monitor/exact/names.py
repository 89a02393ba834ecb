"""Check the names in a formula: labels, policies, actions, models. Errors show the place and the closest name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import assert_never

import numpy as np

from monitor.errors import FormulaError, InputError
from monitor.logic.parser import error_at
from monitor.logic.syntax import Formula, Goal, InterventionRef, Label, Regret
from monitor.logic.traversal import subformulas
from monitor.model import MDP, encode_action_text


def validate(
    formula: Formula,
    model: MDP,
    policies: Collection[str],
    text: str,
    models: Mapping[str, MDP] | None = None,
) -> None:
    """Raise FormulaError at the first name that is unknown in the model, the policies and the other models."""
    _NameCheck(model, policies, models or {}, text).check(formula)


class _NameCheck:
    def __init__(self, model: MDP, policies: Collection[str], models: Mapping[str, MDP], text: str) -> None:
        self.model, self.policies, self.models, self.text = model, policies, models, text

    def check(self, formula: Formula) -> None:
        for node in subformulas(formula):
            match node:
                case Label(name, at):
                    self._known(name, self.model.labels, "label", at)
                case Goal(world) | Regret(world):
                    for change in (world.change, world.baseline):
                        if change is not None:
                            self._change(change)
                case _:
                    pass

    def _change(self, change: InterventionRef) -> None:
        match change.kind:
            case "nominal" | "best" | "optimal":
                pass
            case "policy":
                self._known(change.name, [p for p in self.policies if p != "nominal"], "policy", change.at)
            case "model":
                self._known(change.name, self.models, "model", change.at)
            case "action":
                self._action(change)
            case _:
                assert_never(change.kind)

    def _action(self, change: InterventionRef) -> None:
        try:
            action = encode_action_text(self.model, change.name)
        except InputError:
            names = self.model.action_names or [str(a) for a in range(self.model.actions)]
            raise self._unknown(change.name, names, "action", change.at) from None
        without = np.flatnonzero(~self.model.availability[:, action])
        if len(without):
            where = f"{len(without)} states, first in {without[0]}"
            problem = f"do({change.name}) is impossible: the action is unavailable in {where}"
            raise self._error(problem, change.at)

    def _known(self, name: str, known: Collection[str], what: str, at: int) -> None:
        if name not in known:
            raise self._unknown(name, known, what, at)

    def _unknown(self, name: str, known: Collection[str], what: str, at: int) -> FormulaError:
        close = get_close_matches(name, list(known), n=1)
        if close:
            hint = f"did you mean {close[0]!r}?"
        else:
            hint = f"there is {', '.join(sorted(known)[:10])}" if known else f"there is no {what}"
        return self._error(f"unknown {what} {name!r}; {hint}", at)

    def _error(self, problem: str, at: int) -> FormulaError:
        return error_at(problem, self.text, at)
