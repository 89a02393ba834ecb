"""The table that compares abstractions."""

from __future__ import annotations

import json
import pickle

from monitor.authoring.learning.abstraction_scores import Scored
from monitor.authoring.learning.model_problem import ModelProblem
from monitor.cli.comparing import HEAD, table_of

THIN = ModelProblem("7% of held-out steps are in thin rows", "; use coarser bins")


def test_the_table_says_the_first_problem_in_brief() -> None:
    unseen = ModelProblem("2.0% of held-out steps lead to a successor that was never seen in their row")
    table = table_of(
        [
            Scored("x:4q", 4, 0.5, 0.002, ()),
            Scored("x:8q", 8, 0.4, 0.001, (THIN,)),
            Scored("x:16q", None, 0.3, 0.0, (unseen, THIN)),
        ]
    )
    assert [row[HEAD.index("judgement")] for row in table] == [
        "good enough",
        "7% of held-out steps are in thin rows",
        "2.0% of held-out steps lead to a successor that was never seen in their row (and 1 more)",
    ]
    assert [row[HEAD.index("states")] for row in table] == ["4", "8", "-"]


def test_a_problem_is_its_whole_text() -> None:
    assert json.dumps([THIN]) == '["7% of held-out steps are in thin rows; use coarser bins"]'
    again = pickle.loads(pickle.dumps(THIN))
    assert (again, again.brief) == (THIN, THIN.brief)
