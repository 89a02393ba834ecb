"""`cfmon init` and the columns of recordings: what it shows, asks, refuses and writes down."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from monitor.authoring.learning.sentinels import codes_of
from monitor.cli.init_columns import ColumnOptions, RecordedColumns, table_of
from monitor.cli.init_learned import _with_kind
from monitor.cli.init_settings import InitSettings, read_settings, role_text, roles_of, settings_text
from monitor.cli.recorded_inputs import recorded_files
from monitor.errors import ConfigError, ModelError, RecordingError
from monitor.model import load_model
from tests.authoring.learning import real_looking_logs as logs
from tests.cli.stages import faults
from tests.cli.test_init_command import BINS, UNSAFE, tank
from tests.tiers import slow

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def write(name: str, rows: Iterable[dict[str, Any]]) -> str:
    rows = list(rows)
    with Path(name).open("w", newline="") as file:
        log = csv.DictWriter(file, rows[0])
        log.writeheader()
        log.writerows(rows)
    return name


def heating() -> str:
    return write("heating.csv", logs.heating(np.random.default_rng(4)))


def columns(file: str, **options: str) -> RecordedColumns:
    return RecordedColumns(InitSettings(recordings=(file,)), ColumnOptions(options))


def asker(monkeypatch: pytest.MonkeyPatch, answers: Iterable[str]) -> list[str]:
    """Answer prompts; give the questions."""
    given, questions = iter(answers), list[str]()

    def answer(question: str, **_: object) -> str:
        questions.append(question)
        return next(given)

    monkeypatch.setattr(typer, "prompt", answer)
    return questions


def roles(found: RecordedColumns) -> dict[str, str]:
    return {each.name: role_text(each.roles) for each in found.proposal.columns}


def test_the_table_fits_80_columns_and_keeps_names_whole() -> None:
    found = columns(heating())
    lines = table_of(found.proposal.columns)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["column", "role", "values", "why"]
    rows = {line.split()[0]: line for line in lines if not line.startswith("?")}
    assert rows["indoor_temp"].split()[1] == "state"
    assert [line.split()[1] for line in lines if line.startswith("?")] == [
        "hour",
        "outdoor_temp",
        "price",
        "energy_kwh",
    ]


def test_corrections_are_taken_until_nothing_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = columns(heating())
    asker(monkeypatch, ["", "heat", "heat: engine", "heating: action", "heat: action; hour: left out", "price: -", ""])
    found.correct()
    out = capsys.readouterr().out
    for words in (
        "no column looks like the action: give it the role action, perhaps heat",
        "'heat': write NAME: ROLE",
        "'engine' is no role; the roles are episode, order, state,",
        "there is no column 'heating'; it has day, step,",
        "you said so",
    ):
        assert words in out
    assert roles(found) == {
        "day": "episode", "step": "order", "hour": "left out", "indoor_temp": "state", "outdoor_temp": "input",
        "price": "left out", "heat": "action", "firmware": "left out", "energy_kwh": "left out",
    }  # fmt: skip
    given, understood = found.settled_roles()
    assert (given["action"], given["reward"]) == ("heat", "")
    assert (understood.state, understood.inputs) == (("indoor_temp",), ("outdoor_temp",))


def test_a_correction_changes_what_else_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = columns(write("tank.csv", logs.pandas_export(np.random.default_rng(4))))
    assert roles(found)["flow"] == "state"
    asker(monkeypatch, ["pump: action", "level: action", "pump: action", ""])
    found.correct()
    assert roles(found)["pump"] == "action"
    assert roles(found)["level"] == "state", "it was the action for a while"
    (flow,) = [each for each in found.proposal.columns if each.name == "flow"]
    assert (flow.roles, flow.sure, flow.why) == ((), False, "a function of pump in all rows")


def test_what_is_unsafe_is_asked_until_it_can_be_learned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = columns(heating(), action="heat")
    _, understood = found.settled_roles()
    never, sometimes = "cold: indoor_temp < -100", "cold: indoor_temp < 15"
    asker(monkeypatch, ["cold", "cold: indor < 3", never, "any: step >= 0", sometimes])
    assert found.ask_unsafe(understood) == sometimes
    out = capsys.readouterr().out
    for words in (
        "label 'cold': write NAME: CONDITION",
        "there is no column 'indor'",
        "cold: indoor_temp < -100 holds in none of the 480 rows",
        "any: step >= 0 holds in all of the 480 rows",
    ):
        assert words in out
    share = np.mean([row["indoor_temp"] < 15 for row in logs.heating(np.random.default_rng(4))])  # type: ignore[operator]
    assert f"cold: indoor_temp < 15 holds in {100 * share:.1f} % of the 480 rows" in out
    asker(monkeypatch, [never, never])
    assert found.ask_unsafe(understood) == never, "the same again is meant"


def test_unsafe_may_use_the_usual_names_of_columns_and_not_what_cannot_be_read() -> None:
    found = columns(write("arm.csv", logs.lerobot(np.random.default_rng(4))))
    _, understood = found.settled_roles()
    assert found.holds("won: done and reward > 0", understood)[0] == 12
    rows = [{"episode": i // 20, "x": i % 3, "action": i % 2, "odd": [[i]]} for i in range(100)]
    Path("odd.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    found = columns("odd.jsonl")
    assert [each.why for each in found.proposal.columns if each.name == "odd"] == ["holds lists of lists or maps"]
    with pytest.raises(ModelError, match="column 'odd'"):
        found.holds("odd: odd > 0", found.settled_roles()[1])


def test_a_value_of_another_kind_does_not_hide_its_column() -> None:
    rows: list[dict[str, Any]] = [{"episode": i // 50, "x": i % 3, "action": i % 2} for i in range(2000)]
    rows[7]["x"] = "leak"
    found = columns(write("odd.csv", rows))
    assert roles(found)["x"] == "state"
    assert np.isnan(found.head.columns["x"]).tolist() == [i == 7 for i in range(2000)]


def test_off_a_terminal_it_refuses_what_is_not_clear_with_the_lines_that_settle_it(cfmon: Run) -> None:
    code, out, err = cfmon("init", "t", "--recordings", heating())
    assert code == 2
    assert "? outdoor_temp" in out
    message, _, lines = err.partition(":\n")
    assert "1 column to decide on. Write these lines to a file" in message
    assert lines.splitlines()[:4] == [
        "columns:",
        "  # no column looks like the action: give it the role action",
        "  # heat: action",
        "  hour: input # or left out, state: the calendar: no action changes it",
    ]
    Path("answers.yaml").write_text(
        lines.replace("# heat: action", "heat: action").replace("NAME: CONDITION", "cold: indoor_temp < 15"), "utf-8"
    )
    found = RecordedColumns(
        read_settings(Path("answers.yaml")).model_copy(update={"recordings": ("heating.csv",)}), ColumnOptions({})
    )
    found.refuse_unsure(None)
    assert found.proposal.having("input") == ("hour", "outdoor_temp", "price")
    again = ("init", "t", "--recordings", "heating.csv", "--from", "answers.yaml")
    code, out, err = cfmon(*again, "--no-dynamics", "--inputs", "outdoor_temp")
    assert (code, "--no-dynamics is for a table, and --inputs for a world" in err) == (2, True), err
    assert not Path("t").exists()
    code, out, err = cfmon(*again, "--bins", "indoor_temp:15|18|21", "--accept-model", "--steps", "50")
    assert "  left out: hour, outdoor_temp, price: inputs are for a world, and this is a table\n" in out
    assert (code, faults(err)) == (0, ""), err
    assert [len(edges) for edges in load_model("t/model.npz").bin_edges] == [5]
    assert "price: left out" in Path("t/init.yaml").read_text("utf-8")


def coded(code: float = -999, others: tuple[int, ...] = ()) -> str:
    """A log with a code in two rows of `level`, and another in two rows of `action`."""
    rng = np.random.default_rng(7)
    rows: list[dict[str, Any]] = [
        {"episode": i // 20, "step": i % 20, "level": int(rng.integers(9)), "action": i % 3} for i in range(400)
    ]
    rows[33]["level"] = rows[55]["level"] = code
    rows[66]["action"] = rows[77]["action"] = 255
    for place, other in enumerate(others):
        rows[100 + place]["level"] = other
    return write("coded.csv", rows)


def test_codes_of_missing_values_are_shown_and_may_be_corrected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = columns(coded(others=(500, 500)))
    assert found.missing == {"level": (-999.0,)}, "a code of an action is an action"
    [shown] = [each.values for each in found.proposal.columns if each.name == "level"]
    assert shown.endswith("; -999: missing; 500 (2): far outside")
    assert found.reading_lines() == [
        "missing: # values that stand for missing ones; [] for none",
        "  level: [-999] # read as empty cells; the others are 0 to 8",
        "# Far outside the others or rare, and read as they are; if they are errors, add them under missing:",
        "#   level: [-999, 500] # 2 rows; the others are 0 to 8",
    ]
    found.show()
    assert "missing: such values repeat far outside all others" in capsys.readouterr().out
    asker(monkeypatch, ["level: missing 500, -999", ""])
    found.correct()
    assert found.missing == {"level": (500.0, -999.0)}
    assert np.isnan(found.head.columns["level"]).sum() == 4
    asker(monkeypatch, ["level: missing none", ""])
    found.correct()
    assert found.missing == {"level": ()}
    assert found.reading_lines()[1] == "  level: [] # all values are read as they are; the others are 0 to 8"
    asker(monkeypatch, ["level: missing 5; level: engine", ""])
    found.correct()
    assert found.missing == {"level": ()}, "a line with a mistake changes nothing"
    asker(monkeypatch, ["level: missing broken", ""])
    found.correct()
    assert found.missing == {"level": ()}
    assert "column 'level' has numbers, so 'broken' cannot stand" in capsys.readouterr().out
    asker(monkeypatch, ["level: missing none", "time_limit: many", "time_limit: 20", ""])
    found.correct()
    assert "write time_limit: STEPS" in capsys.readouterr().out
    assert found.settled_roles()[1].time_limit == 20


def test_texts_among_numbers_and_rare_doubtful_values_are_named() -> None:
    rng = np.random.default_rng(8)
    rows: list[dict[str, Any]] = [
        {"episode": i // 20, "step": i % 20, "batt": int(rng.integers(101)), "jobs": int(rng.integers(30)),
         "mode": str(rng.choice(["up", "down"])), "action": i % 3}
        for i in range(800)
    ]  # fmt: skip
    rows[33]["batt"] = rows[55]["batt"] = 255
    rows[40]["jobs"] = -7
    rows[44]["mode"] = "ERR"
    for row in (71, 72, 73):
        rows[row]["jobs"] = "no answer"
    found = columns(write("doubtful.csv", rows))
    shown = {each.name: each.values.partition("; ")[2] for each in found.proposal.columns}
    assert shown["batt"] == "255 (2): rare, outside the others"
    assert shown["jobs"] == "0% empty; -7 (1): rare, the others are never negative; no number in 3 rows: missing"
    assert shown["mode"] == "ERR (1): rare, perhaps no value"
    assert found.missing == {}
    assert found.reading_lines() == [
        "# Far outside the others or rare, and read as they are; if they are errors, add them under missing:",
        "#   batt: [255] # 2 rows; the others are 0 to 100",
        "#   jobs: [-7] # 1 row; the others are 0 to 29",
        '#   mode: ["ERR"] # 1 row',
    ]
    assert found.holds("stuck: jobs < 0", found.settled_roles()[1])[1].endswith(
        "; in 1 row because jobs is -7, rare, the others are never negative. If that is no reading, give --missing "
        "'jobs: -7'"
    )


def test_the_penalty_of_a_crash_is_believed() -> None:
    rng = np.random.default_rng(2)
    crashes = [run for run in range(40) if run % 5 == 0]
    rows = [
        {"run": run, "step": step, "x": int(rng.integers(6)), "action": int(rng.integers(2))}
        | {"reward": -999 if run in crashes and step == 9 else -round(float(rng.random()), 2), "done": step == 9}
        for run in range(40)
        for step in range(10)
    ]
    found = columns(write("crash.csv", rows))
    assert found.missing == {}
    [shown] = [each for each in found.proposal.columns if each.name == "reward"]
    assert shown.values.endswith("; -999 (8): far outside")
    assert found.reading_lines()[-1].startswith("#   reward: [-999] # 8 rows; the others are -")
    assert found.holds("crash: done and reward < -10", found.settled_roles()[1])[0] == len(crashes)


def test_a_file_and_an_option_say_which_values_are_missing(cfmon: Run) -> None:
    file = coded()
    Path("answers.yaml").write_text("missing: {level: []}\ntime_limit: 30\n", "utf-8")
    settings = read_settings(Path("answers.yaml")).model_copy(update={"recordings": (file,)})
    assert RecordedColumns(settings, ColumnOptions({})).missing == {"level": ()}
    given = (
        "--recordings",
        file,
        "--unsafe",
        "high: level >= 8",
        "--steps",
        "50",
        "--accept-model",
        "--skip-bad",
        "1%",
    )
    code, out, err = cfmon("init", "t", *given)
    assert (code, faults(err)) == (0, "")
    assert "left out: 2 of 400 rows: 'level' is -999, taken for missing (34; 56)" in out
    text = Path("t/init.yaml").read_text("utf-8")
    assert "  level: [-999] # read as empty cells; the others are 0 to 8\n" in text
    code, out, err = cfmon("init", "u", "--from", "t/init.yaml", "--missing", "level: -999, 0", "--skip-bad", "90%")
    assert (code, faults(err)) == (0, "")
    assert "'level' is 0, taken for missing" in out
    assert Path("t/model.npz").read_bytes() != Path("u/model.npz").read_bytes()
    code, _, _ = cfmon("init", "again", "--from", "t/init.yaml")
    assert code == 0
    assert Path("again/init.yaml").read_text("utf-8") == text
    assert Path("again/model.npz").read_bytes() == Path("t/model.npz").read_bytes()
    code, out, err = cfmon("model", "learn", file, "-o", "m.npz", "--missing", "level: -999", "--skip-bad", "1%")
    assert (code, "'level' is -999, taken for missing (34; 56)" in out) == (0, True), err
    code, _, err = cfmon("model", "learn", file, "-o", "n.npz", "--missing", "levle: -999")
    assert (code, "there is no column 'levle'; it has " in err) == (2, True)


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("bins: 2q\n", ("--dynamics",)),
        ("dynamics: true\n", ("--bins", "2q")),
        ("abstraction: auto\n", ("--inputs", "outdoor_temp")),
        ("abstraction: auto\n", ("--bins", "2q")),
        ("dynamics: false\n", ("--inputs", "outdoor_temp")),
    ],
)
def test_an_option_wins_over_a_file_that_contradicts_it(
    file: str, options: tuple[str, ...], cfmon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["columns:", "  heat: action", "  hour: left out", "  price: left out", "  energy_kwh: left out"]
    lines += ["  outdoor_temp: input", "  firmware: left out", "unsafe: 'cold: indoor_temp < 15'"]
    Path("answers.yaml").write_text("\n".join([*lines, file]), "utf-8")
    asked = []

    def built(request: Any) -> None:  # noqa: ANN401 - an InitRequest
        asked.append(_with_kind(request))
        raise ConfigError("enough")

    monkeypatch.setattr("monitor.cli.init_parts.prepared", built)
    code, _, err = cfmon("init", "t", "--recordings", heating(), "--from", "answers.yaml", *options)
    assert (code, faults(err)) == (2, "cfmon: enough\n"), err
    [request] = asked
    said = {name: value for name, value in request.said.items() if name in ("bins", "abstraction") and value != "auto"}
    assert any(said.values()) is (options[0] == "--bins")
    assert (request.dynamics is not False) is (options[0] != "--bins")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"level": "state", "step": "order", "run": "episode"}),
        ({"state": "step,level"}, {"level": "state", "step": "state", "run": "episode"}),
        ({"order": ""}, {"level": "state", "step": "left out", "run": "episode"}),
        ({"episode": ""}, {"level": "state", "step": "order", "run": "left out"}),
    ],
)
def test_options_settle_columns(options: dict[str, str], expected: dict[str, str], tmp_path: Path) -> None:
    found = columns(str(tank(tmp_path / "steps.csv", runs=5)), **options)
    assert {name: role for name, role in roles(found).items() if name != "action"} == expected
    state = options.get("state", "level").split(",")
    assert found.settled_roles()[1].state == tuple(state)


def test_a_file_keeps_what_was_decided_and_gives_the_same_roles() -> None:
    rows = list(logs.replay_buffer(np.random.default_rng(4)))
    rows = [{**row, "odd: name\n": i % 7, "yes": i % 5} for i, row in enumerate(rows)]
    found = columns(write("buffer.csv", rows), state="yes,obs[0],odd: name,obs[1]")
    settings = InitSettings(
        recordings=("buffer.csv",), unsafe="far: obs[0] > 1 or `x` == 'it''s'", label=("a: t > 3",), for_=3, bins=None,
        dynamics=True, observation="obs",
    )  # fmt: skip
    text = settings_text(settings, found.proposal)
    Path("init.yaml").write_text(text, "utf-8")
    again = read_settings(Path("init.yaml"))
    assert again.model_copy(update={"columns": {}}) == settings
    repeated = RecordedColumns(again, ColumnOptions({}))
    assert not repeated.proposal.guessed
    assert roles(repeated) == roles(found)
    assert repeated.settled_roles()[1].state == ("yes", "obs[0]", "odd: name", "obs[1]")
    assert "  obs[0]: state # " in text, "its entries do not follow each other"
    listed = columns("buffer.csv", state="obs")
    assert "  obs: state # " in settings_text(settings, listed.proposal)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("columns: {x: engine}", "init.yaml, line 1, columns: x: 'engine' is no role; the roles are episode, order"),
        ("recordings: [a.csv]\nunsave: 'a: b'", "init.yaml, line 2, unsave: unknown key; there are recordings, "),
        ("steps: 0", "init.yaml, line 1, steps: input should be greater than or equal to 1"),
        ("columns:\n  x: 3", "init.yaml, line 2, columns.x: input should be a valid string"),
        ("columns: [", "not valid YAML"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(text: str, problem: str) -> None:
    Path("init.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigError) as error:
        read_settings(Path("init.yaml"))
    assert problem in str(error.value)
    assert str(error.value).count("\n") == 0


def test_words_for_roles() -> None:
    assert roles_of("input") == ("input",)
    assert roles_of("Time, state") == ("order", "state")
    assert roles_of("next state") == ("next_state",)
    assert roles_of("-") == roles_of("left  out") == ()
    for wrong in ("", "left out, state", "speed"):
        with pytest.raises(ConfigError, match="is no role"):
            roles_of(wrong)


def test_a_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    steps = str(tank(tmp_path / "steps.csv", runs=5))
    with pytest.raises(RecordingError, match="there is no column 'depth'; it has run, step, level, action"):
        RecordedColumns(InitSettings(recordings=(steps,), columns={"depth": "state"}), ColumnOptions({}))


def test_the_file_repeats_the_run_to_the_byte(cfmon: Run, tmp_path: Path) -> None:
    steps = str(tank(tmp_path / "steps.csv", runs=20).relative_to(tmp_path))
    given = ("--recordings", steps, *UNSAFE, *BINS, "--steps", "100", "--accept-model", "--fallback", "do(2)")
    code, out, err = cfmon("init", "t", *given)
    assert (code, faults(err)) == (0, "")
    assert "no reward: all rewards are 0" in out
    first = {path.name: path.read_bytes() for path in Path("t").iterdir()}
    text = first["init.yaml"].decode()
    for line in (
        'recordings: ["steps.csv"]',
        "  step: order # rises by 1 in each episode",
        "steps: 100",
        'fallback: "do(2)"',
    ):
        assert line in text.splitlines()
    code, _, err = cfmon("init", "--from", "t/init.yaml")
    assert (code, "already exists; choose another folder, or give --force" in err) == (2, True)
    code, out, err = cfmon("init", "--from", "t/init.yaml", "--force")
    assert (code, faults(err)) == (0, "")
    assert {path.name: path.read_bytes() for path in Path("t").iterdir()} == first
    Path("u").mkdir()
    Path("u/init.yaml").write_text(f"# mine\n{text}", "utf-8")
    facts = json.loads(cfmon("init", "--from", "u/init.yaml", "--json")[1])
    assert facts["model"] == "u/model.npz"
    assert Path("u/init.yaml").read_text("utf-8").startswith("# mine\n"), "the file said all, so it is kept as it was"
    for name in ("model.npz", "nominal.onnx", "fallback.yaml", "config.yaml", "takeover.yaml"):
        assert Path(f"u/{name}").read_bytes() == first[name]


@slow
def test_one_alarm_is_not_one_alarms(cfmon: Run, tmp_path: Path) -> None:
    steps = str(tank(tmp_path / "steps.csv", runs=20))
    code, out, _ = cfmon(
        "init", "t", "--recordings", steps, *UNSAFE, *BINS, "--steps", "100", "--accept-model", "--for", "60"
    )
    assert code == 0
    assert "1 alarms" not in out
    assert "1 alarms" not in Path("t/config.yaml").read_text("utf-8")


def test_a_far_value_that_makes_states_unsafe_is_named() -> None:
    file = coded(code=850)
    found = columns(file)
    _, roles = found.settled_roles()
    _, words = found.holds("high: level > 7", roles)
    assert words.endswith(
        "; in 2 rows because level is 850, far outside its other values. If that is no reading, give "
        "--missing 'level: 850'"
    )
    assert "850" not in found.holds("low: level < 2", roles)[1]
    assert "850" not in found.holds("any: level >= 0 or action >= 0", roles)[1], "they are unsafe in any case"


def test_an_unclear_column_that_cuts_no_episode_stops_nothing(cfmon: Run) -> None:
    rows = [
        {"episode": i // 20, "step": i % 20, "kind": "ab"[i // 40 % 2], "level": (i * 7) % 9, "action": i % 3}
        for i in range(800)
    ]
    init = ("init", "t", "--recordings", write("kinds.csv", rows), "--unsafe", "high: level > 7", "--steps", "50")
    code, out, err = cfmon(*init, "--accept-model")
    assert code == 0, err
    assert "? kind " in out
    assert "the role shown is assumed. To change it, write NAME: ROLE under columns: in init.yaml" in out
    assert "kind: left out" in Path("t/init.yaml").read_text("utf-8")


def test_files_in_a_folder_are_read_in_the_order_of_their_numbers() -> None:
    for n in (10, 2, 1):
        Path(f"log_{n}.csv").write_text("a\n1\n")
    assert [path.name for path in recorded_files([Path()])] == ["log_1.csv", "log_2.csv", "log_10.csv"]


def test_the_actions_that_a_policy_chooses_show_the_column_of_the_action() -> None:
    Path("chosen_rules.py").write_text(
        "def careful(row):\n    return 'wide' if row['level'] > 4 else 'shut'\n"
        "def broken(row):\n    return row['nothing']\n"
        "def scores(level):\n    return [level, 1]\n"
        "def other(a, b):\n    return 1\n"
    )
    rows = [
        {"episode": i // 20, "step": i % 20, "level": (i * 7) % 9, "valve": ["shut", "half", "wide"][i % 3]}
        for i in range(400)
    ]
    settings = InitSettings(recordings=(write("valve.csv", rows),))
    for name, expected in (("careful", ("valve",)), ("broken", ()), ("scores", ()), ("other", ()), ("gone", ())):
        given = settings.model_copy(update={"fallback": f"chosen_rules.py:{name}"})
        assert RecordedColumns(given, ColumnOptions({})).proposal.having("action") == expected, name


def test_texts_for_missing_values_are_read_as_empty_cells() -> None:
    words = ["av1", "none", "h264"]
    rows = [{"episode": i // 20, "step": i % 20, "codec": words[i * 7 % 3], "action": i % 2} for i in range(400)]
    for place, text in ((7, "NaN"), (19, "???"), (55, "NaN")):
        rows[place]["codec"] = text
    found = columns(write("codecs.csv", rows))
    assert found.missing["codec"] == ("???", "NaN")
    assert next(each for each in found.proposal.columns if each.name == "codec").values.endswith("???, NaN: missing")
    assert set(found.head.columns["codec"]) == {"", "av1", "none", "h264"}
    assert codes_of("NaN, 'none', -9") == ("NaN", "none", -9.0)


def test_a_condition_on_reasons_is_about_the_last_step_also_where_final_states_are_logged() -> None:
    rows = [
        {"episode": n, "step": i, "x": (n + i) % 7, "action": "" if i == 4 + n % 6 else i % 2,
         "end": ["crash", "goal"][n % 2] if i == 4 + n % 6 else ""}
        for n in range(40)
        for i in range(5 + n % 6)
    ]  # fmt: skip
    found = RecordedColumns(InitSettings(recordings=(write("ends.csv", rows),)), ColumnOptions({}))
    _, roles = found.settled_roles()
    assert found.at_ends("hurt: end == 'crash'", roles) == "hurt: done and (end == 'crash')"
    for other in ("hurt: done and end == 'crash'", "hurt: end == 'crash' and x > 2", "hurt: end == ''", "hurt: x > 99"):
        assert found.at_ends(other, roles) == other
