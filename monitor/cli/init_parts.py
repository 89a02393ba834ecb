"""The parts of `cfmon init`: the model and its paths, the policies, the measurement. All files are written, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monitor.atomic import hidden_folder
from monitor.cli.exporting import warn_of_pickles
from monitor.cli.init_files import config_text, takeover_text, written_sample
from monitor.cli.init_learned import learned_base
from monitor.cli.init_move import move_files
from monitor.cli.init_table import simulated_table
from monitor.cli.output import progress, warned
from monitor.errors import ConfigError, MonitorError, printable

if TYPE_CHECKING:
    from monitor.authoring.proposal.hold import Guarded
    from monitor.authoring.proposal.measure import Measured
    from monitor.authoring.proposal.model_quality import ModelQuality
    from monitor.cli.init_base import InitBase, InitRequest
    from monitor.cli.report_page import ReportRow, ReportSection
    from monitor.types.verdicts import RestsOn

SETTINGS: Final = "init.yaml"

FILES: Final = (
    SETTINGS,
    "model.npz", "model.learn.npz", "world.yaml", "world.location.onnx", "world.scale.onnx", "world.inputs.csv",
    "world.fits", "nominal.onnx", "nominal.yaml", "fallback.onnx", "fallback.yaml", "config.yaml", "takeover.yaml",
    "sample.rec", "report.html", "report.md",
)  # fmt: skip

DAY: Final = 86_400.0
"""Seconds in a day."""


@dataclass(frozen=True)
class InitResult:
    """The written files and the measurements.

    `base`: the model. `rows`: measurements of the candidates; `best`: the chosen one; `rule`: why it was chosen.
    `files`: names of the written files. `sample`: whether a recorded path with an alarm was written. `guards`: the
    effect of a guard for each `hold`. `hold`: the proposed length of takeovers, if any. `quality`: of the
    model.
    """

    folder: Path
    base: InitBase
    rows: Sequence[Measured]
    best: Measured
    rule: str
    files: Sequence[str]
    sample: bool
    guards: Sequence[Guarded]
    hold: int | None
    quality: ModelQuality


class RefusedError(Exception):
    """The model is no better than the base rate, so no formula is proposed.

    `quality`: the numbers. `notes`: sentences on how the model was made.
    """

    def __init__(self, quality: ModelQuality, notes: Sequence[str]) -> None:
        super().__init__("no better than the base rate")
        self.quality, self.notes = quality, notes


def check_folder(folder: Path, settings: Path | None, *, force: bool) -> None:
    """Raise ConfigError if the folder cannot be written, or if it already has one of the files to write.

    `settings`: the given settings file.
    """
    present = [folder / name for name in FILES if (folder / name).exists()]
    present = [path for path in present if settings is None or not path.samefile(settings)]
    if present and not force:
        raise ConfigError(f"{present[0]} already exists; choose another folder, or give --force")
    parent = folder.absolute().parent
    if not parent.is_dir():
        raise ConfigError(f"{folder}: there is no folder {parent}; make it first")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder")


def prepared(request: InitRequest) -> InitResult:
    """Write the folder and return what was written. After an error, the folder is unchanged."""
    from monitor.authoring.policy_export.original import ExportRequest as PolicyRequest  # noqa: PLC0415 - keep `cfmon --help` light

    given = (request.nominal, request.fallback)
    warn_of_pickles(*(PolicyRequest(source) for source in given if source is not None))
    try:
        with hidden_folder(request.folder.absolute().parent) as staging:
            result, sampled = _built(request, staging)
            # `sampled` is called last, because a recording has a digest of the configuration's absolute paths
            names = sorted({*FILES, *(each.name for each in staging.iterdir())})
            files = move_files(staging, request.folder, names, sampled)
    except OSError as error:
        raise ConfigError(f"{error.filename or request.folder}: cannot be written: {error.strerror}") from error
    return replace(result, files=[*files, *(["sample.rec"] if result.sample else [])])


def _built(request: InitRequest, staging: Path) -> tuple[InitResult, Callable[[], None]]:
    from monitor.authoring.proposal.hold import proposed  # noqa: PLC0415 - likewise
    from monitor.authoring.proposal.model_quality import AlarmRates  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.proposal.rules import candidates, chosen, horizon_of  # noqa: PLC0415 - likewise

    (staging / SETTINGS).write_text(request.record, "utf-8")
    base = simulated_table(request, staging) if request.simulator else learned_base(request, staging)
    base.write_nominal(request, staging)
    horizon = horizon_of(base.paths, base.unsafe)
    found = _quality(request, base, horizon)
    if found.refused and not request.accept:
        raise RefusedError(found, base.notes)
    base.write_fallback(request, horizon, staging)
    found = replace(found, problems=base.problems)
    total = sum(len(path.states) for path in base.paths)
    with progress("measuring candidate formulas", total=total) as bar, warned():
        useful = {each.horizon for each in found.skills if each.better or not each.known or found.refused}
        every = candidates(horizon, base.label, request.offset, request.alarm)
        rows = base.measured([each for each in every if each.horizon in useful], bar.at)
    first, rule = chosen(rows)
    no_bounds, bases = _configure(request, base, first, staging)
    with progress("replaying the chosen formula", total=total) as bar, warned():
        best = base.replayed(first, staging / "config.yaml", bar.at)
    found = replace(found, alarms=AlarmRates(best), horizon=best.candidate.horizon, bases=bases)
    text = config_text(best, base, request.topic, no_bounds=no_bounds, doubt=found.worst_problem)
    (staging / "config.yaml").write_text(text, "utf-8")
    rows = [best if row is first else row for row in rows]
    with progress("comparing lengths of takeovers"):
        guards = base.guards(best.candidate)
    hold = proposed(guards)
    text = takeover_text(base, guards, hold)
    (staging / "takeover.yaml").write_text(text, "utf-8")

    def sampled() -> None:
        if best.first is not None:
            path = base.paths[best.first]
            written_sample(base.sent(path), path, base.action_names, request.folder, request.topic)

    if not any(row.events for row in rows):
        base.notes.append(f"WARNING: no step of the paths measured enters {base.label!r}; the threshold is a guess")
    sample = best.first is not None
    _write_report(request, base, found, staging)
    result = InitResult(
        request.folder,
        base,
        rows,
        best,
        rule,
        (),
        sample=sample,
        guards=guards,
        hold=hold,
        quality=found,
    )
    return result, sampled


def _quality(request: InitRequest, base: InitBase, horizon: int) -> ModelQuality:
    """Return the quality of the model before any formula is measured."""
    from monitor.authoring.proposal.model_quality import ModelQuality  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.proposal.rules import horizons  # noqa: PLC0415 - likewise

    assert base.judge is not None
    with progress("judging the forecasts"):
        skills = tuple(base.judge.skills(base.label, horizons(horizon)))
    unjudged = []
    if not any(each.known for each in skills):
        unjudged.append(f"forecasts, as {base.label!r} always or never happens on held-out recordings")
    if not base.past:
        unjudged.append("whether the past still tells something beyond the checks of the report on the model")
    seconds = request.step_seconds or base.step_seconds
    day = None if seconds is None else DAY / seconds
    if day is None:
        unjudged.append("alarms a day, as the recordings hold no times of a calendar (--step-seconds says it)")
    return ModelQuality(base.label, skills, base.problems, base.past, day=day, unjudged=tuple(unjudged))


def _write_report(request: InitRequest, base: InitBase, found: ModelQuality, staging: Path) -> None:
    from monitor.cli.quality_report import page_of  # noqa: PLC0415 - likewise
    from monitor.cli.report_page import write_page  # noqa: PLC0415 - keep `cfmon --help` light

    about = f"Formulas were measured on {base.measured_on}."
    rows: list[ReportRow] = [(printable(note),) for note in base.notes]
    notes: ReportSection = ("How it was made", "What `cfmon init` says.", ("note",), rows)
    sections, charts = base.pages
    page = page_of([("", found)], str(request.folder), about, ([*sections, notes], charts))
    write_page(page, [staging / "report.html", staging / "report.md"])


def _configure(
    request: InitRequest, base: InitBase, best: Measured, staging: Path
) -> tuple[str, Mapping[str, RestsOn]]:
    """Write a configuration that the monitor accepts.

    Return why bounds over causal models are left out ("" if they are not), and the recordings behind the values.
    """
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - keep `cfmon --help` light

    file, no_bounds = staging / "config.yaml", ""
    with progress("checking the configuration"), warned():
        try:
            file.write_text(config_text(best, base, request.topic), "utf-8")
            loaded = assemble(file, {})
        except MonitorError as error:
            why = " ".join(str(error).split())
            text = config_text(best, base, request.topic, no_bounds=why)
            file.write_text(text, "utf-8")
            loaded, no_bounds = assemble(file, {}), why
        (bases,) = loaded.monitor.rests_on().values()
    return no_bounds, bases
