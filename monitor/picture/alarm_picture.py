"""The picture of an alarm on a model of any kind."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.alarm.summary import Told
from monitor.evaluation.models import AnyModel
from monitor.evidence.document import Evidence
from monitor.evidence.rederivation import Policies
from monitor.logic import parse
from monitor.model import MDP
from monitor.picture.beliefs import draw_beliefs
from monitor.picture.draw import draw
from monitor.picture.explanation import explain, told_of
from monitor.picture.numbers import draw_numbers
from monitor.policy.controller import is_hidden
from monitor.policy.table import PolicyTable


def draw_alarm(
    evidence: Evidence, model: AnyModel, policies: Policies, models: Mapping[str, AnyModel]
) -> tuple[str, Told]:
    """Return the picture as an SVG document, and its sentences.

    Errors are those of `explain`, `draw_numbers` and `draw_beliefs`.
    """
    told = told_of(evidence, parse(evidence.text))
    if not isinstance(model, MDP):
        return draw_numbers(evidence, model, policies, models), told
    others = {name: each for name, each in models.items() if isinstance(each, MDP)}
    if is_hidden(model, policies):
        return draw_beliefs(evidence, model, policies, others), told
    tables = {name: each for name, each in policies.items() if isinstance(each, PolicyTable)}
    return draw(explain(evidence, model, tables, others), model), told
