"""`cfmon model learn --dynamics`: learn a world with numbers from recorded steps; write its graphs and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from monitor.atomic import write_file
from monitor.authoring.learning.left_out import LeftOut, RowLimit
from monitor.cli.output import print_json, progress, say
from monitor.cli.recorded_inputs import many, notes_on_reading, show_roles
from monitor.cli.report_page import write_page
from monitor.errors import ModelError, printable

if TYPE_CHECKING:
    from monitor.authoring.dynamics.judgement import Judgement
    from monitor.authoring.dynamics.label_rules import FeatureLabel
    from monitor.authoring.dynamics.learned_world import Candidate, Draft, Parts, Score
    from monitor.authoring.dynamics.steps import RecordedSteps
    from monitor.authoring.learning.columns import Roles
    from monitor.authoring.learning.row_files import RowFile

FITS: Final = 16
WRITTEN: Final = ("{0}.scale.onnx", "{0}.fits/{0}.fit*.yaml", "{0}.fits/{0}.fit*.onnx")
"""Patterns of files that not every world has; {0} is the stem of the manifest.

Such files of an earlier world with the same name are removed.
"""
Fits = Annotated[
    int, typer.Option(help="fits to resampled episodes, for the credible band; 39 for a level of .95 (--dynamics)")
]


def learn_dynamics(
    sources: Sequence[RowFile],
    target: Path,
    given: Mapping[str, object],
    *,
    labels: Sequence[str],
    inputs: str | None,
    seed: int,
    fits: int,
    reports: Sequence[Path],
    limit: RowLimit,
    as_json: bool,
) -> None:
    """Learn a world from recordings, write it, and report whether it is good enough.

    Args:
        sources: the recordings.
        target: path of the manifest; graphs and recorded inputs are written beside it.
        given: the fields of `Roles` that the user has set.
        labels: `NAME: CONDITION` on features.
        inputs: the columns that the agent does not influence, `NAME,NAME`.
        seed: seed of the held-out episodes and of the fits.
        fits: number of fits to resampled episodes, for the credible band.
        reports: paths of the report.
        limit: number of rows that may be left out.
        as_json: print one JSON document.
    """
    from monitor.authoring.dynamics.learned_world import with_fits  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.cli.dynamics_report import page_of  # noqa: PLC0415 - likewise

    checked_fits(fits)
    roles = world_roles(sources[0], given, inputs)
    if not as_json:
        show_roles(role_lines(roles), sources)
    found = learned_world(sources, target.stem, roles, labels, seed, limit=limit)
    steps, draft, best, judgement = found.steps, found.draft, found.best, found.judgement
    with progress(f"fitting to {fits} resamples"):
        write_world(with_fits(best, draft, found.parts, seed, fits), target)
    write_page(page_of(judgement, str(target), found.scored, fits), reports)
    _finish(
        {
            "world": str(target),
            "version": best.manifest.version,
            "steps": len(steps),
            "more rows": steps.full,
            "rows left out": found.left_out.document(),
            "notes on rows": found.notes,
            "paths": len(set(steps.path.tolist())),
            "features": [each.name for each in draft.features],
            "inputs": [each.name for each in draft.inputs],
            "recorded inputs": best.world.recorded_steps,
            "actions": list(draft.actions),
            "labels": {label: float(best.world.holds(label, steps.x_next).mean()) for label in draft.labels},
            "candidates": [asdict(each) for each in found.scored],
            "chosen": best.name,
            "fits": fits,
            "checks": asdict(judgement),
        },
        reports or [target],
        as_json=as_json,
    )


def checked_fits(fits: int) -> int:
    """Return the number of fits. Raises ModelError if it is too small for a band, or too large."""
    from monitor.worlds.world_manifest import MOST_FITS  # noqa: PLC0415 - keep `cfmon --help` light

    if fits and not 2 <= fits <= MOST_FITS:
        raise ModelError(f"--fits is {fits}; give 2 to {MOST_FITS}, or 0 for no credible band")
    return fits


@dataclass(frozen=True, eq=False)
class LearnedWorld:
    """A learned world.

    `parts`: parts of the steps, for fitting, choosing and checking. `best`: the chosen world. `scored`: scores of the
    compared worlds. `judgement`: judgement of `best`. `left_out`: rows that were not used. `notes`: sentences on the
    reading of rows.
    """

    steps: RecordedSteps
    draft: Draft
    parts: Parts
    best: Candidate
    scored: Sequence[Score]
    judgement: Judgement
    left_out: LeftOut
    notes: list[str]


def learned_world(
    sources: Sequence[RowFile],
    stem: str,
    roles: Roles,
    labels: Sequence[str],
    seed: int,
    *,
    limit: RowLimit,
    as_tables: bool = False,
) -> LearnedWorld:
    """Return the world that is learned from recordings.

    `stem`: stem of the names of its files. `roles`: result of `world_roles`. `limit`: number of rows that may be left
    out. `as_tables`: check the world on the same held-out episodes as a table that is learned from these recordings.
    Raises RecordingError or ModelError.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.dynamics.judgement import judged  # noqa: PLC0415 - likewise
    from monitor.authoring.dynamics.label_rules import rule_of  # noqa: PLC0415 - likewise
    from monitor.authoring.dynamics.learned_world import (  # noqa: PLC0415 - likewise
        candidates,
        chosen,
        split,
        unchanged,
        with_recorded_actions,
        with_recorded_inputs,
    )
    from monitor.authoring.dynamics.odd_readings import odd_readings  # noqa: PLC0415 - likewise
    from monitor.authoring.dynamics.steps import read_steps  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.holdout import held_out  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.state_codes import MAX_LABELS  # noqa: PLC0415 - likewise

    found = _feature_labels(roles, labels, sources[0].names())
    flagged = [part for label in found for part in label.parts]
    conditions = [*flagged, *(label.condition for label in found)]
    if len(conditions) > MAX_LABELS:
        raise ModelError(f"{len(conditions)} labels and flags in labels are more than {MAX_LABELS}")
    with progress("reading the recordings"):
        steps = read_steps(sources, roles, left_out := LeftOut(), limit, conditions)
    rules = {}
    for number, part in enumerate(flagged):
        if part.text in rules:  # also a part of another label
            continue
        assert steps.visits is not None
        with progress(f"looking for a rule for {part.text!r}"):
            rules[part.text] = rule_of(part, found[0].names, steps.visits, number, seed)
    odd = odd_readings(steps)
    usual = steps[~odd.steps]
    draft = _draft(stem, roles, usual, {each.condition.name: each.with_rules(rules) for each in found})
    episodes = np.unique(usual.episode)
    parts = split(usual, seed, episodes[held_out(episodes, seed, 0.2)] if as_tables else None)
    with progress("fitting worlds with numbers"):
        best, scored = chosen(candidates(draft, parts, seed), parts)
        best = with_recorded_actions(with_recorded_inputs(best, draft, parts), draft, parts)
    with progress("checking the world"):
        judgement = judged(best, unchanged(draft, parts), parts, seed)
    notes = notes_on_reading(left_out, steps.gaps, steps.step, steps.joined, roles.order)
    notes += [*odd.in_words((*roles.state, *roles.inputs)), *(rule.said for rule in rules.values())]
    return LearnedWorld(steps, draft, parts, best, scored, judgement, left_out, notes)


