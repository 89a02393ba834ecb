"""`cfmon init`: make a model, policies and a measured configuration from recordings or from a simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import to_builtins

from monitor.cli.learn_dynamics import Fits
from monitor.cli.output import print_json, say, stages
from monitor.cli.recorded_inputs import (
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
    SkipBad,
    StateColumns,
    TerminatedColumn,
    TimeLimit,
    TruncatedColumn,
    many,
)
from monitor.errors import printable

if TYPE_CHECKING:
    from monitor.authoring.proposal.measure import Measured
    from monitor.cli.init_parts import InitResult, RefusedError


def init(
    folder: Annotated[
        Path | None, typer.Argument(help="folder to write the model, the policies and config.yaml to")
    ] = None,
    *,
    settings: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="answers, as in FOLDER/init.yaml; FOLDER is then that of the file"),
    ] = None,
    recordings: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="recorded steps, as for `cfmon model learn`; may be repeated"),
    ] = None,
    simulator: Annotated[
        str | None, typer.Option(metavar="ENV", help="gymnasium:ID?argument=value or module.py:make_env")
    ] = None,
    unsafe: Annotated[
        str | None,
        typer.Option(metavar="'NAME: CONDITION'", help="what is unsafe, such as 'death: done and reward < 0'"),
    ] = None,
    nominal: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="the agent's policy, as for `cfmon policy export`, or .onnx, or manifest; sees columns by name",
        ),
    ] = None,
    fallback: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="the fallback policy, likewise; or 'do(ACTION)'")
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
    timing: RewardTiming = None,
    bins: Bins = None,
    abstraction: AbstractionKind = None,
    dynamics: Annotated[
        bool | None,
        typer.Option(
            "--dynamics/--no-dynamics", help="a world with numbers, or a table; default: the one that forecasts better"
        ),
    ] = None,
    inputs: InputColumns = None,
    missing: MissingCodes = None,
    time_limit: TimeLimit = None,
    skip_bad: SkipBad | None = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="'NAME: CONDITION'", help="further label; may be repeated")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="topic pattern of the agent's steps", show_default="agents/+/steps")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="steps to measure the formulas on; default: until 100 unsafe events")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, max=63, help="the fallback takes over so many steps ago", show_default="2")
    ] = None,
    for_: Annotated[
        int | None, typer.Option("--for", min=1, help="bad verdicts that fire the alarm", show_default="1")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=1, help="good verdicts that resolve it", show_default="2")] = None,
    seed: Annotated[
        int | None, typer.Option(help="seed of the held-out episodes, and of simulated ones", show_default="0")
    ] = None,
    step_seconds: Annotated[
        float | None,
        typer.Option(min=1e-6, help="seconds between two steps, for alarms a day; default: from the times"),
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept-model", help="go on if the model forecasts what is unsafe no better than chance")
    ] = False,
    fits: Fits | None = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite files in FOLDER")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")] = False,
) -> None:
    """Make a first configuration from recordings or a simulator: model, policies, and a formula measured on them.

    Shows the probable role of each column. On a terminal it asks for corrections and for missing answers; otherwise
    an unclear episode, order, action or end marker is an error. FOLDER/init.yaml keeps the answers, and --from repeats
    them.

    Without --nominal, the agent's policy is estimated from the recordings. Without --fallback, the safest policy of the
    model is suggested; replace it by one that you trust.

    The options of columns are the same as for `cfmon model learn`. This runs the code of simulators and policies.
    """
    from monitor.authoring.learning.sentinels import missing_of  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.cli.init_asking import settled_request  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.cli.init_parts import RefusedError, prepared  # noqa: PLC0415 - likewise

    columns: dict[str, str | None] = {
        "episode": episode, "order": order, "state": state, "next_state": next_state, "inputs": inputs,
        "action": action, "reward": reward, "terminated": terminated, "truncated": truncated,
    }  # fmt: skip
    given: dict[str, Any] = {
        "recordings": None if recordings is None else tuple(map(str, recordings)), "simulator": simulator,
        "observation": observation, "timing": None if timing is None else timing.value, "unsafe": unsafe,
        "label": None if label is None else tuple(label), "nominal": nominal, "fallback": fallback, "bins": bins,
        "abstraction": abstraction, "dynamics": dynamics, "topic": topic, "steps": steps, "seed": seed,
        "offset": offset, "for_": for_, "keep": keep, "accept_model": accept or None, "skip_bad": skip_bad,
        "fits": fits, "step_seconds": step_seconds, "time_limit": time_limit,
    }  # fmt: skip
    asked = {name: value for name, value in given.items() if value is not None}
    asked |= {"missing": missing_of(missing)} if missing else {}
    named = {name: value for name, value in columns.items() if value is not None}
    try:
        request = settled_request(folder, settings, asked, named, force=force, quiet=as_json)
        with stages("" if as_json else "init"):
            result = prepared(request)
    except RefusedError as refused:
        _refuse(refused, as_json=as_json)
        raise typer.Exit(1) from None
    if as_json:
        print_json(_document(result))
        return
    _show(result)


def _show(result: InitResult) -> None:
    from monitor.cli.quality_report import say_quality  # noqa: PLC0415 - keep `cfmon --help` light

    base = result.base
    counts = ", ".join(many(count, name.removesuffix("s")) for name, count in base.counts.items())
    say(f"{result.folder / base.file}: {counts}")
    for line in base.notes:
        say(f"  {printable(line)}")
    say(f"measured on {base.measured_on}")
    offset = result.best.candidate.offset
    takeover = f"takeover {offset} step{'' if offset == 1 else 's'} ago"
    say(f"  formula: {takeover}; within: horizon; false: no unsafe event followed within the horizon")
    say(
        f"  {'within':>6} {'P>=':>5} {'alarms':>7} {'/1,000':>7} {'false':>6} {'preceded':>9} {'lead':>5} {'needed':>7}"
    )
    for row in result.rows:
        say(f"{'*' if row is result.best else ' '} {_line(row)}")
    say(f"chosen (*): {result.rule}")
    for line in _sentences(result.best):
        say(f"  {line}")
    say(f"{result.folder / 'config.yaml'}: valid; formula {result.best.candidate.text}")
    say(f"{result.folder / 'takeover.yaml'}: {_takeover(result)}")
    say(f"{result.folder / 'report.html'}, {result.folder / 'report.md'}: how good the model is, with all numbers")
    say_quality("quality", result.quality)
    say("next:")
    if result.sample:
        say(f"  cfmon replay {result.folder / 'config.yaml'} {result.folder / 'sample.rec'}")
    say(f"  cfmon run {result.folder / 'config.yaml'}")


REFUSED = (
    "no formula is proposed and nothing is written. Give other states (--abstraction auto compares some; --bins; more "
    "columns with --state) or more recordings; `cfmon model learn ... --report model.html` shows what is wrong. To go "
    "on with this model: --accept-model"
)


def _refuse(refused: RefusedError, *, as_json: bool) -> None:
    """Print how the model was made, and the reason why no formula is proposed."""
    from monitor.cli.quality_report import quality_lines, say_quality  # noqa: PLC0415 - keep `cfmon --help` light

    found = refused.quality
    if as_json:
        print_json({"config": None, "notes": refused.notes, "verdict": quality_lines(found), "refused": True})
        return
    for line in refused.notes:
        say(f"  {printable(line)}")
    say_quality("quality", found)
    say(REFUSED)


def _takeover(result: InitResult) -> str:
    """Return the proposed rules of a guard in words."""
    if result.hold is None:
        return "rules for a guard; how long a takeover should last is not proposed, for the reason given there"
    alone, held = result.guards[0], next(row for row in result.guards if row.hold == result.hold)
    return (
        f"rules for a guard; with hold: {held.hold}, by the model {held.unsafe:.0%} of episodes of {held.length} steps "
        f"are unsafe, without it {alone.unsafe:.0%}"
    )


def _line(row: Measured) -> str:
    lead = "-" if row.lead is None else f"{row.lead:g}"
    violated = row.regret + row.unavoidable
    needed = f"{row.regret / violated:.0%}" if violated else "-"
    return (
        f"{row.candidate.horizon:>6} {row.candidate.threshold:>5g} {row.alarms:>7,} {row.per_thousand:>7.1f} "
        f"{row.false:>6,} {f'{row.preceded}/{row.events}':>9} {lead:>5} {needed:>7}"
    )


def _sentences(best: Measured) -> list[str]:
    """Return sentences on the alarms that the chosen formula would have raised."""
    from monitor.alarm.phrases import steps  # noqa: PLC0415 - keep `cfmon --help` light

    if not best.events:
        said = [
            f"NO unsafe event in these steps: that an alarm precedes one is not shown; {many(best.alarms, 'alarm')}"
        ]
    else:
        lead = "" if best.lead is None else f", in the median {steps(best.lead)} earlier"
        said = [
            f"{many(best.alarms, 'alarm')} in {best.steps:,} steps, {best.false:,} of them without an unsafe event",
            f"{best.preceded} of {many(best.events, 'unsafe event')} came after an alarm{lead}",
        ]
    violated = best.regret + best.unavoidable
    if violated:
        said.append(
            f"of {violated:,} verdicts below the threshold, in {best.regret / violated:.0%} the fallback would have "
            "helped (regret), else not (unavoidable)"
        )
    missing = best.steps - best.answered
    if missing > best.steps // 100:
        said.append(
            f"{missing:,} steps had no verdict: their transitions were not learned, or come just after one that was not"
        )
    return said


def _document(result: InitResult) -> dict[str, Any]:
    from monitor.cli.quality_report import quality_lines  # noqa: PLC0415 - keep `cfmon --help` light

    def plain(row: Measured) -> dict[str, Any]:
        return {
            "formula": row.candidate.text,
            "steps": row.steps,
            "verdicts": row.answered,
            "alarms": row.alarms,
            "false alarms": row.false,
            "unsafe events": row.events,
            "events after an alarm": row.preceded,
            "median lead": row.lead,
            "regret": row.regret,
            "unavoidable": row.unavoidable,
        }

    return {
        "config": str(result.folder / "config.yaml"),
        "files": sorted(str(result.folder / name) for name in result.files),
        "model": str(result.folder / result.base.file),
        **result.base.counts,
        "notes": result.base.notes,
        "verdict": quality_lines(result.quality),
        "refused": result.quality.refused,
        "measured on": result.base.measured_on,
        "rule": result.rule,
        "chosen": plain(result.best),
        "candidates": [plain(row) for row in result.rows],
        "rests_on": to_builtins(result.quality.bases),
        "hold": result.hold,
        "guards": [
            {"hold": row.hold, "steps": row.length, "unsafe": row.unsafe, "taken": row.taken} for row in result.guards
        ],
    }
