"""Files that `cfmon init` writes: policies, the configuration, and a recording to replay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.cli.recorded_inputs import many
from monitor.errors import PolicyError

if TYPE_CHECKING:
    from monitor.arrays import Floats
    from monitor.authoring.policy_export.original import Original
    from monitor.authoring.proposal.hold import Guarded
    from monitor.authoring.proposal.measure import Measured
    from monitor.authoring.proposal.paths import RecordedPath
    from monitor.cli.init_base import InitBase
    from monitor.model.action_names import ActionNames
    from monitor.model.mdp import MDP
    from monitor.policy.manifest import Manifest

CONFIG = """\
# Written by `cfmon init`; every value is a suggestion, measured where it says so.
# Check it with `cfmon config check`; every key is described by `cfmon config schema`; paths are relative to this file.
mqtt: {{url: "mqtt://localhost:1883", steps: "{topic}", alerts: "cfmon/alerts", status: "cfmon/status"}}
model: {model}
state_encoder: {encoder}
policies:
  nominal: nominal.yaml # what the agent does
  fallback: fallback.yaml # what could take over; replace a suggested one by a policy that you trust
path: {{window: 64, reorder: {{steps: 256, wait: 500ms}}}}
formulas:
  # Had the fallback taken over {offset} step{plural} ago, would {label} have been avoided for {horizon} steps,
  # with probability {threshold} or more? Measured on {measured_on}:
  # {alarms} in {steps} steps, {false} of them without an unsafe event;
  # {preceded} of {events} came after an alarm{lead}.
  - name: regret_fallback
    formula: '{text}'
    every: 1
{bounds}    alarm: {{for: {for_}, keep: {keep}, severity: critical}}
stream: {{stale_after: 5s, forget_after: 1h, max_lag: 2s}}
{doubt}heartbeat: 10s
http: {{listen: "127.0.0.1:9108"}}
store: {{path: var/cfmon.sqlite}}
limits: {{message_bytes: 65536, agents: 1000, deadline: 50ms}}
logging: {{format: text}}
"""


TAKEOVER = """\
# Written by `cfmon init`: rules for a guard in the agent's loop, cfmon_client.Takeover(.., rules="takeover.yaml").
# What to do while the monitor is blind or silent has no default: either choice is dangerous somewhere. Choose for both
# carry_on (whoever acts goes on) or fallback (hand over), and remove the # before them:
# when_blind:
# when_silent:
severity: [critical]
# A takeover lasts at least `hold` steps. {reason}
{rule}
"""


def takeover_text(base: InitBase, rows: Sequence[Guarded], hold: int | None) -> str:
    """Return the rules of a guard with the proposed `hold` and its reason. The user must add the two `when_` rules."""
    from monitor.authoring.proposal.hold import WORTH  # noqa: PLC0415 - keep `cfmon --help` light

    if not rows:
        return TAKEOVER.format(reason=f"Nothing is proposed: {base.unguarded}.", rule="# hold: 1")
    head = (
        f"Episodes of {rows[0].length} steps, {base.guarded_how}:\n"
        f"#   hold  with {base.label}  steps taken by the fallback\n"
    )
    lines = "".join(
        f"#   {row.hold or 'no guard':>8}  {100 * row.unsafe:5.1f} %  {100 * row.taken:5.1f} %\n" for row in rows
    )
    if hold is None:
        return TAKEOVER.format(reason=f"{head}{lines}# In this model a guard spares no episode.", rule="# hold: 1")
    why = f"# Proposed: the longest whose further steps each spare at least {WORTH:.0%} of those without a guard."
    return TAKEOVER.format(reason=head + lines + why, rule=f"hold: {hold}")


DOUBT = """\
# The model was not good enough (report.md). While this stands here, no alarm says that handing over does not suffice.
bands: {{doubt: {doubt}}}
"""


def config_text(best: Measured, base: InitBase, topic: str, *, no_bounds: str = "", doubt: str = "") -> str:
    """Return the configuration with the measured formula.

    `no_bounds`: if the formula has no bounds over all causal models, the reason. `doubt`: problems of the model.
    """
    from monitor.alarm.phrases import steps  # noqa: PLC0415 - keep `cfmon --help` light

    candidate = best.candidate
    return CONFIG.format(
        topic=topic,
        model=base.file,
        encoder=base.encoder,
        offset=candidate.offset,
        plural="" if candidate.offset == 1 else "s",
        label=candidate.label,
        horizon=candidate.horizon,
        threshold=f"{candidate.threshold:g}",
        measured_on=base.measured_on,
        alarms=many(best.alarms, "alarm"),
        steps=best.steps,
        false=best.false,
        preceded=best.preceded,
        events=many(best.events, "unsafe event"),
        lead="" if best.lead is None else f", in the median {steps(best.lead)} earlier",
        text=candidate.text,
        bounds=f"    # without `causal_model: any`: {no_bounds}\n"
        if no_bounds
        else "    causal_model: any # also bounds over every causal model\n",
        for_=candidate.alarm.for_,
        keep=candidate.alarm.keep,
        doubt=DOUBT.format(doubt=json.dumps(doubt, ensure_ascii=False)) if doubt else "",
    )


def written_policy(source: str | Original, name: str, model: MDP, folder: Path, notes: list[str]) -> Floats:
    """Write a policy as `name`.onnx with its manifest, and return its probabilities [S, A].

    `source`: any source of `cfmon policy export`, an ONNX file, a manifest, or a policy that is already converted.
    `notes`: assumptions are appended to this list. Raises PolicyError.
    """
    from monitor.policy.export import manifest_yaml  # noqa: PLC0415 - keep `cfmon --help` light

    content, manifest = network_content(source, f"{name}.onnx", model, notes)
    (folder / f"{name}.onnx").write_bytes(content)
    described = manifest.model_copy(update={"file": f"{name}.onnx", "name": name})
    (folder / f"{name}.yaml").write_text(manifest_yaml(described), encoding="utf-8")
    return network_chances(content, described, model, source if isinstance(source, str) else name)


def network_chances(content: bytes, manifest: Manifest, model: MDP, where: str) -> Floats:
    """Return the policy of a network as probabilities [S, A]."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.policy.onnx_policy import table_from_onnx  # noqa: PLC0415 - likewise

    table = table_from_onnx(content, manifest, model, where)
    return np.stack([table.distribution(state, model.actions) for state in range(model.states)])