def world_roles(source: RowFile, given: Mapping[str, object], inputs: tuple[str, ...] | str | None) -> Roles:
    """Return the roles of columns, without observations.

    `inputs`: the columns of inputs; None: the columns that messages use for inputs.
    """
    from monitor.authoring.learning.columns import guessed  # noqa: PLC0415 - keep `cfmon --help` light

    roles = guessed(source.names(), {**given, "inputs": inputs}, str(source.path), source.left_out)
    return replace(roles, observation=())


def role_lines(roles: Roles) -> list[str]:
    """Return the lines on the roles that are shown before learning."""
    none = [] if roles.inputs else [f"{'inputs':<12}none: the agent influences all columns of the state"]
    return [*(line for line in roles.lines() if not line.startswith("reward")), *none]


def _feature_labels(roles: Roles, labels: Sequence[str], columns: Sequence[str]) -> list[FeatureLabel]:
    """Return the labels with the names of the features.

    Raises ModelError if a condition cannot be parsed, or uses a name that is neither a feature nor one of the columns.
    """
    from monitor.authoring.dynamics.label_rules import FeatureLabel  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.dynamics.ranges import plain_names  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.conditions import parsed  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.learner import labels_of  # noqa: PLC0415 - likewise

    names = plain_names((*roles.state, *roles.inputs))[: len(roles.state)]
    found = [FeatureLabel(parsed(text), names) for text in labels]
    for part in [part for label in found for part in label.parts]:
        labels_of([f"{part.name}: {part.text}"], (), roles, columns)
    return found


