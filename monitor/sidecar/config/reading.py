"""Read a configuration file, apply overrides from the environment, resolve paths, and report errors with their line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from monitor.errors import ConfigError, Mistakes
from monitor.evaluation import NO_BOUNDS, check_band_settings
from monitor.evidence.signing import read_signer
from monitor.model.formats import has_scheme
from monitor.runtime.query import NOT_ROBUST
from monitor.sidecar.config.settings import (
    ENVIRONMENT_PREFIX,
    Config,
    FormulaConfig,
    config_schema,
)
from monitor.sidecar.config.webhook import WebhookConfig
from monitor.sidecar.config.yamlfile import Location, YamlFile, read_yaml
from monitor.sidecar.mqtt.tls import make_context
from monitor.sidecar.web.guard import read_token
from monitor.sidecar.webhooks.endpoint import read_endpoint
from monitor.types.specs import BandSettings

_SectionT = TypeVar("_SectionT", bound=BaseModel)

__all__ = ["Config", "check_secrets", "config_schema", "load_config"]


def load_config(path: str | Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read and check a configuration file.

    `CFMON_MQTT__URL=...` in `environment` overrides `mqtt.url`; lists are written as JSON. Raises ConfigError with one
    line per mistake: file, line, key, reason and, for a misspelled key, a suggestion.
    """
    path = Path(path).absolute()
    file = read_yaml(path)
    overrides = _from_environment(environment or {})
    try:
        config = Config(**_merge(file.content, overrides))
    except ValidationError as error:
        raise ConfigError("\n".join(_explain_all(file, overrides, error))) from None
    config = _resolve(config, path.parent).read_from(file)
    _check_names(config)
    return config


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    ours = {name.lower(): value for name, value in environment.items() if name.upper().startswith(ENVIRONMENT_PREFIX)}
    for name in ours:
        key = name.removeprefix(ENVIRONMENT_PREFIX.lower()).split("__")[0]
        if key not in Config.model_fields:
            raise ConfigError(f"environment, {name.upper()}: there is no setting {key!r}{_suggest(key, Config)}")
    source = EnvSettingsSource(Config, env_nested_delimiter="__", env_prefix=ENVIRONMENT_PREFIX)
    source.env_vars = ours
    try:
        return source()
    except SettingsError as error:
        raise ConfigError(f"environment: {error}; write lists and maps as JSON") from None


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _resolve(config: Config, directory: Path) -> Config:
    """Resolve the paths in the file relative to the file's directory."""
    model = _source(directory, config.model)
    models = {name: _source(directory, other) for name, other in config.models.items()}
    policies = {name: _absolute(directory, manifest) for name, manifest in config.policies.items()}
    place = config.store.path
    store = config.store.model_copy(update={"path": None if place is None else _absolute(directory, place)})
    store = _with_absolute(directory, store, "signing_key")
    mqtt = _with_absolute(directory, config.mqtt, "username_file", "password_file", "ca", "certificate", "key")
    http = _with_absolute(directory, config.http, "token_file")
    webhooks = {
        name: _with_absolute(directory, webhook, "url_file", "secret_file", "ca")
        for name, webhook in config.webhooks.items()
    }
    resolved = {"model": model, "models": models, "policies": policies, "store": store, "mqtt": mqtt, "http": http}
    resolved["webhooks"] = webhooks
    return config.model_copy(update=resolved)


def _with_absolute(directory: Path, section: _SectionT, *names: str) -> _SectionT:
    """Return the section with these paths made absolute, if set."""
    given = {name: path for name in names if (path := getattr(section, name)) is not None}
    # Symbolic links are not resolved, because their targets may change, as with mounted secrets.
    return section.model_copy(update={name: Path(directory, path) for name, path in given.items()})


def _source(directory: Path, model: str) -> str:
    return model if has_scheme(model) else str(_absolute(directory, model))


def _absolute(directory: Path, path: str | Path) -> Path:
    return Path(directory, path).resolve()


def _check_names(config: Config) -> None:
    mistakes = Mistakes()
    for problem in _problems(config):
        with mistakes.collect():
            raise ConfigError(problem)
    mistakes.raise_all()


