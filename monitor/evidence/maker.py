"""Make the evidence of alarms and judged takeovers.

Most parts of a document are shared by many documents, so they are packed once: models, manifests and versions by all
alarms of a monitor; the policies' choices in a state by all alarms in this state; a verdict by all alarms on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Protocol

from msgspec.structs import replace

from monitor.alarm.message import Identity, alert_id
from monitor.alarm.verdict_cache import VerdictCache
from monitor.evidence.canonical import list_of, map_of, pack
from monitor.evidence.document import EVIDENCE_VERSION, TakeoverEvidence, seal
from monitor.exact.evaluators import deployed_name
from monitor.types.alerts import Alert
from monitor.types.notices import TakenOver
from monitor.types.specs import FormulaSpec
from monitor.types.stream_events import State
from monitor.worlds.world_policies import WorldPolicy

STATES: Final = 65_536
"""Maximum number of states with cached choices of a policy, and of cached pairs: about 100 bytes each."""


class Choosing(Protocol):
    """A policy that returns its choices in a state."""

    def choices(self, state: Any) -> Sequence[tuple[int, float]]:  # noqa: ANN401 - as `State` is, of the model's kind
        """Return the actions with positive probability, and their probabilities."""
        ...


def seen_states(
    policy: object, path: Sequence[tuple[Any, int | None]], inputs: Sequence[tuple[float, ...]]
) -> list[Any]:
    """Return the distinct states of a path as a policy sees them, ascending; with inputs if the policy uses inputs."""
    if isinstance(policy, WorldPolicy) and policy.sees_inputs:
        return sorted({policy.seen(pair[0], each) for pair, each in zip(path, inputs, strict=True)})
    return sorted({pair[0] for pair in path if pair[0] is not None})


class EvidenceMaker:
    """Makes the evidence of alarms and judged takeovers whose verdicts used these models and policies.

    `tables`: name -> policy. `manifests`: name -> the policy's manifest as plain data (text, numbers, Booleans, lists,
    maps). `actions`: words for actions. Raises EvidenceError if a number in a manifest is not finite.
    """

    def __init__(
        self,
        identity: Identity,
        tables: Mapping[str, Choosing],
        manifests: Mapping[str, Mapping[str, object]],
        actions: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._identity = identity
        self._deployed = deployed_name(tables)
        self._constant = {
            "v": pack("v", EVIDENCE_VERSION),
            "model": pack("model", identity.model_name),
            "model_sha256": pack("model_sha256", identity.model_sha256),
            "models": pack("models", identity.models),
            "versions": pack("versions", identity.versions),
            **({"actions": pack("actions", actions)} if actions else {}),
        }
        self._policies = {
            name: _PackedPolicy(name, table, identity.policies[name], manifests.get(name, {}))
            for name, table in tables.items()
        }
        self._pair = lru_cache(STATES)(partial(pack, "path", depth=2))
        self._verdicts: VerdictCache[bytes] = VerdictCache()

    def make(self, about: Alert | TakenOver) -> bytes:
        """Return the document. The same alert gives the same bytes. Raises EvidenceError if a number is not finite."""
        verdict = about.verdict
        assert verdict is not None, "it was judged"
        policies = dict(self._policies)
        more: dict[str, object] = {}
        if isinstance(about, Alert):
            number, text = about.id, about.text
        else:
            policies[self._deployed] = policies["nominal"]
            number, text = self._id_of(about, verdict.formula), verdict.formula
            more["takeover"] = TakeoverEvidence(about.policy, about.outcome)
        if about.acted:
            more["acted"] = about.acted
        if about.inputs:
            more["inputs"] = about.inputs
        members = {
            "alert": number,
            "agent": about.agent,
            "episode": about.episode,
            "formula": about.formula,
            "text": text,
            "causal_model": verdict.causal_model,
            "seq": about.seq,
            "first_seq": about.first_seq,
            "time": float(about.time),
            "since": float(about.since),
            "start_observed": about.start_observed,
            "terminated": about.terminated,
            **more,
        }
        return seal(
            {
                **self._constant,
                "policies": map_of({name: policy.packed(about) for name, policy in policies.items()}),
                "path": list_of([self._pair(pair) for pair in about.path]),
                "verdict": self._verdicts.get(lambda: pack("verdict", verdict), verdict, None),
                **{name: pack(name, member) for name, member in members.items()},
            }
        )

    def _id_of(self, about: TakenOver, text: str) -> str:
        """Return the id of a judged takeover. It also depends on the policy, so it is not the id of any alarm."""
        assert about.verdict is not None
        sha256 = self._identity.policies
        identity = replace(self._identity, policies={**sha256, self._deployed: sha256["nominal"]})
        spec = FormulaSpec(about.formula, text, causal_model=about.verdict.causal_model)
        return alert_id(about.agent, about.episode, spec, identity, about.first_seq)


class _PackedPolicy:
    """A policy in the form of documents (`PolicyEvidence`)."""

    def __init__(self, name: str, table: Choosing, sha256: str, manifest: Mapping[str, object]) -> None:
        self._table = table
        self._constant = {
            "sha256": pack(f"policies.{name}.sha256", sha256, 3),
            "manifest": pack(f"policies.{name}.manifest", manifest, 3),
        }

        def choices(state: State) -> bytes:
            return pack(f"policies.{name}.choices", (state, table.choices(state)), 4)

        self._choices = lru_cache(STATES)(choices)

    def packed(self, about: Alert | TakenOver) -> bytes:
        """Return the packed policy with its choices in the states of the path, ascending."""
        states = seen_states(self._table, about.path, about.inputs)
        return map_of({**self._constant, "choices": list_of([self._choices(state) for state in states])})
