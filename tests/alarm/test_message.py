"""The published alert: the keys that are promised, and JSON that every reader takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations

import pytest
from msgspec.structs import replace

from monitor.alarm.message import Identity, alert_id, alert_payload
from monitor.types import Alert, Episode, FormulaSpec, Verdict

KEYS = [
    "v", "id", "revision", "state", "blind", "severity", "formula", "outcome", "value", "threshold", "method", "effect",
    "bounds", "robust", "profile", "episode", "seq", "time", "since", "late", "sent", "model", "policies",
    "evidence", "summary", "runbook",
]  # fmt: skip


def test_a_regret_alert_has_the_promised_keys_in_order(regret: Alert, identity: Identity) -> None:
    payload = alert_payload(regret, identity, sent=1_700_000_004.0, evidence="e" * 32)
    assert list(payload) == KEYS
    verdict = regret.verdict
    nominal, alternative = verdict.profile[2]
    assert payload["formula"] == {"name": "watch", "text": regret.text}
    assert (payload["outcome"], payload["value"], payload["threshold"]) == ("regret", alternative, 0.8)
    assert payload["effect"] == verdict.effect == alternative - nominal
    assert verdict.bounds is not None
    assert payload["bounds"] == list(verdict.bounds)
    assert payload["robust"] == verdict.robust
    assert payload["profile"] == [
        {"offset": offset, "nominal": verdict.profile[offset][0], "alternative": verdict.profile[offset][1]}
        for offset in (0, 1, 2)
    ]
    assert payload["model"] == {"name": "road", "sha256": identity.model_sha256}
    assert payload["policies"] == [
        {"name": "careful", "sha256": "b" * 64},
        {"name": "nominal", "sha256": "a" * 64},
    ]
    assert (payload["sent"], payload["evidence"], payload["blind"]) == (1_700_000_004.0, "e" * 32, None)
    assert json.loads(json.dumps(payload, allow_nan=False)) == payload


@pytest.mark.parametrize(
    ("text", "value", "threshold"),
    [
        ('P>=0.99 [ G<=4 !"crash" ]', True, 0.99),
        ('P=? [ G<=4 !"crash" ]', True, None),
        ('!"crash"', False, None),
        ('P>=0.99 [ G<=4 !"crash" ] | P>=0.5 [ F<=4 "home" ]', False, None),
    ],
)
def test_value_and_threshold_are_those_of_the_one_quantity_if_there_is_one(
    raise_alert: Callable[..., Alert], identity: Identity, text: str, *, value: bool, threshold: float | None
) -> None:
    alert = raise_alert(text)
    payload = alert_payload(alert, identity, sent=0.0, evidence=None)
    assert payload["value"] == (alert.verdict.quantities[0].value if value else None)
    assert payload["threshold"] == threshold
    assert (payload["profile"], payload["outcome"], payload["evidence"]) == ([], None, None)


def test_a_number_that_is_none_is_null_and_never_nan(regret: Alert, identity: Identity) -> None:
    nan, infinite = float("nan"), float("inf")
    verdict = replace(regret.verdict, effect=nan, bounds=(-infinite, 0.5), profile={0: (nan, 0.5)})
    payload = alert_payload(replace(regret, verdict=verdict), identity, sent=nan, evidence=None)
    assert (payload["effect"], payload["bounds"], payload["sent"]) == (None, [None, 0.5], None)
    assert payload["profile"] == [{"offset": 0, "nominal": None, "alternative": 0.5}]
    assert "NaN" not in json.dumps(payload, allow_nan=False)


def test_a_regret_without_quantities_still_has_a_payload(regret: Alert, identity: Identity) -> None:
    bare = replace(regret, verdict=Verdict("f", "exact", "gumbel", (), outcome="undecided"))
    payload = alert_payload(bare, identity, sent=0.0, evidence=None)
    assert (payload["value"], payload["threshold"], payload["bounds"]) == (None, None, None)


def test_an_id_tells_alarms_apart_by_everything_that_makes_them(identity: Identity) -> None:
    formula = FormulaSpec("watch", 'P>=0.9 [ F<=4 "home" ]')
    episodes: list[Episode] = [1, "1", 2, "1,2"]
    ids = [
        *(alert_id("a", episode, formula, identity, 5) for episode in episodes),
        alert_id("b", 1, formula, identity, 5),
        alert_id("a", 1, formula, identity, 6),
        alert_id("a", 1, replace(formula, name="other"), identity, 5),
        alert_id("a", 1, replace(formula, text="true"), identity, 5),
        alert_id("a", 1, replace(formula, causal_model="any"), identity, 5),
        alert_id("a", 1, formula, replace(identity, model_sha256="c" * 64), 5),
        alert_id("a", 1, formula, replace(identity, policies={"nominal": "c" * 64, "careful": "b" * 64}), 5),
        alert_id("\u00e9", 1, formula, identity, 5),
    ]
    assert all(one != other for one, other in combinations(ids, 2))
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


def test_an_id_does_not_depend_on_who_computes_it_or_in_which_order(identity: Identity) -> None:
    formula = FormulaSpec("watch", 'P>=0.9 [ F<=4 "home" ]')
    same = Identity("elsewhere", identity.model_sha256, dict(reversed(list(identity.policies.items()))), {})
    assert alert_id("a", 1, formula, same, 5) == alert_id("a", 1, replace(formula, every=7), identity, 5)
