"""`cfmon model learn`: from recorded steps to a model with its counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from monitor.cli.output import Bar, print_json, printable, progress, say
from monitor.errors import ModelError, RecordingError

if TYPE_CHECKING:
    from monitor.learning.files import RowFile
    from monitor.learning.holdout import Holdout
    from monitor.learning.learner import Learner
    from monitor.model.mdp import MDP

__all__ = ["model_learn"]

SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather")
MISSED: Final = 0.02
"""Fraction of a label's visits in states without the label from which it is reported."""

ENCODERS: Final = {"index": "index", "name": "name", "values": "valuation", "bins": "bins"}


class TimingName(StrEnum):
    """What a row's reward and end markers belong to: `monitor.learning.columns.Timing`."""

    step = "step"
    state = "state"


def model_learn(
    files: Annotated[
        list[Path], typer.Argument(help="recordings, CSV, JSON lines, Parquet or Arrow files, or folders")
    ],
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="MODEL.npz", help="model to write")] = None,
    append: Annotated[
        Path | None, typer.Option(metavar="MODEL.npz", help="learned model that counts these files too")
    ] = None,
    state: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="columns of the state")] = None,
    action: Annotated[str | None, typer.Option(metavar="NAME", help="column of the action")] = None,
    episode: Annotated[str | None, typer.Option(metavar="NAME", help="column of the episode; '': none")] = None,
    order: Annotated[str | None, typer.Option(metavar="NAME", help="column that orders an episode; '': none")] = None,
    reward: Annotated[str | None, typer.Option(metavar="NAME", help="column of the reward; '': none")] = None,
    terminated: Annotated[
        str | None, typer.Option(metavar="NAME", help="column that ends an episode; '': none")
    ] = None,
    truncated: Annotated[
        str | None, typer.Option(metavar="NAME", help="column that cuts an episode off; '': none")
    ] = None,
    next_state: Annotated[str | None, typer.Option(metavar="NAME,NAME", help="columns of the state afterwards")] = None,
    observation: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="columns of a policy's input, kept for each state")
    ] = None,
    timing: Annotated[
        TimingName | None,
        typer.Option(help="reward and end markers belong to the `step` from a row's state, or to that `state`"),
    ] = None,
    bins: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="bins of the state: 'x:8q,v:-1|0|1' (q: quantiles, w: equal width)"),
    ] = None,
    abstraction: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="index, name, values, or FILE.py:FUNCTION; default: by the columns"),
    ] = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Estimate a model from recorded steps, with the counts behind each probability.

    Columns are guessed from their names and shown. A condition compares columns: 'death: done and reward < 0'.

    MODEL.learn.npz beside the model holds all counts. It is written after each file; continue an interrupted run, or
    add recordings, with --append: files that were counted already are skipped.
    """
    target = _target(out, append)
    roles = {
        "state": state, "action": action, "episode": episode, "order": order, "reward": reward,
        "terminated": terminated, "truncated": truncated, "next_state": next_state, "observation": observation,
        "timing": None if timing is None else timing.value,
    }  # fmt: skip
    said = {"bins": bins, "abstraction": abstraction, "label": label or [], "unsafe": unsafe or [], "prior": prior}
    if append is not None:
        _refuse_options(roles | said)
    paths = _files(files)
    sources = [_source(path, topic) for path in paths]
    learner = _resumed(append) if append is not None else _begun(sources, target, roles, said, seed)
    sources = [_computed(source, learner.function) for source in sources]
    if not as_json:
        _show_roles(learner, paths)
    holdout = _holdout(report or [], seed)
    counted, skipped = _count(learner, sources, target, holdout)
    model = _write(learner, target)
    problems = None if holdout is None else _report(learner, model, holdout, report or [])
    facts = _facts(learner, model, target) | {"files counted": counted, "files skipped": skipped}
    facts["messages dropped"] = sum(getattr(source, "dropped", 0) for source in sources)
    if problems is not None:
        facts["problems"] = problems
    _finish(facts, as_json=as_json)
    for path in report or [] if not as_json else []:
        say(f"{path}: {'the abstraction is good enough' if not problems else 'the abstraction is NOT good enough'}")


def _target(out: Path | None, append: Path | None) -> Path:
    if (out is None) == (append is None):
        raise ModelError("give --out MODEL.npz for a new model, or --append MODEL.npz for a learned one")
    target = out or append
    assert target is not None
    if target.suffix != ".npz":
        raise ModelError(f"{target}: the name of a model ends with .npz")
    return target


def _refuse_options(given: dict[str, Any]) -> None:
    wrong = [name for name, value in given.items() if value not in (None, [])]
    if wrong:
        raise ModelError(
            f"--{wrong[0].replace('_', '-')} cannot be given with --append: a learned model keeps its columns, states "
            "and labels; learn a new one"
        )


def _files(given: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES)
            if not inside:
                raise RecordingError(f"{path}: there is no file of {', '.join(SUFFIXES)} in it")
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _source(path: Path, topic: str) -> RowFile:
    from monitor.learning.files import open_rows  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.recorded_rows import RecordedRows, is_recording  # noqa: PLC0415 - likewise

    if not path.exists():
        raise RecordingError(f"{path}: there is no such file")
    return RecordedRows(path, topic) if is_recording(path) else open_rows(path)


def _computed(source: RowFile, function: str) -> RowFile:
    from monitor.learning.functions import Computed, state_function  # noqa: PLC0415 - keep `cfmon --help` light

    return Computed(source, *state_function(function)) if function else source


def _resumed(model: Path) -> Learner:
    from monitor.learning.companion import companion_of, load_learner  # noqa: PLC0415 - keep `cfmon --help` light

    return load_learner(companion_of(model))


def _begun(sources: Sequence[RowFile], target: Path, given: dict[str, Any], said: dict[str, Any], seed: int) -> Learner:
    """Return a learner for new files: columns guessed from the first one, and bins computed from all."""
    from monitor.learning.abstraction import Numbering  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.learning.columns import guessed  # noqa: PLC0415 - likewise
    from monitor.learning.companion import companion_of  # noqa: PLC0415 - likewise
    from monitor.learning.functions import state_function  # noqa: PLC0415 - likewise
    from monitor.learning.learner import Learner, labels_of  # noqa: PLC0415 - likewise

    if companion_of(target).exists():
        raise ModelError(
            f"{companion_of(target)} already exists; add to it or continue it with --append {target}, or remove it"
        )
    kind, bins = said["abstraction"], said["bins"]
    function = kind if kind is not None and ":" in kind else ""
    if kind is not None and not function and kind not in ("index", "name", "values"):
        raise ModelError(f"--abstraction {kind}: give index, name, values or FILE.py:FUNCTION; for bins: --bins")
    if kind is not None and bins is not None:
        raise ModelError("give --bins or --abstraction, not both")
    names = sources[0].names()
    if function:
        given = given | {"state": state_function(function)[0]}
        names = (str(given["state"]), *names)
    roles = guessed(names, given, str(sources[0].path))
    conditions = labels_of(said["label"], said["unsafe"], roles, names)
    roles = _with_columns(roles, [column for condition, _ in conditions for column in condition.columns], names)
    states = None if kind is None or function else Numbering(kind, roles.state)
    if bins is not None:
        states = _binned(sources, roles.state, bins, seed)
    if states is not None and states.kind in ("index", "name") and len(roles.state) > 1:
        raise ModelError(f"--abstraction {kind}: it takes one column of the state, not {', '.join(roles.state)}")
    learner = Learner.new(roles, states, conditions, 1.0 if said["prior"] is None else said["prior"])
    learner.function = function
    return learner


def _with_columns(roles: Any, columns: Sequence[str], names: Sequence[str]) -> Any:  # noqa: ANN401 - Roles, imported late
    return replace(roles, others=tuple(dict.fromkeys(column for column in columns if column in names)))


def _binned(sources: Sequence[RowFile], columns: tuple[str, ...], spec: str, seed: int) -> Any:  # noqa: ANN401 - a Numbering
    """Return the bins of the columns, by a first pass over all files."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.learning.abstraction import Numbering  # noqa: PLC0415 - likewise
    from monitor.learning.batch import as_numbers  # noqa: PLC0415 - likewise
    from monitor.learning.bins import Reservoir, edges_of, parsed_bins  # noqa: PLC0415 - likewise

    specs = parsed_bins(spec)
    sample = Reservoir(len(columns), np.random.default_rng(seed))
    with _bar("computing bins", sources) as bar:
        for source, before in _with_sizes(sources):
            for batch in source.batches(columns):
                rows = np.column_stack([as_numbers(batch, name) for name in columns])
                sample.add(rows[np.isfinite(rows).all(axis=1)])
                bar.at(before + source.position)
            source.position = 0
    if not sample.seen:
        raise RecordingError(f"{sources[0].path}: no row has finite numbers in {', '.join(columns)}")
    return Numbering("bins", columns, edges_of(columns, specs, sample))


