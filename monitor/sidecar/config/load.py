"""Build a monitor from a configuration: read the model and the policies, and check each formula with them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from monitor._version import __version__
from monitor.alarm.message import Identity
from monitor.errors import ConfigError, EvidenceError, FormulaError, Mistakes, ModelError, PolicyError
from monitor.evaluation import Names
from monitor.evaluation.models import AnyModel, bytes_of, load_any_model, load_any_policy, sha256_of
from monitor.evaluation.worlds import WorldChecker
from monitor.evidence.document import evidence_id
from monitor.evidence.maker import EvidenceMaker
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.logic.policy_names import check_policy_name
from monitor.logic.syntax import Goal
from monitor.model.formats import has_scheme
from monitor.model.mdp import MDP
from monitor.policy.controller import is_hidden
from monitor.policy.onnx_policy import OnnxPolicy
from monitor.runtime.monitor import Monitor
from monitor.runtime.query import Query, SpecError, Vocabulary, read_query
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.config.settings import Config, FormulaConfig
from monitor.sidecar.effects import EvidenceFile
from monitor.sidecar.pipeline import Pipeline, Topics
from monitor.sidecar.sinks.sink import FleetShard, Watched
from monitor.sidecar.web.runbooks import default_runbook
from monitor.types.alerts import Alert
from monitor.types.notices import TakenOver
from monitor.types.specs import AlarmSpec, BandSettings, FormulaSpec, Sampling, StreamSettings, TrustSettings
from monitor.worlds import CheckedWorld

__all__ = ["BATCH", "Loaded", "assemble", "load"]

BATCH: Final = 256
"""Maximum number of messages per evaluation: enough to amortize the write to disk, few enough for prompt verdicts."""


@dataclass(frozen=True)
class Loaded:
    """Everything that a configuration names, read and checked, and a new `monitor`."""

    config: Config
    model: AnyModel
    policies: Mapping[str, OnnxPolicy[Any]]
    models: Mapping[str, AnyModel]
    identity: Identity
    monitor: Monitor

    @property
    def formulas(self) -> tuple[FormulaSpec, ...]:
        """Specifications of the formulas."""
        return tuple(query.spec for query in self.monitor.queries)

    @property
    def tables(self) -> dict[str, Any]:
        """Policy name -> the actions or distributions that the policy chooses, as a table or a function."""
        return {name: policy.table for name, policy in self.policies.items()}

    @property
    def watched(self) -> Watched:
        """Information for sinks."""
        limits, mqtt = self.config.limits, self.config.mqtt
        part = None if mqtt.part is None or mqtt.client_id is None else FleetShard(mqtt.client_id, mqtt.part)
        return Watched(self.monitor.queries, self.identity, agents=limits.agents, alerts=mqtt.alerts, part=part)

    def with_formulas(self, formulas: Sequence[FormulaSpec]) -> Loaded:
        """Return a copy with a new monitor for these formulas; errors as for `Monitor`."""
        monitor = _monitor(
            self.config, formulas, model=self.model, policies=self.policies, models=self.models, identity=self.identity
        )
        return replace(self, monitor=monitor)

    @property
    def mdp(self) -> MDP:
        """The model as a table. Raises ConfigError if the model is a world with numbers or has hidden states."""
        if not isinstance(self.model, MDP):
            raise ConfigError("the model is a world with numbers, and this needs a table")
        if is_hidden(self.model, self.tables):
            raise ConfigError("states are hidden, or a policy remembers, and this needs states that are seen")
        return self.model

    @property
    def inputs_digest(self) -> str:
        """Digest of the models, policies, sampling settings and, if a model is learned, of the settings of bands."""
        identity, sampling = self.identity, self.config.sampling.model_dump()
        parts = [identity.model_sha256, dict(identity.policies), dict(identity.models), sampling]
        if any(
            bool(model.fits) if isinstance(model, CheckedWorld) else model.counts is not None
            for model in (self.model, *self.models.values())
        ):
            parts.append(self.config.bands.model_dump())
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def objects(self) -> dict[str, bytes]:
        """Return SHA-256 -> canonical bytes of the models and policies that evidence refers to."""
        files = {policy.sha256: policy.content for policy in self.policies.values()}
        models = {self.identity.models[name]: bytes_of(other) for name, other in self.models.items()}
        return {self.identity.model_sha256: bytes_of(self.model), **models, **files}

    def evidence_of(self, notice: Alert | TakenOver) -> EvidenceFile:
        """Return the evidence of an alarm or of a judged takeover. Raises EvidenceError if there is no store."""
        if self.config.store.path is None:
            raise EvidenceError("store.path is null: nothing is kept")
        content = self._evidence_maker.make(notice)
        return EvidenceFile(evidence_id(content), content)

    @cached_property
    def _evidence_maker(self) -> EvidenceMaker:
        manifests = {name: policy.manifest.model_dump(mode="json") for name, policy in self.policies.items()}
        return EvidenceMaker(self.identity, self.tables, manifests, tuple(sorted(self.config.actions.items())))

    @property
    def topics(self) -> Topics:
        """MQTT topics of steps, alerts and status."""
        mqtt = self.config.mqtt
        return Topics(mqtt.steps, mqtt.alerts, mqtt.status)

    def pipeline(self, client_id: str, topics: Topics | None = None) -> Pipeline:
        """Return a pipeline around the monitor. `topics` replaces the topics of the configuration."""
        return Pipeline(
            self.monitor,
            self.identity,
            topics=self.topics if topics is None else topics,
            client_id=client_id,
            shard=self.config.mqtt.shard,
            message_bytes=self.config.limits.message_bytes,
            evidence_of=self.evidence_of,
        )


def load(source: str | Path) -> Monitor:
    """Return the monitor that a configuration file describes, for use as a library. Errors are those of `assemble`."""
    return assemble(source).monitor


def assemble(source: Config | str | Path, environment: Mapping[str, str] | None = None) -> Loaded:
    """Read everything that a configuration names, and build the monitor.

    `environment` overrides settings of the file. The default is the environment of the process.

    Raises:
        ConfigError: a key, a name, a formula or an alarm is wrong; the error names file, line and key.
        ModelError, PolicyError: a model or policy is missing or malformed; the error names its key.
        For several mistakes, one ConfigError has a line for each.
    """
    if isinstance(source, Config):
        config = source
    else:
        config = load_config(source, os.environ if environment is None else environment)
    model, models, policies, queries = _parts(config)
    identity = _identity(config, model, policies, models)
    monitor = _monitor(config, queries, model=model, policies=policies, models=models, identity=identity)
    return Loaded(config, model, policies, models, identity, monitor)


def _monitor(
    config: Config,
    formulas: Sequence[Query | FormulaSpec],
    *,
    model: AnyModel,
    policies: Mapping[str, OnnxPolicy[Any]],
    models: Mapping[str, AnyModel],
    identity: Identity,
) -> Monitor:
    return Monitor(
        model,
        {name: policy.table for name, policy in policies.items()},
        formulas,
        _stream_settings(config, policies),
        identity=identity,
        models=models,
        sampling=Sampling(**config.sampling.model_dump()),
        trust=TrustSettings(**config.trust.model_dump()),
        bands=BandSettings(**config.bands.model_dump()),
    )


def _parts(config: Config) -> tuple[AnyModel, dict[str, AnyModel], dict[str, OnnxPolicy[Any]], list[Query]]:
    """Read everything that a configuration names. Report all mistakes, not only the first."""
    mistakes = Mistakes()
    models: dict[str | None, AnyModel] = {}
    policies: dict[str, OnnxPolicy[Any]] = {}
    for name in (None, *config.models):
        with mistakes.collect():
            models[name] = _read_model(config, "model" if name is None else "models", name)
    model = models.pop(None, None)
    if model is not None:
        for name in config.policies:
            with mistakes.collect():
                policies[name] = _read_policy(config, name, model)
        with mistakes.collect():
            _check_labels(config, model)
        with mistakes.collect():
            _check_actions(config, model)
    others = {name: other for name, other in models.items() if name is not None}
    # If a model or policy could not be read, only the syntax of formulas is checked.
    vocabulary = None
    if model is not None and not mistakes:
        with mistakes.collect():
            vocabulary = _vocabulary(config, model, policies, others)
    queries = []
    for index in range(len(config.formulas)):
        with mistakes.collect():
            queries.append(_query(config, index, vocabulary))
    mistakes.raise_all()
    assert model is not None
    return model, others, policies, queries


def _vocabulary(
    config: Config, model: AnyModel, policies: Mapping[str, OnnxPolicy[Any]], others: Mapping[str, AnyModel]
) -> Vocabulary:
    features = config.state_encoder == "features"
    if features != isinstance(model, CheckedWorld):
        wanted = (
            "is for worlds with numbers, and the model is a table" if features else "must be features: it is a world"
        )
        raise ConfigError(f"{config.where('state_encoder')}: {config.state_encoder!r} {wanted}")
    tables = {name: policy.table for name, policy in policies.items()}
    if isinstance(model, CheckedWorld):
        return WorldChecker(model, tables, others)
    enumerated = {name: other for name, other in others.items() if isinstance(other, MDP)}
    return HiddenChecker(model, tables, enumerated) if is_hidden(model, tables) else Names(model, tables, enumerated)


def _read_model(config: Config, key: str, name: str | None = None) -> AnyModel:
    where, source = ((key,), config.model) if name is None else ((key, name), config.models[name])
    try:
        return load_any_model(source)
    except ModelError as error:
        raise ModelError(f"{config.where(*where)}: {error}") from error


def _read_policy(config: Config, name: str, model: AnyModel) -> OnnxPolicy[Any]:
    _check_policy_name(config, name)
    try:
        return load_any_policy(config.policies[name], model)
    except PolicyError as error:
        raise PolicyError(f"{config.where('policies', name)}: {error}") from error


def _check_policy_name(config: Config, name: str) -> None:
    """Raise ConfigError if the name is a word of the formula language, such as `do`."""
    try:
        check_policy_name(name)
    except ConfigError as error:
        raise ConfigError(f"{config.where('policies', name)}: {error}") from None


def _query(config: Config, index: int, vocabulary: Vocabulary | None) -> Query:
    """Read a formula. `vocabulary`: the names it may use; None if they could not be read."""
    entry = config.formulas[index]
    try:
        query = read_query(_spec(entry, config), vocabulary, window=config.path.window)
    except FormulaError as error:
        raise ConfigError(f"{config.where('formulas', index, 'formula')}: {error}") from error
    except SpecError as error:
        raise ConfigError(f"{config.where('formulas', index, *error.key)}: {error.problem}") from error
    if isinstance(query.formula, Goal) and query.formula.test is None and "alarm" in entry.model_fields_set:
        raise ConfigError(
            f"{config.where('formulas', index, 'alarm')}: a formula with =? gives a number and cannot raise an alarm; "
            f"compare with a bound, or remove the alarm"
        )
    return query


def _check_labels(config: Config, model: AnyModel) -> None:
    """Raise ConfigError for a description of a label that the model does not have."""
    for name in config.labels:
        if name not in model.labels:
            known = ", ".join(model.labels) or "none"
            raise ConfigError(f"{config.where('labels', name)}: the model has no label {name!r}; its labels: {known}")


def _check_actions(config: Config, model: AnyModel) -> None:
    """Raise ConfigError for a description of an action that the model does not have."""
    known = model.action_names or [str(number) for number in range(model.actions)]
    for name in config.actions:
        if name not in known:
            of = ", ".join(model.action_names[:10]) or f"0..{model.actions - 1}, as they have no names"
            raise ConfigError(f"{config.where('actions', name)}: the model has no action {name!r}; its actions: {of}")


def _spec(entry: FormulaConfig, config: Config) -> FormulaSpec:
    runbook = entry.alarm.runbook or default_runbook(config.http, entry.alarm.severity)
    return FormulaSpec(
        name=entry.name,
        text=entry.formula,
        every=entry.every,
        causal_model=entry.causal_model,
        engine=entry.engine,
        alarm=AlarmSpec(**{**dict(entry.alarm), "runbook": runbook}),
        labels=tuple(sorted(config.labels.items())),
        actions=tuple(sorted(config.actions.items())),
        bands=entry.bands,
        recourse=entry.recourse,
    )


def _stream_settings(config: Config, policies: Mapping[str, OnnxPolicy[Any]]) -> StreamSettings:
    known = {policy.sha256: name for name, policy in policies.items()}
    known[policies["nominal"].sha256] = "nominal"  # even if another name has the same file
    return StreamSettings(
        window=config.path.window,
        reorder_steps=config.path.reorder.steps,
        reorder_wait=config.path.reorder.wait,
        stale_after=config.stream.stale_after,
        idle_after=config.stream.idle_after,
        forget_after=config.stream.forget_after,
        max_lag=config.stream.max_lag,
        agents=config.limits.agents,
        pending=config.limits.queue + BATCH,
        encoder=config.state_encoder,
        policies=known,
    )


def _identity(
    config: Config, model: AnyModel, policies: Mapping[str, OnnxPolicy[Any]], models: Mapping[str, AnyModel]
) -> Identity:
    name = config.model if has_scheme(config.model) else Path(config.model).name
    return Identity(
        model_name=name,
        model_sha256=sha256_of(model),
        policies={policy_name: policy.sha256 for policy_name, policy in policies.items()},
        versions={
            "counterfactual-monitor": __version__,
            "python": platform.python_version(),
            "numpy": _version_of("numpy"),
            "onnxruntime": _version_of("onnxruntime"),
        },
        models={other: sha256_of(dynamics) for other, dynamics in models.items()},
    )


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