def _draft(stem: str, roles: Roles, steps: RecordedSteps, labels: Mapping[str, str]) -> Draft:
    """Return the description of the world. `labels`: name -> condition on features."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.dynamics.learned_world import Draft  # noqa: PLC0415 - likewise
    from monitor.authoring.dynamics.ranges import features_of, inputs_of, plain_names  # noqa: PLC0415 - likewise

    names, count = plain_names((*roles.state, *roles.inputs)), len(roles.state)
    return Draft(
        stem,
        features_of(names[:count], np.concatenate([steps.x, steps.x_next])),
        inputs_of(names[count:], steps.w),
        steps.actions,
        dict(labels),
    )


def write_world(world: Candidate, target: Path) -> None:
    """Write a manifest and its graphs, remove other files of an earlier world, and check that the world can be loaded.

    Raises ModelError.
    """
    from monitor.worlds import load_world  # noqa: PLC0415 - keep `cfmon --help` light

    folder, files = target.parent, {**world.files, target.name: world.text.encode()}
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            write_file(path, content)
        for pattern in WRITTEN:
            for path in folder.glob(pattern.format(escape(target.stem))):
                if path.relative_to(folder).as_posix() not in files:
                    path.unlink()
        fits = folder / f"{target.stem}.fits"
        if fits.is_dir() and not any(fits.iterdir()):
            fits.rmdir()
    except OSError as error:
        raise ModelError(f"{target}: cannot be written: {error.strerror}") from error
    load_world(target)


def _finish(facts: dict[str, Any], named: Sequence[Path], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    target, checks = facts["world"], facts["checks"]
    parts = [many(len(facts[part]), part.removesuffix("s")) for part in ("features", "inputs", "actions")]
    say(f"{target}: {many(facts['steps'], 'step')} in {many(facts['paths'], 'path')}; {', '.join(parts)}")
    for line in facts["notes on rows"]:
        say(f"{target}: {printable(line)}")
    if facts["more rows"]:
        say(f"{target}: there are more rows, which were not read")
    if count := facts["recorded inputs"]:
        say(f"{target}: inputs to come are resampled from {many(count, 'recorded step')}")
    for label, fraction in facts["labels"].items():
        say(f"{target}: {printable(label)} holds after {fraction:.2%} of the steps")
    gain, error = checks["gain"]
    say(f"{target}: {facts['chosen']}; {gain:.3f} +- {error:.3f} nats a step better than the last value as a forecast")
    if facts["fits"]:
        say(f"{target}: {many(facts['fits'], 'fit')} to resampled episodes, for the credible band of answers")
    for problem in checks["problems"]:
        say(f"{target}: {printable(problem)}")
    for path in named:
        say(f"{path}: the world is {'NOT ' if checks['problems'] else ''}good enough")