def _bar(what: str, sources: Sequence[RowFile]) -> Any:  # noqa: ANN401 - a context manager of a Bar
    return progress(what, total=sum(source.path.stat().st_size for source in sources) or None)


def _with_sizes(sources: Sequence[RowFile]) -> list[tuple[RowFile, int]]:
    sizes = [source.path.stat().st_size for source in sources]
    return [(source, sum(sizes[:i])) for i, source in enumerate(sources)]


def _holdout(reports: Sequence[Path], seed: int) -> Holdout | None:
    from monitor.learning.holdout import Holdout  # noqa: PLC0415 - keep `cfmon --help` light

    for path in reports:
        if path.suffix not in (".html", ".md"):
            raise ModelError(f"--report {path}: the name ends with .html or .md")
    return Holdout(seed) if reports else None


def _report(learner: Learner, model: MDP, holdout: Holdout, paths: Sequence[Path]) -> list[str]:
    """Write the report; return why the abstraction is not good enough, or nothing."""
    from monitor.cli.learn_report import as_html, as_markdown  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.learning.build import numbered  # noqa: PLC0415 - likewise
    from monitor.learning.report import reported  # noqa: PLC0415 - likewise

    assert learner.states is not None
    if not holdout.train.draws:
        raise ModelError("--report needs steps that are counted in this run; these files were counted before")
    unsafe = [label.name for label in learner.labels if label.unsafe]
    with progress("computing the report"):
        states = numbered(learner.tally, learner.states)
        found = reported(model, states, holdout, [label.name for label in learner.labels], unsafe)
        found = replace(found, problems=(*_mixed(_missed_by_label(learner)), *found.problems))
    for path in paths:
        text = (as_html if path.suffix == ".html" else as_markdown)(found, model.source)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ModelError(f"{path}: cannot be written: {error.strerror}") from error
    return list(found.problems)