def _problems(config: Config) -> Iterator[str]:
    if "nominal" not in config.policies:
        yield f"{config.where('policies')}: `nominal`, the policy the agents run, is missing"
    seen: set[str] = set()
    for index, formula in enumerate(config.formulas):
        if formula.name in seen:
            yield f"{config.where('formulas', index, 'name')}: the name {formula.name!r} is used twice; rename one"
        seen.add(formula.name)
    for index, formula in enumerate(config.formulas):
        if formula.engine == "sampled" and formula.causal_model != "gumbel":
            where = config.where("formulas", index, "causal_model")
            yield f"{where}: {NO_BOUNDS}; use engine: exact, or causal_model: gumbel"
        if formula.alarm.only_if == "robust" and formula.causal_model == "gumbel":
            yield f"{config.where('formulas', index, 'alarm', 'only_if')}: {NOT_ROBUST}"
    try:
        check_band_settings(BandSettings(**config.bands.model_dump()))
    except ConfigError as error:
        yield f"{config.where('bands')}: {str(error).removeprefix('bands.')}"
    severities = {formula.alarm.severity for formula in config.formulas}
    for name, webhook in config.webhooks.items():
        for index, severity in enumerate(webhook.severities or ()):
            if severity not in severities:
                where, known = config.where("webhooks", name, "severities", index), ", ".join(sorted(severities))
                yield f"{where}: no formula has the severity {severity!r}; those of the formulas: {known}"
    if config.sampling.alpha + config.sampling.beta >= 1:
        yield f"{config.where('sampling', 'alpha')}: alpha and beta must sum to less than 1"
    if config.stream.forget_after <= config.stream.stale_after:
        yield f"{config.where('stream', 'forget_after')}: must be longer than stale_after"


def check_secrets(config: Config) -> None:
    """Raise ConfigError unless the files of secrets, keys and certificates are usable.

    `load_config` does not call this, because a replay, perhaps on another machine, needs no secrets.
    """
    broker = config.mqtt.broker
    try:
        broker.credentials()
        if broker.tls is not None:
            make_context(broker.tls)
        if config.http.token_file is not None:
            read_token(config.http.token_file)
        if config.store.signing_key is not None:
            read_signer(config.store.signing_key)
        for name, webhook in config.webhooks.items():
            read_endpoint(name, webhook)
    except ConfigError as error:
        key = str(error).partition(":")[0]
        raise ConfigError(f"{config.where(*key.split('.'))}: {str(error).removeprefix(f'{key}: ')}") from None


# ---- error messages ----

ITEMS = {"formulas": FormulaConfig, "webhooks": WebhookConfig}
"""Setting -> type of the sections in its list or map."""

MAX_REPORTED = 50
"""Maximum number of reported mistakes; a file may have thousands."""


def _explain_all(file: YamlFile, overrides: Mapping[str, Any], error: ValidationError) -> list[str]:
    """Return one line per mistake.

    If only an item of a list is wrong, the mistake "too short" of the whole list is left out.
    """
    mistakes = error.errors()
    more = [f"{file.name}: and {len(mistakes) - MAX_REPORTED} more"] if len(mistakes) > MAX_REPORTED else []
    mistakes = mistakes[:MAX_REPORTED]
    parents = {mistake["loc"][:depth] for mistake in mistakes for depth in range(len(mistake["loc"]))}
    return [_explain(file, overrides, mistake) for mistake in mistakes if mistake["loc"] not in parents] + more


def _explain(file: YamlFile, overrides: Mapping[str, Any], details: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    location: Location = details["loc"]
    where = file.where(location)
    if _holds(overrides, location):
        where = f"environment, {ENVIRONMENT_PREFIX}{'__'.join(str(part).upper() for part in location)}"
    match details["type"]:
        case "extra_forbidden":
            reason = f"unknown key{_suggest(str(location[-1]), _section_at(location[:-1]))}"
        case "missing":
            reason = "missing; it has no default"
        case "value_error":
            reason = str(details["ctx"]["error"])
        case "string_pattern_mismatch":
            reason = f"must match {details['ctx']['pattern']}"
        case _:
            reason = details["msg"][0].lower() + details["msg"][1:]
    return f"{where}: {reason}"


def _holds(overrides: Mapping[str, Any], location: Location) -> bool:
    value: Any = overrides
    for part in location:
        if isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return value is not overrides and not isinstance(value, dict)
    return True


def _section_at(location: Location) -> type[BaseModel]:
    """Return the class whose fields are the allowed keys at `location`, by the fields' annotations."""
    section: type[BaseModel] = Config
    for part in location:
        if isinstance(part, int) or section is WebhookConfig:  # the index of a formula, or the name of a webhook
            continue
        annotation = _fields(section)[part]
        section = ITEMS.get(part, annotation)
    return section


def _fields(section: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in section.model_fields.items()}


def _suggest(key: str, section: type[BaseModel]) -> str:
    near = difflib.get_close_matches(key, _fields(section), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(sorted(_fields(section)))}"
