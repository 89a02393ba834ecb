"""`cfmon audit`: which alarms would this configuration have raised on recordings of several months?"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monitor.atomic import remove_abandoned, write_file
from monitor.cli.output import print_json, progress, say
from monitor.errors import ConfigError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.audit.gaps import Gaps
    from monitor.audit.plan import Day
    from monitor.audit.results import AlarmDifferences, Findings
    from monitor.sidecar.config.load import Loaded


def audit(
    config: Annotated[Path, typer.Argument(help="configuration file (YAML): formulas, policies and model to audit")],
    recordings: Annotated[list[Path], typer.Argument(metavar="RECORDING...", help="recordings as Parquet, in order")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="results; a stopped audit goes on there")],
    *,
    against: Annotated[
        Path | None, typer.Option(metavar="PATH", help="compare with another audit, or with output of `cfmon replay`")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="processes; default: one for each core")] = None,
    scheduler: Annotated[str | None, typer.Option(metavar="ADDRESS", help="scheduler of a Dask cluster")] = None,
    in_order: Annotated[bool, typer.Option("--in-order", help="all agents in the order of one process")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Evaluate recordings again: which alarms would these formulas, policies and this model have raised?

    First report what is missing in the recordings. Write alarms, judged takeovers and the page report.html to FOLDER.
    Days and buckets of agents that are already in FOLDER are not computed again.
    """
    from monitor.audit.gaps import find_gaps  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.audit.plan import days_of, opened, partitions  # noqa: PLC0415 - likewise
    from monitor.audit.results import changes, findings, raised_before  # noqa: PLC0415 - likewise
    from monitor.audit.schedule import run_all  # noqa: PLC0415 - likewise
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - likewise

    with progress("reading the configuration, the model and the policies"):
        loaded = assemble(config)
    days = days_of(opened(recordings, loaded), loaded)
    _claim(out, loaded, in_order=in_order)
    with progress("looking for gaps"):
        gaps = find_gaps(days)
    if not as_json:
        _show_gaps(days, gaps)
    plan = partitions(days, loaded, config.absolute(), out.absolute(), in_order=in_order)
    count = workers or len(os.sched_getaffinity(0))
    with progress("evaluating", total=sum(map(len, plan.values()))) as bar:
        run_all(plan, bar.at, workers=count, scheduler=scheduler)
    found = findings(plan)
    notes = [*gaps.lines(), *_limits(found, gaps, loaded, in_order=in_order)]
    change = None if against is None else changes(raised_before(against), found.raised)
    before = None if change is None else (str(against), change)
    _write(out / "report.html", config, days, found=found, notes=notes, before=before)
    if as_json:
        print_json(_document(out, found, gaps, notes, change))
    else:
        _show(out, found, notes[len(gaps.lines()) :], change)


def _claim(out: Path, loaded: Loaded, *, in_order: bool) -> None:
    """Make the folder, with a file that identifies the audit. Raises ConfigError if the folder holds another audit."""
    about = {"config_sha256": loaded.config.digest, "world": loaded.inputs_digest, "in_order": in_order}
    file = out / "audit.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        remove_abandoned(out)
        if not file.exists():
            if any(out.iterdir()):
                raise ConfigError(f"{out}: is not empty and holds no audit; choose another folder")
            write_file(file, f"{json.dumps(about, indent=1)}\n".encode())
        elif json.loads(file.read_bytes()) != about:
            raise ConfigError(f"{out}: holds the audit of another configuration or order; choose another folder")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{out}: cannot be used: {reason}; choose another folder") from error


def _limits(found: Findings, gaps: Gaps, loaded: Loaded, *, in_order: bool) -> list[str]:
    """Return why the alerts of separate buckets may differ from those of one process for all agents, with advice."""
    if in_order:
        return []
    most = loaded.config.limits.agents
    reasons = [
        (found.limited, f"{found.limited:,} evaluations had more steps than one process evaluated at once"),
        (gaps.agents > most, f"the recordings have {gaps.agents:,} agents, and limits.agents is {most:,}"),
        (found.counts["rejected"], "transitions contradict the model, and each bucket tests it by itself"),
    ]
    advice = "alerts may differ from those of one process; --in-order in another folder gives these"
    return [f"{reason}: {advice}" for holds, reason in reasons if holds]


