"""`cfmon check`: answers, exit codes, and errors that say where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.model import MDP, save_model

Run = Callable[..., tuple[int, str, str]]
ARGUMENTS = (
    "--model",
    "model.npz",
    "--path",
    "path.json",
    "--policy",
    "nominal=wait.json",
    "--policy",
    "bold=bold.json",
)


def ask(cfmon: Run, formula: str, *more: str) -> tuple[int, str, str]:
    return cfmon("check", *ARGUMENTS, "--formula", formula, *more)


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(
    ("formula", "code", "answer"),
    [
        ('@0.P=? [ F<=3 "unsafe" ]', 0, "value"),
        ('@1.P<=0.5 [ G<=3 !"unsafe" ]', 0, "holds"),
        ('@1.P>=0.5 [ G<=3 !"unsafe" ]', 1, "fails"),
        ('regret(bold@1, P>=0.5 [ G<=3 !"unsafe" ])', 1, "regret"),
        ('regret(bold@0, P>=0.5 [ G<=3 !"unsafe" ])', 1, "unavoidable"),
        ('regret(bold@1, P>=0.5 [ F<=3 "unsafe" ])', 0, "safe"),
    ],
)
def test_the_exit_code_is_the_answer(cfmon: Run, formula: str, code: int, answer: str) -> None:
    got, out, err = ask(cfmon, formula, "--json")
    (verdict,) = json.loads(out)["verdicts"]
    assert (got, verdict["answer"], err) == (code, answer, "")


@pytest.mark.usefixtures("workdir")
def test_the_table_explains_its_numbers(cfmon: Run) -> None:
    code, out, _ = ask(cfmon, 'regret(bold@7, P>=0.5 [ G<=3 !"unsafe" ])', "--causal-model", "any")
    assert code == 1
    for word in ("regret", "exact", "every causal model", "clipped", "nominal", "0.5", "@2", "the latest that helps"):
        assert word in out


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(("bound", "in_time"), [("0", True), ("1", False)])
def test_the_table_of_a_handover_has_its_goal_now(cfmon: Run, bound: str, in_time: bool) -> None:  # noqa: FBT001 - a case
    code, out, _ = ask(cfmon, f'handover(bold, P>={bound} [ G<=3 !"unsafe" ], 2) >= 0')
    assert code == 0
    assert "its goal" in out
    assert ("<- not too late" in out) is in_time


@pytest.mark.usefixtures("workdir")
def test_of_several_answers_the_worst_counts(cfmon: Run, workdir: Path) -> None:
    (workdir / "questions").write_text(
        '// two questions\n@1.P<=0.5 [ G<=3\n   !"unsafe" ]\n\n@0.P<0.5 [ F<=3 "unsafe" ]\n'
    )
    code, out, _ = cfmon("check", *ARGUMENTS, "--formulas", "questions", "--json")
    assert [v["answer"] for v in json.loads(out)["verdicts"]] == ["holds", "fails"]
    assert code == 1


@pytest.mark.usefixtures("workdir")
def test_a_wrong_formula_shows_a_caret_at_the_line_of_its_file(cfmon: Run, workdir: Path) -> None:
    (workdir / "questions").write_text('@0.P=? [ F<=3 "goal" ]\n\n@0.P=? [ F<=3 "gaol" ]\n')
    code, out, err = cfmon("check", *ARGUMENTS, "--formulas", "questions")
    assert (code, out) == (2, "")
    assert "line 3, column 15" in err
    assert '"gaol"' in err.splitlines()[1]
    assert err.splitlines()[2].index("^") == err.splitlines()[1].index('"gaol"')
    assert "goal" in err.splitlines()[0]


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--model", "none.npz"), "none.npz"),
        (("--path", "none.json"), "cannot read the path file none.json"),
        (("--policy", "bold"), "expected NAME=FILE"),
        (("--nominal", "brave"), "name the policy that the agent runs with --nominal"),
        (("--formulas", "questions"), "either --formula TEXT or --formulas FILE"),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(cfmon: Run, change: tuple[str, ...], message: str) -> None:
    code, out, err = ask(cfmon, "@0.P=? [ true ]", *change)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_terminated_path_ends_in_the_copy_of_its_last_state(cfmon: Run, workdir: Path) -> None:
    model = MDP.from_transitions(
        states=3,
        actions=2,
        transitions=[(s, a, t, 1.0) for s, t in ((0, 2), (1, 0), (2, 2)) for a in (0, 1)],
        labels={"goal": [2]},
        ended_as=[0, 2, 2],
    )
    save_model(model, workdir / "model.npz")
    (workdir / "path.json").write_text("[[0, 0], [1, null]]")
    code, out, _ = ask(cfmon, '@0.P=? [ F<=3 "goal" ]', "--terminated", "--json")
    told = json.loads(out)
    assert (code, told["path"], told["verdicts"][0]["value"]) == (0, [[0, 0], [2, None]], 1.0)
    code, _, err = ask(cfmon, '@0.P=? [ F<=3 "goal" ]')  # an episode that goes on: the model does not lead there
    assert code == 2
    assert "the model gives 1 probability 0 after state 0, action 0" in err


@pytest.mark.usefixtures("workdir")
def test_any_policy_can_be_the_nominal_one(cfmon: Run) -> None:
    arguments = ("--model", "model.npz", "--path", "path.json", "--policy", "calm=wait.json", "--nominal", "calm")
    code, out, _ = cfmon("check", *arguments, "--formula", '@2.P=? [ F<=3 "unsafe" ]', "--json")
    assert code == 0
    assert json.loads(out)["verdicts"][0]["value"] == 1.0


@pytest.mark.usefixtures("workdir")
def test_an_unexpected_exception_says_that_it_is_a_bug(cfmon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("monitor.cli.input_files.read_path", fail)
    code, out, err = ask(cfmon, "@0.P=? [ true ]")
    assert (code, out) == (70, "")
    assert "this is a bug" in err
    assert "ZeroDivisionError: oh" in err


def test_usage_errors_are_the_users_too(cfmon: Run) -> None:
    assert cfmon("check", "--no-such-option")[0] == 2
    assert cfmon("demo", "--scenario", "chess")[0] == 2


def test_help_names_every_command(cfmon: Run) -> None:
    code, out, _ = cfmon("--help")
    assert code == 0
    for command in ("demo", "run", "check", "replay", "verify", "explain", "model", "policy", "config"):
        assert f"\n  {command} " in out


@pytest.mark.usefixtures("workdir")
def test_the_referee_answers_as_the_engine_does(cfmon: Run) -> None:
    text = 'regret(bold@1, P>=0.5 [ G<=3 !"unsafe" ])'
    code, out, err = ask(cfmon, text, "--json", "--engine", "referee", "--causal-model", "any")
    judged = json.loads(out)
    (verdict,) = judged["verdicts"]
    assert (code, err, judged["engine"], verdict["method"]) == (1, "", "referee", "exact")
    _, out, _ = ask(cfmon, text, "--json", "--engine", "exact", "--causal-model", "any")
    checked = json.loads(out)
    assert checked["engine"] == "exact"
    assert [verdict[name] for name in ("answer", "robust", "offset", "clipped", "latest_useful")] == [
        checked["verdicts"][0][name] for name in ("answer", "robust", "offset", "clipped", "latest_useful")
    ]
    assert verdict["effect_bounds"] == pytest.approx(checked["verdicts"][0]["effect_bounds"], abs=1e-9)


@pytest.mark.usefixtures("workdir")
def test_the_table_says_which_decisions_used_hindsight(cfmon: Run) -> None:
    for world, asked, said in (
        ("best@1", ">=0.5", "with hindsight, which no policy has: compare optimal"),
        ("best@0", ">=0.5", ""),
        ("max@1", "=?", "with hindsight, which no policy has"),
        ("max@0", "=?", ""),
        ("optimal@1", ">=0.5", "without hindsight"),
        ("optimal@0", ">=0.5", "without hindsight"),
        ("bold@1", ">=0.5", ""),
    ):
        _, out, _ = ask(cfmon, f'{world}.P{asked} [ G<=3 !"unsafe" ]')
        assert said in out
        assert ("decided" in out) == bool(said)
        assert ("compare optimal" in out) == ("compare optimal" in said)


def test_hidden_states_are_asked_about_by_names_of_observations(cfmon: Run, tmp_path: Path) -> None:
    model = MDP.from_transitions(
        states=2,
        actions=2,
        transitions=[(0, 0, 0, 0.5), (0, 0, 1, 0.5), (0, 1, 0, 1.0), (1, 0, 1, 1.0), (1, 1, 1, 1.0)],
        labels={"ice": [1]},
        initial={0: 1.0},
        signals=2,
        emissions=[(0, 0, 0.75), (0, 1, 0.25), (1, 1, 1.0)],
        signal_names=["dry", "slippery"],
    )
    save_model(model, tmp_path / "ice.npz")
    (tmp_path / "go.json").write_text("[0, 0]")
    (tmp_path / "stop.json").write_text("[[0, 1], [0.5, 0.5]]")
    (tmp_path / "path.csv").write_text("observation,action\ndry,0\n,\nslippery,0\n")
    files = (f"{name}={tmp_path / name}.json" for name in ("go", "stop"))
    asked = ("--model", str(tmp_path / "ice.npz"), "--path", str(tmp_path / "path.csv"), "--nominal", "go")
    policies = [part for file in files for part in ("--policy", file)]
    code, out, _ = cfmon("check", *asked, *policies, "--formula", 'stop@2.P=? [ F<=3 "ice" ]')
    assert code == 0
    assert "begins in state (observation dry), 2 steps before the last" in " ".join(out.split())
    assert "probability now: ice" in out
    code, out, _ = cfmon("check", *asked, *policies, "--formula", 'stop@2.P=? [ F<=3 "ice" ]', "--causal-model", "any")
    assert (code, "under every causal model (outer bounds)" in " ".join(out.split())) == (0, True)
    (tmp_path / "path.csv").write_text("observation,action\nwet,0\n")
    code, _, err = cfmon("check", *asked, *policies, "--formula", 'P=? [ F<=3 "ice" ]')
    assert (code, "'wet' is not an observation of the model (0 to 1, or a name: dry, slippery)" in err) == (2, True)