def _count(learner: Learner, sources: Sequence[RowFile], target: Path, holdout: Holdout | None) -> tuple[int, int]:
    """Count the files that were not counted yet, keeping the counts after each; return how many, and how many not."""
    from monitor.learning.companion import companion_of, save_learner  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.learning.files import digest_of  # noqa: PLC0415 - likewise

    known = set(learner.files)
    with _bar("counting", sources) as bar:
        for source, before in _with_sizes(sources):
            digest = digest_of(source.path)
            if digest in learner.files:
                continue
            _read(learner, source, bar, before, holdout)
            learner.files.append(digest)
            save_learner(learner, companion_of(target))
    new = len(set(learner.files) - known)
    return new, len(sources) - new


def _read(learner: Learner, source: RowFile, bar: Bar, before: int, holdout: Holdout | None) -> None:
    names = source.names()
    missing = [name for name in learner.roles.used if name not in names and not _is_optional(name, learner)]
    if missing:
        raise RecordingError(f"{source.path}: there is no column {missing[0]!r}; it has {', '.join(names)}")
    learner.begin_file()
    rows = learner.rows
    for batch in source.batches(learner.roles.used):
        steps = learner.read(batch)
        if holdout is not None:
            holdout.add(steps)
        bar.at(before + source.position, f"counting {source.path.name}: {learner.rows - rows:,} rows")
    if learner.rows == rows:
        raise RecordingError(f"{source.path}: has no rows")