def _show_gaps(days: Sequence[Day], gaps: Gaps) -> None:
    say(f"{gaps.steps:,} steps of {gaps.agents:,} agents, {days[0].name} to {days[-1].name}")
    for line in gaps.lines() or ["no gaps"]:
        say(f"  {printable(line)}")
    worst = sorted(gaps.missing.items(), key=lambda each: -each[1])[:5]
    for (agent, day), count in worst:
        say(f"    {printable(agent)} on {day}: {count:,} steps missing")


def _show(out: Path, found: Findings, notes: Sequence[str], change: AlarmDifferences | None) -> None:
    for note in notes:
        say(f"note: {note}")
    say(f"{len(found.raised):,} alarms, {found.counts['verdicts']:,} verdicts on {found.counts['accepted']:,} steps")
    for name in sorted({alarm.formula for alarm in found.raised}):
        mine = [alarm for alarm in found.raised if alarm.formula == name]
        say(f"  {printable(name)}: {len(mine):,}, of {len({alarm.agent for alarm in mine}):,} agents")
    for (formula, policy, outcome), count in sorted(found.takeovers.items()):
        say(printable(f"  takeovers by {policy!r}, {formula}: {count:,} {outcome}"))
    if change is not None:
        say(
            f"compared: {len(change.same):,} at the same step, {len(change.moved):,} at another step, "
            f"{len(change.only_before):,} before only, {len(change.only_now):,} now only"
        )
    say(f"{out / 'report.html'}")


def _write(
    file: Path,
    config: Path,
    days: Sequence[Day],
    *,
    found: Findings,
    notes: Sequence[str],
    before: tuple[str, AlarmDifferences] | None,
) -> None:
    from monitor.audit.audit_page import page  # noqa: PLC0415 - keep `cfmon --help` light

    inputs = [
        ("configuration", str(config)),
        ("recordings", ", ".join(dict.fromkeys(str(day.recording.path) for day in days))),
        ("days", f"{days[0].name} to {days[-1].name}"),
        ("steps", f"{found.counts['accepted']:,}"),
        ("verdicts", f"{found.counts['verdicts']:,}"),
    ]
    text = page(
        f"Audit of {config.name}",
        days=[day.name for day in days],
        found=found,
        notes=notes,
        inputs=inputs,
        before=before,
    )
    try:
        write_file(file, text.encode())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from error


def _document(
    out: Path, found: Findings, gaps: Gaps, notes: Sequence[str], change: AlarmDifferences | None
) -> dict[str, Any]:
    return {
        "report": str(out / "report.html"),
        "notes": list(notes),
        "gaps": {
            **{name: getattr(gaps, name) for name in ("agents", "steps", "invalid", "lost", "days", "newest")},
            "missing": [{"agent": agent, "day": day, "steps": n} for (agent, day), n in sorted(gaps.missing.items())],
            "cut": [{"agent": agent, "day": day, "episodes": n} for (agent, day), n in sorted(gaps.cut.items())],
        },
        "counts": dict(found.counts),
        "seconds": found.seconds,
        "alarms": [asdict(alarm) for alarm in found.raised],
        "takeovers": [
            {"formula": formula, "policy": policy, "outcome": outcome, "takeovers": n}
            for (formula, policy, outcome), n in sorted(found.takeovers.items())
        ],
        "changes": None
        if change is None
        else {
            "same": len(change.same),
            "moved": [{"before": asdict(old), "now": asdict(new)} for old, new in change.moved],
            "only_before": [asdict(alarm) for alarm in change.only_before],
            "only_now": [asdict(alarm) for alarm in change.only_now],
        },
    }
