"""`cfmon model learn`: learn a model from recorded steps, and keep its counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from monitor.authoring.learning.left_out import DEFAULT, RowLimit
from monitor.cli.counting import count_files, resumed
from monitor.cli.learn_dynamics import FITS, Fits, learn_dynamics
from monitor.cli.output import print_json, progress, say
from monitor.cli.recorded_inputs import (
    ENCODERS,
    AbstractionKind,
    ActionColumn,
    Bins,
    EpisodeColumn,
    InputColumns,
    MissingCodes,
    NextStateColumns,
    ObservationColumns,
    OrderColumn,
    RewardColumn,
    RewardTiming,
    SignalColumn,
    SkipBad,
    StateColumns,
    TerminatedColumn,
    TimeLimit,
    TruncatedColumn,
    many,
    missing_in,
    new_learner,
    notes_on_bins,
    notes_on_rows,
    open_recording,
    recorded_files,
    show_roles,
    with_function,
)
from monitor.cli.report_page import check_reports, write_page
from monitor.errors import ModelError, printable

if TYPE_CHECKING:
    from monitor.authoring.learning.abstraction_scores import Scored
    from monitor.authoring.learning.companion import CountedFile
    from monitor.authoring.learning.cross_fitting import Collected
    from monitor.authoring.learning.learner import Learner
    from monitor.authoring.learning.model_report import ModelReport
    from monitor.authoring.learning.tally import Tally
    from monitor.authoring.proposal.model_quality import ModelQuality
    from monitor.model.mdp import MDP

KEPT: Final = "a learned model keeps its columns, states and labels; learn a new one"
NUMBERS: Final = "a world has numbers as states, and is learned at once"


def model_learn(
    files: Annotated[
        list[Path],
        typer.Argument(help="recordings, CSV, JSON lines, Parquet, Arrow, MCAP, Minari, or folders"),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="MODEL", help="model to write: .npz; with --dynamics .yaml")
    ] = None,
    append: Annotated[
        Path | None, typer.Option(metavar="MODEL.npz", help="learned model that counts these files too")
    ] = None,
    state: StateColumns = None,
    action: ActionColumn = None,
    episode: EpisodeColumn = None,
    order: OrderColumn = None,
    reward: RewardColumn = None,
    terminated: TerminatedColumn = None,
    truncated: TruncatedColumn = None,
    next_state: NextStateColumns = None,
    observation: ObservationColumns = None,
    signal: SignalColumn = None,
    timing: RewardTiming = None,
    bins: Bins = None,
    abstraction: AbstractionKind = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: CONDITION'", help="label, such as 'goal: x > 3'; may be repeated"),
    ] = None,
    unsafe: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: CONDITION'", help="label that also holds where nothing is known; may be repeated"),
    ] = None,
    prior: Annotated[float | None, typer.Option(help="pseudo-count of a row (state, action); default 1")] = None,
    topic: Annotated[str, typer.Option(help="topic pattern of the steps in recordings")] = "agents/+/steps",
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="write a report on the state abstraction: .html or .md; may be repeated"),
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of the quantiles' sample, and of the episodes held out")] = 0,
    dynamics: Annotated[
        bool, typer.Option("--dynamics", help="learn a world of numbers: --out WORLD.yaml, with its files beside it")
    ] = False,
    inputs: InputColumns = None,
    missing: MissingCodes = None,
    time_limit: TimeLimit = None,
    fits: Fits = FITS,
    skip_bad: SkipBad = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Estimate a model from recorded steps, with the counts behind each probability.

    Columns are guessed from their names and shown. A condition compares columns: 'death: done and reward < 0'.

    MODEL.learn.npz beside the model holds all counts. It is written after each file, and MODEL.learn.part.npz within a
    large one; continue an interrupted run, or add recordings, with --append: files that were already counted are
    skipped.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.learning.cross_fitting import Collected  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.sentinels import missing_of  # noqa: PLC0415 - likewise

    target = _target(out, append, ".yaml" if dynamics else ".npz")
    roles = {
        "state": state, "action": action, "episode": episode, "order": order, "reward": reward,
        "terminated": terminated, "truncated": truncated, "next_state": next_state, "observation": observation,
        "signal": signal,
        "timing": None if timing is None else timing.value, "time_limit": time_limit,
    }  # fmt: skip
    said = {"bins": bins, "abstraction": abstraction, "label": label or [], "unsafe": unsafe or [], "prior": prior}
    check_reports(report or [])
    limit = RowLimit.parsed(skip_bad)
    if append is not None:
        _refuse_options(roles | said | {"missing": missing}, f"with --append: {KEPT}")
    paths = recorded_files(files)
    codes = missing_in(open_recording(paths[0], topic), missing_of(missing or []))
    sources = [open_recording(path, topic, codes) for path in paths]
    if dynamics:
        unused = {name: said[name] for name in ("bins", "abstraction", "unsafe", "prior")}
        _refuse_options(
            unused | {"append": append, "observation": observation, "signal": signal}, f"with --dynamics: {NUMBERS}"
        )
        learn_dynamics(
            sources, target, roles, labels=label or [], inputs=inputs, seed=seed,
            fits=fits, reports=report or [], limit=limit, as_json=as_json,
        )  # fmt: skip
        return
    _refuse_options({"inputs": inputs or None, "fits": None if fits == FITS else fits}, "without --dynamics")
    compared: list[Scored] = []
    part: CountedFile | None = None
    if append is not None:
        learner, part = resumed(append, paths)
        sources = [open_recording(path, topic, learner.missing) for path in paths]
    else:
        learner, compared = new_learner(sources, target, roles, said, seed)
        learner.missing = codes
    sources = [with_function(source, learner.function) for source in sources]
    if not as_json:
        show_roles(learner.roles.lines(), sources, compared)
    holdout = Collected(
        seed,
        unsafe=np.array([each.unsafe for each in learner.labels], np.bool_),
        unmarked=learner.roles.truncated is None,
    )
    earlier = learner.tally.draws
    counted, skipped = count_files(learner, sources, target, holdout, part=part, limit=limit)
    before = len(learner.kept)
    model, moved = _write(learner, target)
    problems = None
    if report or holdout.train.draws:
        problems = _report(learner, model, holdout, report or [], compared=compared, earlier=earlier)
    facts = _facts(learner, model, target) | {"files counted": counted, "files skipped": skipped}
    if append is None:
        facts["notes on rows"] = [*notes_on_bins(learner, bins), *facts["notes on rows"]]
    if compared:
        facts["abstractions compared"] = [asdict(each) for each in compared]
    facts |= {"states before": before, "states moved": moved}
    facts["messages dropped"] = sum(getattr(source, "dropped", 0) for source in sources)
    if problems is not None:
        facts["problems"] = problems
    _finish(facts, as_json=as_json)
    if problems is not None and not as_json:
        for path in report or [target]:
            say(f"{path}: the abstraction is {'NOT ' if problems else ''}good enough")


def _target(out: Path | None, append: Path | None, suffix: str) -> Path:
    if (out is None) == (append is None):
        append_too = ", or --append MODEL.npz for a learned one" if suffix == ".npz" else ""
        raise ModelError(f"give --out MODEL{suffix} for a new model{append_too}")
    target = out or append
    assert target is not None
    if target.suffix != suffix:
        raise ModelError(f"{target}: the name of a model ends with {suffix}{' (--dynamics)' * (suffix != '.npz')}")
    return target


def _refuse_options(given: dict[str, Any], when: str) -> None:
    wrong = [name for name, value in given.items() if value not in (None, [])]
    if wrong:
        raise ModelError(f"--{wrong[0].replace('_', '-')} cannot be given {when}")


def _report(
    learner: Learner,
    model: MDP,
    holdout: Collected,
    paths: Sequence[Path],
    *,
    compared: Sequence[Scored],
    earlier: int,
) -> list[str]:
    """Judge the abstraction and write the report to `paths`.

    Return the reasons why the abstraction is not good enough.
    """
    from monitor.authoring.learning.model_problem import ModelProblem  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.model_report import reported  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.separation import lacking, missed, unseparated  # noqa: PLC0415 - likewise
    from monitor.cli.learn_report import about, charts, sections  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.cli.quality_report import page_of  # noqa: PLC0415 - likewise

    assert learner.states is not None
    if not holdout.train.draws:
        raise ModelError("--report needs steps that are counted in this run; these files were counted before")
    unsafe = [label.name for label in learner.labels if label.unsafe]
    with progress("computing the report"):
        found = reported(model, learner.where(), holdout, [label.name for label in learner.labels], unsafe)
        known = *map(ModelProblem, lacking(learner)), *unseparated(missed(learner.tally, learner.labels))
        found = replace(found, earlier=earlier, problems=(*known, *found.problems))
        if learner.states.kind == "nearest":
            distances = tuple(learner.states.distances.tolist())
            found = replace(found, distances=distances, farthest=learner.states.farthest)
        quality = _quality(learner, holdout, found, whole=not compared)
    page = page_of([("", quality)], model.source, about(found), (sections(found, compared), charts(found)))
    write_page(page, paths)
    return list(found.problems)


def _quality(learner: Learner, holdout: Collected, report: ModelReport, *, whole: bool) -> ModelQuality:
    """Return the quality of the model.

    `whole`: judge on all folds. Otherwise judge on the first fold, because a comparison of abstractions uses the
    others.
    """
    from monitor.authoring.learning.cross_fitting import FOLDS, CrossFitted, ForecastJudge, folds_of  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.model_report import HORIZONS  # noqa: PLC0415 - likewise
    from monitor.authoring.proposal.model_quality import ModelQuality  # noqa: PLC0415 - likewise

    names = [label.name for label in learner.labels]
    first = next((label.name for label in learner.labels if label.unsafe), names[0] if names else None)
    unjudged = ["alarms, as no formula is proposed (`cfmon init` does)"]
    if first is None:
        no_label = "forecasts, as there is no label (--unsafe, --label)"
        return ModelQuality("", (), report.problems, report.histories, unjudged=(no_label, *unjudged))
    table = CrossFitted("", learner, holdout, range(FOLDS if whole else 1))
    judge = ForecastJudge(table.forecasts, holdout.outcomes, names, lambda episodes: folds_of(episodes, holdout.seed))
    skills = tuple(judge.skills(first, HORIZONS))
    if not any(each.known for each in skills):
        unjudged.insert(0, f"forecasts, as {first!r} always or never happens")
    return ModelQuality(first, skills, report.problems, report.histories, unjudged=tuple(unjudged))


def _write(learner: Learner, target: Path) -> tuple[MDP, bool]:
    """Write the model and the indices of its states. Return the model, and whether indices of old states changed."""
    from monitor.authoring.learning.companion import companion_of, save_learner  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.model.io import save_model  # noqa: PLC0415 - likewise

    with progress(f"writing {target}"):
        model = learner.model(str(target))
        codes = tuple(learner.where().codes.tolist())
        moved = codes[: len(learner.kept)] != learner.kept
        if codes != learner.kept:
            learner.kept = codes
            save_learner(learner, companion_of(target))
        save_model(model, target)
    return model, moved


def _facts(learner: Learner, model: MDP, target: Path) -> dict[str, Any]:
    from monitor.authoring.learning.separation import missed, never_held, unrecorded  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.state_codes import ENDS  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.model.io import model_sha256  # noqa: PLC0415 - likewise

    assert learner.states is not None
    tally = learner.tally
    seen = len(tally.rows)
    table = tally.visited
    return {
        "model": str(target),
        "sha256": model_sha256(model),
        "states": model.states,
        "actions": model.actions,
        "rows read": learner.rows,
        "transitions counted": tally.draws,
        "episodes": int(table["starts"].sum() + table["late"].sum()),
        "episodes that begin late": int(table["late"].sum()),
        "episodes without transition": tally.alone,
        "rows left out": learner.left_out.document(),
        "notes on rows": notes_on_rows(learner),
        "pairs seen": seen,
        "pairs": learner.states.size * model.actions,
        "gaps": tally.gaps,
        "next states that differ": tally.mismatches,
        **({} if model.emissions is None else {"emissions": _emission_facts(tally)}),
        "labels": {label.name: int(model.labels[label.name].sum()) for label in learner.labels},
        "label missed": missed(tally, learner.labels),
        "state encoder": ENCODERS[learner.states.kind],
        "labels that never hold": never_held(learner),
        "labels unknown": unrecorded(learner),
        "kinds of ends not recorded": int((table.keys < ENDS).sum()),
    }


def _emission_facts(tally: Tally) -> dict[str, int]:
    from monitor.authoring.learning.state_codes import base_of, is_end  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.tally import CODE_BITS  # noqa: PLC0415 - likewise

    states, kinds = {*(tally.emissions.keys >> CODE_BITS).tolist()}, tally.emissions.keys & ((1 << CODE_BITS) - 1)
    visited = tally.visited.keys[~is_end(tally.visited.keys)]
    return {
        "counted": int(tally.emissions["visits"].sum()),
        "kinds": len({*kinds.tolist()}),
        "states": len(states),
        "states without": len({*base_of(visited).tolist()} - states),
    }


def _finish(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    if facts["files skipped"]:
        say(f"skipped, because counted before: {many(facts['files skipped'], 'file')}")
    target = facts["model"]
    say(
        f"{target}: {many(facts['transitions counted'], 'transition')} in {many(facts['episodes'], 'episode')}; "
        f"{many(facts['states'], 'state')}, {many(facts['actions'], 'action')}; {facts['pairs seen']:,} of "
        f"{many(facts['pairs'], 'pair')} (state, action) seen"
    )
    if (shown := facts.get("emissions")) is not None:
        lacking = shown["states without"]
        rest = f"; none in {many(lacking, 'state')}, which may show each of these alike" if lacking else ""
        say(
            f"{target}: {many(shown['counted'], 'observation')} of {many(shown['kinds'], 'kind')} recorded in "
            f"{many(shown['states'], 'state')}{rest}"
        )
    for name, count in facts["labels"].items():
        say(f"{target}: {printable(name)} holds in {many(count, 'state')}")
    for line in dict.fromkeys([*_notes(facts), *facts.get("problems", [])]):
        say(f"{target}: {line}")
    say(f"{target}: sha256 {facts['sha256']}; in a configuration: state_encoder: {facts['state encoder']}")


def _renumbered(facts: dict[str, Any]) -> list[str]:
    """Return a sentence if the model has states that the earlier model lacks, or other indices for earlier states."""
    new = facts["states"] - facts["states before"]
    if facts["states moved"]:
        moved = "new indices have taken the numbers of ends of episodes and of 'elsewhere', which come after them now"
        return [f"{moved}; make policies for this model again"]
    if facts["states before"] and new:
        return [
            f"{many(new, 'new state')}, after those before, which keep their numbers; policies may lack the new ones"
        ]
    return []


def _notes(facts: dict[str, Any]) -> list[str]:
    from monitor.authoring.learning.separation import unseparated  # noqa: PLC0415 - keep `cfmon --help` light

    notes = []
    notes += facts["labels that never hold"]
    notes += unseparated(facts["label missed"])
    notes += _renumbered(facts)
    notes += facts["notes on rows"]
    if facts["messages dropped"]:
        dropped = many(facts["messages dropped"], "message")
        notes.append(f"{dropped} left out: no steps, or late, or delivered twice")
    if facts["next states that differ"]:
        count = many(facts["next states that differ"], "row")
        notes.append(f"in {count} the next state is not the state of the row after; check --next-state")
    notes += facts["labels unknown"]
    if facts["kinds of ends not recorded"] > 1:
        notes.append(
            "episodes end in different ways, but the state at the end is not recorded; the last message of a live "
            "agent may then contradict the model. Record the state after each step (--next-state)"
        )
    return notes
