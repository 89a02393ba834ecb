"""The state machine of a takeover: every state, situation and rule, and what makes a situation."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from cfmon_client.alert import Alert, read_alert
from cfmon_client.takeover_logic import NOBODY, Cause, Current, Held, Known, Situation, situation, step
from cfmon_client.takeover_rules import Back, OnFailure, Rules

from tests.client.test_alert import example

FAILURES: Sequence[OnFailure] = get_args(OnFailure)
BACKS: Sequence[Back] = get_args(Back)
HOLD = 3

QUIET = Situation()
FIRING = Situation(firing=True)
WANTED = Situation(wanted="brake", firing=True)
BLIND = Situation(firing=True, blind=True)
BLIND_AND_WANTED = Situation(wanted="brake", firing=True, blind=True)
SILENT = Situation(silent=True)
SILENT_AND_WANTED = Situation(wanted="brake", firing=True, silent=True)
SILENT_AND_BLIND = Situation(firing=True, blind=True, silent=True)

N, A, B, S = "nominal", "alarm", "blind", "silent"
KEEPS = "keeps"
NEXT: dict[Situation, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    # the agent's own policy acts       | a takeover below `hold`  | a takeover of `hold` steps or more
    QUIET: ({"": N}, {"": KEEPS}, {"resolved": N, "episode": KEEPS, "never": KEEPS}),
    FIRING: ({"": N}, {"": KEEPS}, {"": KEEPS}),
    WANTED: ({"": A}, {"": KEEPS}, {"": KEEPS}),
    BLIND: ({"blind: carry_on": N, "blind: fallback": B}, {"": KEEPS}, {"": KEEPS}),
    BLIND_AND_WANTED: ({"": A}, {"": KEEPS}, {"": KEEPS}),
    SILENT: ({"silent: carry_on": N, "silent: fallback": S}, {"": KEEPS}, {"": KEEPS}),
    SILENT_AND_WANTED: ({"silent: carry_on": N, "silent: fallback": S}, {"": KEEPS}, {"": KEEPS}),
    SILENT_AND_BLIND: ({"silent: carry_on": N, "silent: fallback": S}, {"": KEEPS}, {"": KEEPS}),
}
"""Situation -> the next state from each state, by the rule that matters; `keeps`: the takeover goes on."""


def expected(cell: dict[str, str], rules: Rules) -> str:
    [found] = {
        following
        for rule, following in cell.items()
        if rule in {"", rules.back, f"blind: {rules.when_blind}", f"silent: {rules.when_silent}"}
    }
    return found


@pytest.mark.parametrize("now", NEXT, ids=repr)
@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("when_silent", FAILURES)
@pytest.mark.parametrize("when_blind", FAILURES)
def test_every_state_in_every_situation_under_every_rule(
    when_blind: OnFailure, when_silent: OnFailure, back: Back, now: Situation
) -> None:
    rules = Rules(when_blind, when_silent, hold=HOLD, back=back)
    nominal, young, old = NEXT[now]
    fresh = {N: NOBODY, A: Held("brake", 1, "alarm"), B: Held("stop", 1, "blind"), S: Held("stop", 1, "silent")}
    assert step(rules, NOBODY, now, "stop") == fresh[expected(nominal, rules)]
    causes: Sequence[Cause] = get_args(Cause)
    for cause, steps in itertools.product(causes, range(1, 2 * HOLD)):
        held = Held("crawl", steps, cause)
        following = expected(young if steps < HOLD else old, rules)
        assert step(rules, held, now, "stop") == (NOBODY if following == N else Held("crawl", steps + 1, cause))


def test_a_takeover_lasts_as_long_as_it_must_and_ends_with_its_alarm() -> None:
    rules, held, acted = Rules("carry_on", "carry_on", hold=3), NOBODY, []
    for now in [QUIET, WANTED, QUIET, QUIET, QUIET, WANTED, FIRING, FIRING, FIRING, QUIET, QUIET]:
        held = step(rules, held, now, "stop")
        acted.append(held.policy)
    brake = "brake"
    assert acted == [None, brake, brake, brake, None, brake, brake, brake, brake, None, None]


def test_a_takeover_in_silence_ends_when_the_monitor_is_back() -> None:
    rules, held, acted = Rules("carry_on", "fallback"), NOBODY, []
    for now in [QUIET, SILENT, SILENT, FIRING, QUIET]:
        held = step(rules, held, now, "stop")
        acted.append((held.policy, held.cause))
    assert acted == [(None, None), ("stop", "silent"), ("stop", "silent"), ("stop", "silent"), (None, None)]


# ---- situations ----

POLICIES = {"fallback", "do(brake)"}


def alert(name: str = "watch", **changes: Any) -> Alert:  # noqa: ANN401 - fields of a message
    document = {**example(), "id": name, "formula": {"name": name, "text": "..."}, **changes}
    return read_alert(json.dumps(document).encode())


def advice(helps: bool | None, policy: str = "fallback") -> dict[str, Any]:  # noqa: FBT001 - a field
    return {"policy": policy, "helps_now": helps, "latest_useful": None}


def seen(*alerts: Alert, now: float = 0.0, current: Current | None = None, **rules: Any) -> Situation:  # noqa: ANN401 - rules
    known = Known(heard=0.0)
    for each in alerts:
        known = known.with_alert(each)
    return situation(Rules("carry_on", "carry_on", **rules), known, current or Current(), POLICIES, now)


@pytest.mark.parametrize(
    ("changes", "rules", "wanted", "firing"),
    [
        ({}, {}, "fallback", True),
        ({"handover": advice(helps=True, policy="do(brake)")}, {}, "do(brake)", True),
        ({"handover": advice(helps=True, policy="fallback[3]")}, {}, None, True),
        ({"handover": None}, {}, None, True),
        ({"handover": None}, {"only_if_helps": False}, None, True),
        ({"handover": advice(helps=False)}, {}, None, True),
        ({"handover": advice(helps=None)}, {}, None, True),
        ({"handover": advice(helps=False)}, {"only_if_helps": False}, "fallback", True),
        ({"handover": advice(helps=None)}, {"only_if_helps": False}, "fallback", True),
        ({"robust": False}, {}, "fallback", True),
        ({"robust": False}, {"only_if_robust": True}, None, True),
        ({"robust": None}, {"only_if_robust": True}, None, True),
        ({"robust": True}, {"only_if_robust": True}, "fallback", True),
        ({"severity": "warning"}, {}, None, False),
        ({"severity": "warning"}, {"severity": ("warning", "critical")}, "fallback", True),
        ({}, {"formulas": ("watch",)}, "fallback", True),
        ({}, {"formulas": ("other",)}, None, False),
        ({"state": "resolved", "handover": None}, {}, None, False),
        ({"state": "ended", "handover": None}, {}, None, False),
        ({"state": "removed", "handover": None}, {}, None, False),
    ],
)
def test_an_alert_wants_a_takeover_if_the_rules_say_so(
    changes: dict[str, Any],
    rules: dict[str, Any],
    wanted: str | None,
    firing: bool,  # noqa: FBT001 - a field
) -> None:
    assert seen(alert(**changes), **rules) == Situation(wanted, firing)


def test_the_first_alarm_whose_policy_is_known_decides() -> None:
    late = alert("a", handover=advice(helps=False))
    unknown = alert("b", handover=advice(helps=True, policy="pilot"))
    brake, fallback = alert("c", handover=advice(helps=True, policy="do(brake)")), alert("d")
    assert seen(fallback, brake, unknown, late).wanted == "do(brake)"


def test_an_alarm_that_closes_wants_nothing_more_and_leaves_the_others() -> None:
    closed = alert("a", state="resolved", handover=None)
    assert seen(alert("a"), closed) == QUIET
    assert seen(alert("a"), alert("b"), closed) == Situation("fallback", firing=True)
    assert seen(closed, alert("a")).firing


@pytest.mark.parametrize("reason", ["gap", "stale", "policy_mismatch", "disconnected", "a new reason"])
def test_a_blind_alarm_is_blind_and_wants_nothing(reason: str) -> None:
    assert seen(alert(blind=reason, handover=advice(helps=None))) == BLIND
    assert seen(alert(blind=reason, severity="info")) == QUIET


def test_a_contradicted_model_still_advises() -> None:
    assert seen(alert(blind="model_doubt")) == Situation("fallback", firing=True)


def test_alarms_of_earlier_episodes_do_not_count() -> None:
    mine = alert(episode="b")
    assert seen(mine, current=Current("b")).firing
    assert seen(mine, current=Current("a")) == QUIET
    assert seen(mine, current=Current(None, frozenset({mine.id}))) == QUIET
    assert seen(mine, current=Current(None, frozenset({"another"}))).firing
    assert seen(alert(episode=7), current=Current(7)).firing
    assert seen(alert(episode="7"), current=Current(7)) == QUIET, "a name is a text or a number, as in the steps"


def test_an_earlier_revision_changes_nothing() -> None:
    """A broker that was killed retains what it saved last; the monitor says so again when it is connected."""
    closed = alert("a", id="x", revision=3, state="resolved", handover=None)
    assert seen(closed, alert("a", id="x", revision=2)) == QUIET
    assert seen(closed, alert("a", id="x", revision=4)).firing
    assert seen(closed, alert("a", id="y", revision=1)).firing, "another alarm"


def test_what_is_retained_is_taken_unless_it_was_sent_before_what_is_known() -> None:
    closed = alert("a", id="x", state="resolved", handover=None, sent_unix=50.0)
    known = Known(heard=0.0).with_alert(closed)
    for retained, sent, fires in ((True, 49.0, False), (True, 51.0, True), (False, 49.0, True), (True, None, False)):
        other = alert("a", id="y", sent_unix=sent)
        assert known.with_alert(other, retained=retained).alerts["a"].firing == fires
    assert Known(heard=0.0).with_alert(alert("a", sent_unix=None), retained=True).alerts["a"].firing


# ---- signs of life ----


def heard_at(*statuses: dict[str, Any], agent: str = "demo", **how: Any) -> float:  # noqa: ANN401 - how they came
    """Return when the monitor was heard last, after statuses that came at 1.0, 2.0, ..."""
    known = Known(heard=0.0)
    for number, status in enumerate(statuses, start=1):
        known = known.with_status(status, agent, float(number), **how)
    return known.heard


def online(sent: object = 7.0, **more: object) -> dict[str, Any]:
    return {"state": "online", "sent_unix": sent, **more}


def test_only_the_status_of_the_agents_own_shard_is_a_sign_of_life() -> None:
    """The agent `ward-3` is in shard 2 of 8, as the page on fleets states it."""
    for shard, heard in (("3/8", 0.0), ("2/8", 1.0), (None, 1.0), ("2/9999999", 1.0), (7, 1.0)):
        assert heard_at(online(shard=shard), agent="ward-3") == heard


def test_what_the_broker_retained_is_no_sign_of_life() -> None:
    assert heard_at(online(7.0), retained=True) == 0.0
    known = Known(heard=0.0).with_status(online(7.0), "demo", 1.0, retained=True)
    assert known.with_status(online(7.0), "demo", 2.0).heard == 0.0, "a bridge repeats it as if it were new"
    assert known.with_status(online(17.0), "demo", 2.0).heard == 2.0


def test_a_status_that_was_heard_before_is_no_sign_of_life() -> None:
    assert heard_at(online(7.0), online(7.0)) == 1.0
    assert heard_at(online(7.0), online(17.0)) == 2.0
    assert heard_at(online(7.0), online(5.0)) == 2.0, "the monitor's clock was set back"
    known = Known(heard=0.0).with_status(online(7.0), "demo", 1.0, topic="cfmon/status/a")
    assert known.with_status(online(7.0), "demo", 2.0, topic="cfmon/status/b").heard == 2.0, "of another monitor"


def test_the_monitors_clock_may_be_hours_off() -> None:
    """Its times are compared with each other, never with ours."""
    assert heard_at(online(-86_400.0), online(-86_390.0)) == 2.0
    assert heard_at(online(4e9), online(4e9 + 10)) == 2.0


@pytest.mark.parametrize("sent", [None, "now", True, [7.0]])
def test_a_status_without_its_time_is_no_sign_of_life(sent: object) -> None:
    assert heard_at(online(sent)) == 0.0


def test_a_retained_status_tells_the_policies_and_not_what_is_blind_now() -> None:
    told = online(policies=[{"name": "nominal", "sha256": "aa"}], blind=1, blind_formulas={"demo": {"watch": "gap"}})
    known = Known(0.0).with_status(told, "demo", 1.0, retained=True)
    assert (dict(known.sha256), known.blind, known.signs) == ({"nominal": "aa"}, frozenset(), 0)


def test_the_monitor_is_silent_when_it_has_not_been_heard_for_too_long() -> None:
    """From its last heartbeat on, so that nobody acts unwatched for longer than `silent_after`."""
    assert [seen(now=now, silent_after=30.0).silent for now in (0.0, 30.0, 30.5)] == [False, False, True]
    rules = Rules("carry_on", "carry_on", silent_after=5.0)
    known = Known(heard=0.0).with_status(online(), "demo", 4.0)
    assert [situation(rules, known, Current(), POLICIES, now).silent for now in (9.0, 9.5)] == [False, True]
    for no_sign in ({"state": "offline"}, {}, {"state": 1}):
        assert known.with_status(no_sign, "demo", 8.0).heard == 4.0


def test_the_policies_digests_are_learned_from_statuses_and_alerts() -> None:
    known = Known(0.0).with_status(online(policies=[{"name": "nominal", "sha256": "aa"}]), "demo", 1.0)
    assert dict(known.sha256) == {"nominal": "aa"}
    both = known.with_alert(alert(policies=[{"name": "nominal", "sha256": "bb"}, {"name": "fallback", "sha256": "cc"}]))
    assert dict(both.sha256) == {"nominal": "bb", "fallback": "cc"}
    odd_ones: list[object] = [None, 1, {}, [1], [{}], [{"name": 1, "sha256": "aa"}], [{"name": "x", "sha256": None}]]
    for odd in odd_ones:
        assert dict(known.with_status(online(policies=odd), "demo", 2.0).sha256) == {"nominal": "aa"}


def blind_by(rules: dict[str, Any], **status: object) -> bool:
    known = Known(0.0).with_status(online(**status), "demo", 0.0)
    return situation(Rules("carry_on", "carry_on", **rules), known, Current(), POLICIES, 0.0).blind


@pytest.mark.parametrize(
    ("status", "rules", "blind"),
    [
        ({}, {}, False),
        ({"blind": 0, "blind_formulas": {}}, {}, False),
        ({"blind": 1, "blind_formulas": {"demo": {"watch": "gap"}}}, {}, True),
        ({"blind": 1, "blind_formulas": {"demo": {"watch": "gap"}}}, {"formulas": ("watch",)}, True),
        ({"blind": 1, "blind_formulas": {"demo": {"watch": "gap"}}}, {"formulas": ("other",)}, False),
        ({"blind": 1, "blind_formulas": {"demo": {"watch": "model_doubt"}}}, {}, False),
        ({"blind": 2, "blind_formulas": {"demo": {"a": "model_doubt", "b": "stale"}}}, {}, True),
        ({"blind": 1, "blind_formulas": {"another": {"watch": "gap"}}}, {}, False),
        ({"blind": 2, "blind_formulas": {"another": {"watch": "gap"}}}, {}, True),
        ({"blind": 2, "blind_formulas": {"another": {"watch": "gap"}}}, {"formulas": ("watch",)}, True),
        ({"blind": "many", "blind_formulas": {"another": 1, "demo": 1}}, {}, False),
        ({"blind": 3, "blind_formulas": ["demo"]}, {}, False),
    ],
)
def test_a_status_says_which_formulas_are_blind_or_that_it_does_not_list_all(
    status: dict[str, Any],
    rules: dict[str, Any],
    blind: bool,  # noqa: FBT001 - a field
) -> None:
    assert blind_by(rules, **status) is blind


def test_the_next_status_takes_blindness_back() -> None:
    blind = online(1.0, blind=1, blind_formulas={"demo": {"watch": "gap"}})
    known = Known(0.0).with_status(blind, "demo", 0.0)
    assert known.blind == frozenset({"watch"})
    assert known.with_status({"state": "offline"}, "demo", 1.0).blind == frozenset({"watch"})
    assert known.with_status(online(2.0, blind=0, blind_formulas={}), "demo", 1.0).blind == frozenset()
