"""The published alert: the keys that are promised, and JSON that every reader takes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from msgspec.structs import replace

from monitor.alarm.figures import Stance, figures_of
from monitor.alarm.message import Identity, alert_id, alert_payload, identity_of, refreshed_payload, rfc3339
from monitor.logic import parse
from monitor.model.mdp import MDP
from monitor.model.npz import model_sha256
from monitor.policy.table import PolicyTable
from monitor.types import AlarmState, Alert, BlindReason, Episode, FormulaSpec, Handover, Verdict

KEYS = [
    "v", "id", "revision", "state", "blind", "severity", "agent", "formula", "outcome", "value", "threshold",
    "alternative", "method", "effect", "bounds", "robust", "profile", "handover", "fired", "episode", "seq", "time",
    "time_unix", "since", "since_unix", "late", "sent", "sent_unix", "model", "policies", "evidence", "summary",
    "details", "runbook", "recourse",
]  # fmt: skip


def test_instructions_are_published_if_there_are_any(regret: Alert, identity: Identity) -> None:
    told = replace(regret, instructions="Call 4711.")
    assert json.loads(alert_payload(told, identity, sent=0.0, evidence=None))["instructions"] == "Call 4711."


def test_a_regret_alert_has_the_promised_keys_in_order(regret: Alert, identity: Identity) -> None:
    payload = json.loads(alert_payload(regret, identity, sent=1_700_000_004.0, evidence="e" * 32))
    assert list(payload) == KEYS
    assert payload["v"] == 1
    verdict = regret.verdict
    nominal, alternative = verdict.profile[2]
    assert payload["agent"] == "robot-7"
    assert payload["formula"] == {"name": "watch", "text": regret.text}
    assert verdict.bounds is not None
    other = {"name": "careful", "value": alternative, "bounds": list(verdict.bounds)}
    assert (payload["outcome"], payload["value"], payload["alternative"]) == ("regret", nominal, other)
    assert payload["threshold"] == {"comparison": ">=", "bound": 0.8}
    assert payload["effect"] == verdict.effect == alternative - nominal
    assert payload["bounds"] == [nominal, nominal]  # what the agent's own policy gives is no matter of causal models
    assert payload["robust"] == verdict.robust
    assert payload["profile"] == [
        {"offset": offset, "nominal": verdict.profile[offset][0], "alternative": verdict.profile[offset][1]}
        for offset in (0, 1, 2)
    ]
    assert payload["handover"] == {"policy": "careful", "helps_now": True, "latest_useful": 0}
    assert payload["fired"] == {
        "outcome": "regret",
        "value": nominal,
        "alternative": other,
        "seq": 3,
        "time": "2023-11-14T22:13:23.500Z",
        "time_unix": 1_700_000_003.5,
    }
    assert payload["model"] == {"name": "road", "sha256": identity.model_sha256}
    assert payload["policies"] == [
        {"name": "careful", "sha256": "b" * 64},
        {"name": "nominal", "sha256": "a" * 64},
    ]
    assert payload["evidence"] == {"id": "e" * 32, "path": f"/evidence/{'e' * 32}"}
    assert (payload["sent"], payload["sent_unix"]) == ("2023-11-14T22:13:24.000Z", 1_700_000_004.0)
    assert (payload["time"], payload["time_unix"]) == ("2023-11-14T22:13:23.500Z", 1_700_000_003.5)
    assert (payload["since"], payload["since_unix"], payload["blind"]) == (payload["time"], 1_700_000_003.5, None)
    assert json.loads(json.dumps(payload, allow_nan=False)) == payload


@pytest.mark.parametrize(
    "seconds", [0.0, 0.5, 1_795_259_763.7, 1_700_000_003.9996, -62_135_596_800.0, -1.25, 253_402_300_799.0]
)
def test_a_time_is_written_as_a_date_of_rfc_3339(seconds: float) -> None:
    told = rfc3339(seconds)
    assert told is not None
    assert told.endswith("Z")
    assert datetime.fromisoformat(told).timestamp() == pytest.approx(seconds, abs=0.0005)
    assert len(told) == len("2026-11-21T11:16:03.700Z")


def test_the_last_millisecond_that_has_a_date_is_the_one_before_the_year_10000() -> None:
    assert rfc3339(253_402_300_799.9994) == "9999-12-31T23:59:59.999Z"
    assert rfc3339(253_402_300_799.9995) is None


@pytest.mark.parametrize(
    "seconds", [float("nan"), float("inf"), -float("inf"), 1e300, 253_402_300_800.0, -1e12, -62_135_596_800.5]
)
def test_a_time_that_is_no_date_is_null(seconds: float, regret: Alert, identity: Identity) -> None:
    payload = json.loads(alert_payload(replace(regret, time=seconds), identity, sent=0.0, evidence=None))
    assert payload["time"] is None
    assert payload["time_unix"] == (seconds if abs(seconds) < float("inf") else None)


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
    payload = json.loads(alert_payload(alert, identity, sent=0.0, evidence=None))
    assert payload["value"] == (alert.verdict.quantities[0].value if value else None)
    assert payload["threshold"] == (None if threshold is None else {"comparison": ">=", "bound": threshold})
    assert (payload["alternative"], payload["handover"], payload["effect"]) == (None, None, None)
    assert (payload["profile"], payload["outcome"], payload["evidence"]) == ([], None, None)


def test_a_number_that_is_none_is_null_and_never_nan(regret: Alert, identity: Identity) -> None:
    nan, infinite = float("nan"), float("inf")
    verdict = replace(regret.verdict, effect=nan, profile={0: (nan, 0.5)})
    figures = replace(regret.figures, value=nan, bounds=(-infinite, 0.5))
    alert = replace(regret, verdict=verdict, figures=figures)
    payload = json.loads(alert_payload(alert, identity, sent=nan, evidence=None), parse_constant=pytest.fail)
    assert (payload["effect"], payload["bounds"], payload["sent_unix"]) == (None, [None, 0.5], None)
    assert (payload["value"], payload["sent"]) == (None, None)
    assert payload["profile"] == [{"offset": 0, "nominal": None, "alternative": 0.5}]


def test_a_number_of_numpy_is_a_number(regret: Alert, identity: Identity) -> None:
    assert regret.verdict.effect is not None
    verdict = replace(regret.verdict, effect=np.float64(regret.verdict.effect), robust=np.bool_(regret.verdict.robust))
    content = alert_payload(
        replace(regret, seq=np.int64(regret.seq), verdict=verdict), identity, sent=0.0, evidence=None
    )
    assert content == alert_payload(regret, identity, sent=0.0, evidence=None)


def test_a_regret_without_quantities_still_has_a_payload(regret: Alert, identity: Identity) -> None:
    verdict = Verdict("f", "exact", "gumbel", (), outcome="undecided")
    bare = replace(regret, verdict=verdict, figures=figures_of(parse(regret.text), verdict))
    payload = json.loads(alert_payload(bare, identity, sent=0.0, evidence=None))
    assert (payload["value"], payload["bounds"]) == (None, None)
    assert payload["alternative"] == {"name": "careful", "value": None, "bounds": None}
    assert payload["handover"] == {"policy": "careful", "helps_now": None, "latest_useful": None}


@pytest.mark.parametrize("state", ["resolved", "ended", "removed"])
def test_only_a_firing_alarm_advises(regret: Alert, state: AlarmState) -> None:
    formula = parse(regret.text)
    assert figures_of(formula, regret.verdict, state=state).handover is None
    assert figures_of(formula, regret.verdict, state="firing").handover == Handover("careful", True, 0)  # noqa: FBT003 - a field


@pytest.mark.parametrize("blind", get_args(BlindReason))
def test_who_is_blind_knows_of_no_help_now(regret: Alert, blind: BlindReason) -> None:
    told = figures_of(parse(regret.text), regret.verdict, blind=blind).handover
    assert told is not None
    assert told.helps_now is (True if blind == "model_doubt" else None)


@pytest.mark.parametrize(
    ("world", "policy"),
    [("careful@2", "careful"), ("careful[3]@2", "careful[3]"), ("do(1)@2", "do(1)"), ("model:icy@2", None)],
)
def test_what_one_hands_over_to_is_in_the_words_of_the_formula(regret: Alert, world: str, policy: str | None) -> None:
    figures = figures_of(parse(f"regret({world}, P>=0.8 [ F<=4 true ])"), regret.verdict)
    assert (figures.handover.policy if figures.handover else None) == policy
    assert figures.alternative is not None
    assert figures.alternative.name == world.removesuffix("@2")


STANCE = Stance("regret", None, True, None, 0.5)  # noqa: FBT003 - fields


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({}, False),
        ({"value": 0.549}, False),
        ({"value": 0.451}, False),
        ({"value": 0.5501}, True),
        ({"value": 0.4499}, True),
        ({"value": None}, True),
        ({"outcome": "unavoidable"}, True),
        ({"helps_now": False}, True),
        ({"helps_now": None}, True),
        ({"robust": False}, True),
        ({"holds": False}, True),
    ],
)
def test_what_is_news(change: dict[str, object], *, news: bool) -> None:
    other = replace(STANCE, **change)
    assert (other.differs(STANCE, 0.05), STANCE.differs(other, 0.05)) == (news, news)


def test_what_a_newer_verdict_says_stands_in_the_alert_under_its_revision(regret: Alert, identity: Identity) -> None:
    published = json.loads(alert_payload(regret, identity, sent=5.0, evidence="e" * 32))
    figures = replace(regret.figures, value=0.75, handover=Handover("careful", False, 1))  # noqa: FBT003 - a field
    newer = replace(regret, figures=figures, seq=9, time=7.0, late=True, summary="newer")
    shown = refreshed_payload(published, newer)
    assert list(shown) == KEYS
    changed = {key for key in KEYS if shown[key] != published[key]}
    assert changed == {"value", "handover", "seq", "time", "time_unix", "late", "summary"}
    assert shown == json.loads(alert_payload(newer, identity, sent=5.0, evidence="e" * 32))


def test_an_id_is_the_hash_of_what_makes_the_alarm(identity: Identity) -> None:
    formula = FormulaSpec("watch", 'P>=0.9 [ F<=4 "é" ]')
    identity = replace(identity, models={"b": "2" * 64, "a": "1" * 64})
    parts = [
        ["a", "é", 5],
        ["watch", formula.text, formula.causal_model],
        [identity.model_sha256, [["careful", "b" * 64], ["nominal", "a" * 64]], [["a", "1" * 64], ["b", "2" * 64]]],
    ]
    expected = hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()[:32]
    assert alert_id("a", "é", formula, identity, 5) == expected


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


def test_values_are_known_by_what_is_in_them(road: MDP, tables: dict[str, PolicyTable]) -> None:
    identity = identity_of(road, tables, {"icy": road})
    digest = model_sha256(road)
    assert (identity.model_sha256, identity.models, identity.versions) == (digest, {"icy": digest}, {})
    probabilities, actions = tables["nominal"].probabilities, tables["careful"].actions
    assert probabilities is not None
    assert actions is not None
    assert identity.policies == {
        "nominal": hashlib.sha256(probabilities.tobytes()).hexdigest(),
        "careful": hashlib.sha256(actions.tobytes()).hexdigest(),
    }


@pytest.mark.parametrize(
    ("source", "name"),
    [("folder/road.npz", "road.npz"), ("gymnasium: a/b", "gymnasium: a/b"), ("road.npz", "road.npz")],
)
def test_a_model_goes_by_the_name_of_its_file_or_what_it_was_made_from(road: MDP, source: str, name: str) -> None:
    assert identity_of(dataclasses.replace(road, source=source), {}, {}).model_name == name


def test_a_world_is_its_models_and_policies_and_not_their_reader(identity: Identity) -> None:
    assert identity.same_inputs_as(replace(identity, model_name="other", versions={}))
    others: list[dict[str, object]] = [{"model_sha256": "c" * 64}, {"policies": {}}, {"models": {"icy": "c" * 64}}]
    assert not any(identity.same_inputs_as(replace(identity, **other)) for other in others)


def test_a_policy_has_changed_if_another_file_has_its_name(identity: Identity) -> None:
    one = replace(identity, policies={"nominal": "a" * 64, "careful": "b" * 64, "gone": "c" * 64})
    other = replace(identity, policies={"nominal": "a" * 64, "careful": "d" * 64, "new": "e" * 64})
    assert other.changed_policies(one) == one.changed_policies(other) == {"careful"}


def test_an_id_does_not_depend_on_who_computes_it_or_in_which_order(identity: Identity) -> None:
    formula = FormulaSpec("watch", 'P>=0.9 [ F<=4 "home" ]')
    same = Identity("elsewhere", identity.model_sha256, dict(reversed(list(identity.policies.items()))), {})
    assert alert_id("a", 1, formula, same, 5) == alert_id("a", 1, replace(formula, every=7), identity, 5)
