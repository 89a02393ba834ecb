"""Which parts of the language and of the setting a question uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from tests.oracle import syntax as ast
from tests.oracle.evaluate import Evaluator, looks_back, resolve
from tests.truth.generate import Case


def features(evaluator: Evaluator, case: Case) -> set[str]:
    """Return the names of the features of a question."""
    formula = evaluator.parser.parse(case.formula)
    setting = case.setting
    parts = list(_parts(formula))
    worlds = [part for part in parts if isinstance(part, ast.World)]
    changes = [part for part in parts if isinstance(part, ast.Change)]
    quantities = [part for part in parts if isinstance(part, ast.Prob | ast.Reward)]
    inner = [part for q in quantities if isinstance(q, ast.Prob) for part in _parts(q.body)]
    used = {change.name for change in changes if change.kind == "policy"} | {"nominal"}
    length = len(setting.path)
    present = {
        "nested": any(isinstance(part, ast.Compare) for part in inner),
        "look-back": any(isinstance(q, ast.Prob) and looks_back(q.body) for q in quantities),
        "delta": any(world.baseline is not None for world in worlds),
        "reward": any(isinstance(q, ast.Reward) for q in quantities),
        "transition reward": any(isinstance(q, ast.Reward) for q in quantities) and bool(setting.transition_rewards),
        "regret": isinstance(formula, ast.Regret),
        "handover": "handover" in case.formula,
        "number": isinstance(formula, ast.Ask),
        "ended": setting.terminated,
        "stochastic": any(len(dist) > 1 for name in used for dist in setting.policies[name]),
        "model": any(change.kind == "model" for change in changes),
        "do": any(change.kind == "do" for change in changes),
        "takeover": any(change.length is not None for change in changes),
        "clipped": any(resolve(world.offset, length)[0] != world.offset for world in worlds),
        "missing action": setting.path[-1][1] is None,
        "another acted": any(name != "nominal" for name in setting.acted),
        "bounds": case.causal_model != "gumbel",
    }
    return {name for name, here in present.items() if here}


def _parts(node: object) -> Iterator[object]:
    """Yield a node and everything in it."""
    yield node
    if isinstance(node, ast.Regret):
        yield from _parts(node.under)
    elif hasattr(node, "__dataclass_fields__"):
        for each in fields(node):  # type: ignore[arg-type] # an instance, as the line above saw
            yield from _parts(getattr(node, each.name))