def network_content(source: str | Original, file: str, model: MDP, notes: list[str]) -> tuple[bytes, Manifest]:
    """Return the network of a policy and its manifest. Arguments and errors: as for `written_policy`."""
    from monitor.authoring.policy_export.convert import convert  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.policy_export.original import ExportRequest  # noqa: PLC0415 - likewise
    from monitor.policy.draft import draft_manifest  # noqa: PLC0415 - likewise
    from monitor.policy.onnx_policy import load_policy, of_network, read_onnx  # noqa: PLC0415 - likewise

    name = Path(file).stem
    if isinstance(source, str) and source.endswith((".yaml", ".yml")):
        policy = load_policy(source, model)
        notes.append(f"{name}: {source}")
        return policy.content, of_network(policy.manifest, source)
    if isinstance(source, str) and source.endswith(".onnx"):
        content = read_onnx(Path(source))
        manifest, assumed = draft_manifest(content, Path(file), model)
        notes += [f"{name}: {source}; assumed: {each}" for each in assumed]
        return content, manifest
    original = convert(model, ExportRequest(source)) if isinstance(source, str) else source
    manifest, assumed = draft_manifest(
        original.content, Path(file), model, kind=original.kind, stochastic=original.stochastic, mask=original.mask
    )
    if isinstance(source, str):
        _compare(original, manifest, model, source)
        notes += [f"{name}: {source}; assumed: {each}" for each in (*original.assumed, *assumed)]
    return original.content, manifest


def _compare(original: Original, manifest: Manifest, model: MDP, source: str) -> None:
    """Raise PolicyError if the exported policy differs from the original in any state."""
    from monitor.authoring.policy_export.agreement import compare  # noqa: PLC0415 - keep `cfmon --help` light

    found = compare(original, manifest, model, source)
    if found.differences:
        state, sentence = found.differences[0]
        raise PolicyError(
            f"policy {source}: its export differs in {len(found.differences)} states; state {state}: {sentence}"
        )


