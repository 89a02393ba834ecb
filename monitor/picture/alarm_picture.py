"""The picture of an alarm, whichever kind of model it is on."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.alarm.summary import Told
from monitor.errors import ConfigError
from monitor.evaluation.models import AnyModel
from monitor.evidence.document import Evidence
from monitor.evidence.rederivation import Policies
from monitor.logic import parse
from monitor.model import MDP
from monitor.picture.draw import draw
from monitor.picture.explanation import explain, told_of
from monitor.picture.numbers import draw_numbers
from monitor.policy.controller import is_hidden
from monitor.policy.table import PolicyTable


def draw_alarm(
    evidence: Evidence, model: AnyModel, policies: Policies, models: Mapping[str, AnyModel]
) -> tuple[str, Told]:
    """Return the picture as an SVG document, and the sentences in it.

    Errors as for `explain` and `draw_numbers`; ConfigError where states are hidden.
    """
    told = told_of(evidence, parse(evidence.text))
    if not isinstance(model, MDP):
        return draw_numbers(evidence, model, policies, models), told
    if is_hidden(model, policies):
        raise ConfigError("an alarm is drawn where states are seen and policies do not remember; its sentences say all")
    tables = {name: each for name, each in policies.items() if isinstance(each, PolicyTable)}
    others = {name: each for name, each in models.items() if isinstance(each, MDP)}
    return draw(explain(evidence, model, tables, others), model), told