def _is_optional(name: str, learner: Learner) -> bool:
    """Return whether a recording may lack the column: an agent may send neither rewards nor actions."""
    return learner.roles.timing == "state" and name in (learner.roles.reward, learner.roles.action)


def _write(learner: Learner, target: Path) -> MDP:
    from monitor.model.io import save_model  # noqa: PLC0415 - keep `cfmon --help` light

    with progress(f"writing {target}"):
        model = learner.model(str(target))
        save_model(model, target)
    return model


def _show_roles(learner: Learner, paths: Sequence[Path]) -> None:
    say(f"{paths[0]}{'' if len(paths) == 1 else f' and {len(paths) - 1} more'}: columns")
    for line in learner.roles.lines():
        say(f"  {printable(line)}")


def _facts(learner: Learner, model: MDP, target: Path) -> dict[str, Any]:
    from monitor.model.io import model_sha256  # noqa: PLC0415 - keep `cfmon --help` light

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
        "episodes": int(table["starts"].sum()),
        "pairs seen": seen,
        "pairs": learner.states.size * model.actions,
        "gaps": tally.gaps,
        "next states that differ": tally.mismatches,
        "labels": {label.name: int(model.labels[label.name].sum()) for label in learner.labels},
        "label missed": _missed_by_label(learner),
        "state encoder": ENCODERS[learner.states.kind],
        "ends not recorded": sum(code < 4096 for code in table.keys.tolist()),
    }


def _missed_by_label(learner: Learner) -> dict[str, float | None]:
    table = learner.tally.visited
    return {label.name: _missed(table["true"][:, i], table["seen"]) for i, label in enumerate(learner.labels)}


def _mixed(missed: dict[str, float | None]) -> list[str]:
    """Return a sentence for each label that the states do not separate."""
    return [
        f"{printable(name)}: {part:.0%} of the visits where its condition holds are in states that do not "
        "have the label, because it does not hold in most of their visits; use other bins or columns"
        for name, part in missed.items()
        if part is not None and part > MISSED
    ]


def _missed(true: Any, seen: Any) -> float | None:  # noqa: ANN401 - arrays
    """Return the fraction of the visits where a label's condition holds that are in states without the label.

    None if the condition holds nowhere.
    """
    total = int(true.sum())
    return float(true[2 * true <= seen].sum()) / total if total else None


def _finish(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    if facts["files skipped"]:
        say(f"skipped, because counted before: {_many(facts['files skipped'], 'file')}")
    target = facts["model"]
    say(
        f"{target}: {_many(facts['transitions counted'], 'transition')} in {_many(facts['episodes'], 'episode')}; "
        f"{_many(facts['states'], 'state')}, {_many(facts['actions'], 'action')}; {facts['pairs seen']:,} of "
        f"{_many(facts['pairs'], 'pair')} (state, action) seen"
    )
    for name, count in facts["labels"].items():
        say(f"{target}: {printable(name)} holds in {_many(count, 'state')}")
    for line in dict.fromkeys([*_notes(facts), *facts.get("problems", [])]):
        say(f"{target}: {line}")
    say(f"{target}: sha256 {facts['sha256']}; in a configuration: state_encoder: {facts['state encoder']}")


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _notes(facts: dict[str, Any]) -> list[str]:
    notes = []
    for name, missed in facts["label missed"].items():
        if missed is None:
            notes.append(f"{printable(name)}: its condition holds in no row")
    notes += _mixed(facts["label missed"])
    if facts["gaps"]:
        notes.append(f"{_many(facts['gaps'], 'gap')}: a step is missing there, and no transition is counted across it")
    if facts["messages dropped"]:
        dropped = _many(facts["messages dropped"], "message")
        notes.append(f"{dropped} left out: no steps, or late, or delivered twice")
    if facts["next states that differ"]:
        count = _many(facts["next states that differ"], "row")
        notes.append(f"in {count} the next state is not the state of the row after; check --next-state")
    if facts["ends not recorded"] > 1:
        notes.append(
            "episodes end in different ways, but the state at the end is not recorded; the last message of a live "
            "agent may then contradict the model. Record the state after each step (--next-state)"
        )
    return notes