def written_sample(
    sent: Sequence[dict[str, object]], path: RecordedPath, names: ActionNames, folder: Path, topic: str
) -> None:
    """Write a path as a recording for `cfmon replay`.

    `sent`: states of the path in the form that a live agent would send. `names`: names of the actions.
    """
    from monitor._version import __version__  # noqa: PLC0415 - likewise
    from monitor.sidecar.config.load import assemble  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.sidecar.events import Connected, Evaluate, Message  # noqa: PLC0415 - likewise
    from monitor.sidecar.recording import Header, Recorder  # noqa: PLC0415 - likewise
    from monitor.types.stream_events import Instant  # noqa: PLC0415 - likewise

    loaded = assemble(folder / "config.yaml", {})
    header = Header("sample", loaded.config.digest, loaded.identity.model_sha256, __version__)
    recorder = Recorder(folder / "sample.rec", header)
    recorder.write(Connected(Instant(0.0, 0.0), up=True))
    for seq, state in enumerate(sent):
        now = Instant(float(seq), float(seq))
        last = seq == len(path.actions)
        step = {
            "v": 1, "episode": 1, "seq": seq, **state,
            **({} if last else {"action": names.sent(int(path.actions[seq]))}),
            **({("terminated" if path.ended else "truncated"): True} if last else {}),
        }  # fmt: skip
        recorder.write(Message(now, topic.replace("+", "recorded"), json.dumps(step).encode()))
        recorder.write(Evaluate(now))
    recorder.close()


def final_state(path: RecordedPath, model: MDP, encoder: str) -> int | None:
    """Return the last state of a path as its agent would send it, or None if an agent cannot send it.

    If the episode terminated, this is the state in which it terminated, not the model's copy of this state. If the
    state of the termination was not recorded, and the model has one end for all states, the result is the previous
    state of the path.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    state, before = int(path.states[-1]), int(path.states[-2])
    if model.ended_as is not None and path.ended:
        ends_there = [each for each in np.flatnonzero(model.ended_as == state).tolist() if each != state]
        if ends_there:
            return before if before in ends_there else int(ends_there[0])
    return state if state < _sendable(model, encoder) else None


def _sendable(model: MDP, encoder: str) -> int:
    """Return the number of states that an agent can send. These are the first states of the model."""
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    match encoder:
        case "bins":
            return int(np.prod([len(edges) - 1 for edges in model.bin_edges]))
        case "nearest":
            assert model.centres is not None
            return len(model.centres.points)
        case _:
            return model.states


def sent_state(state: int, model: MDP, encoder: str) -> object:
    """Return a state as an agent sends it: for bins, numbers within the bins; for clusters, the cluster's centre."""
    match encoder:
        case "name":
            return model.state_names[state]
        case "valuation":
            return list(model.valuations[state])
        case "bins":
            return _within(state, model)
        case "nearest":
            assert model.centres is not None
            return model.centres.points[state].tolist()
        case _:
            return state


def _within(state: int, model: MDP) -> list[float | str]:
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    places = np.unravel_index(state, [len(edges) - 1 for edges in model.bin_edges])
    ranges = np.tile([-np.inf, np.inf], (len(places), 1)) if model.ranges is None else model.ranges
    texts = model.bin_names or ((),) * len(places)
    values: list[float | str] = []
    for edges, named, place, (least, most) in zip(model.bin_edges, texts, places, ranges.tolist(), strict=True):
        if named:
            values.append(named[place])
            continue
        lo, hi = max(float(edges[place]), least), min(float(edges[place + 1]), most)
        lo = lo if np.isfinite(lo) else (hi - 1.0 if np.isfinite(hi) else -1.0)
        middle = (lo + (hi if np.isfinite(hi) else lo + 2.0)) / 2
        values.append(middle if middle < edges[place + 1] else lo)  # a bin of one number has no middle
    return values
