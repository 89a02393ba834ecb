"""Every setting of a sidecar, with its type, range and default; `config` reads the file they come from.

Everything that can be known without the model is checked here; `load` checks the rest with the model at hand.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from monitor.sidecar.config.fields import (
    Count,
    Duration,
    Every,
    Host,
    Identifier,
    Listen,
    Name,
    Pattern,
    Size,
    Topic,
    Url,
    Words,
    as_text,
)
from monitor.sidecar.config.yamlfile import YamlFile, dotted
from monitor.sidecar.mqtt.broker import Broker, Tls, parse_broker
from monitor.types import TestName

__all__ = ["ENVIRONMENT_PREFIX", "Config", "FormulaConfig", "config_schema"]

ENVIRONMENT_PREFIX = "CFMON_"


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=False,
        hide_input_in_errors=True,
        strict=False,
        use_attribute_docstrings=True,
    )


class MqttConfig(_Section):
    """The broker and the topics. `url` may hold a user and a password; it is never printed.

    With `mqtts://` the broker must show a certificate for its name, signed by one in `ca` (default: those the system
    trusts); `certificate` and `key` are our own, where it asks for one. All are PEM files. Files of secrets and
    certificates are read again at each connection.
    """

    url: Annotated[Url, Field(repr=False)] = "mqtt://localhost:1883"
    """The broker: `mqtt://host:port`, or `mqtts://host:port` for TLS."""
    username: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(default=None, repr=False)
    """Who we are to the broker, where it asks."""
    username_file: Path | None = None
    """A file that holds it."""
    password: SecretStr | None = None
    """Better in `password_file`, or in the environment as `CFMON_MQTT__PASSWORD`."""
    password_file: Path | None = None
    """A file that holds it, read again at each connection."""
    ca: Path | None = None
    """PEM file of the authorities that may sign the broker's certificate; those of the system if absent."""
    certificate: Path | None = None
    """PEM file of our own certificate, where the broker asks for one."""
    key: Path | None = None
    """PEM file of its key, not encrypted; if absent, it is in the file `certificate`."""
    steps: Pattern = "agents/+/steps"
    """Where agents publish their steps; the one `+` is the agent's name."""
    alerts: Topic = "cfmon/alerts"
    """Alerts go to this topic, a level for the agent and one for the formula."""
    status: Topic = "cfmon/status"
    """The status and the last will go to this topic, a level for `client_id`."""
    client_id: Name | None = None
    """Our name at the broker; if absent, host name and digest of this configuration, kept in the store."""
    keepalive: Duration = 15.0
    """After one and a half times so much silence the broker takes us for lost."""

    @model_validator(mode="after")
    def _consistent(self) -> MqttConfig:
        there = parse_broker(self.url)
        for name, one, other in (
            ("username", self.username, self.username_file),
            ("password", self.password, self.password_file),
        ):
            if (getattr(there, name) is not None) + (one is not None) + (other is not None) > 1:
                raise ValueError(f"{name} is given more than once: in the url, as {name} or as {name}_file; keep one")
        if self.broker.username is None and self.username_file is None and self._has_password:
            raise ValueError("a password needs a username")
        if self.key is not None and self.certificate is None:
            raise ValueError("key is of no use without certificate")
        if there.tls is None and (self.ca or self.certificate):
            raise ValueError("ca, certificate and key are for TLS: write mqtts:// in the url")
        return self

    @property
    def _has_password(self) -> bool:
        return self.broker.password is not None or self.password_file is not None

    @property
    def broker(self) -> Broker:
        """Where the broker is and who we are to it; files are not read yet."""
        there = parse_broker(self.url)
        return dataclasses.replace(
            there,
            username=there.username if self.username is None else self.username,
            password=there.password if self.password is None else self.password.get_secret_value(),
            username_file=self.username_file,
            password_file=self.password_file,
            tls=None if there.tls is None else Tls(self.ca, self.certificate, self.key),
        )


class ReorderConfig(_Section):
    """How many later steps, and how long, wait for a missing one before it is a gap."""

    steps: Annotated[Count, Field(ge=1, le=65536)] = 256
    """So many later steps wait for a missing one."""
    wait: Duration = 0.5
    """And so long."""


class PathConfig(_Section):
    """How much of an agent's past is held; offsets must be smaller than `window`."""

    window: Annotated[Count, Field(ge=1, le=65536)] = 64
    """Steps held of each agent, oldest dropped first."""
    reorder: ReorderConfig = ReorderConfig()
    """When a missing step counts as lost."""


class AlarmConfig(_Section):
    """When verdicts become an alarm, and what a person is told then."""

    for_: Annotated[Count, Field(ge=1, le=1_000_000, strict=True, alias="for")] = 1
    """So many bad verdicts in a row fire the alarm."""
    keep: Annotated[Count, Field(ge=1, le=1_000_000)] = 1
    """So many good ones in a row resolve it."""
    severity: Name = "warning"
    """Told with the alarm; the shipped alert rules know `warning` and `critical`."""
    runbook: Annotated[str, Field(max_length=2048, pattern=r"^https?://\S+$")] | None = None
    """A link told with the alarm: what to do. If absent, the shipped runbook of its severity, as we serve it."""
    when: Literal["fails", "holds", "regret", "unavoidable"] | None = None
    """The bad answer; if absent, `regret` for `regret(...)`, else `fails`. `unavoidable`: on regret and on that."""
    step: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05
    """While it fires, the alert is published anew when its value has moved by more than this since it was last."""


class FormulaConfig(_Section):
    """One formula to watch."""

    name: Identifier
    """Its name in topics, metrics and alarms."""
    formula: Annotated[str, Field(min_length=1, max_length=65536)]
    """Its text, in the formula language."""
    every: Every = 1
    """Answered at every so many steps, or so often."""
    causal_model: Literal["gumbel", "any", "stable"] = "gumbel"
    """Beside the Gumbel-Max value, bounds over `any` causal model, or over the counterfactually `stable` ones."""
    engine: Literal["auto", "exact", "sampled"] = "auto"
    """`auto`: exact where that fits, else by sampling."""
    alarm: AlarmConfig = AlarmConfig()
    """When its verdicts become an alarm."""


class SamplingConfig(_Section):
    """How well answers by sampling are founded, for formulas that are not answered exactly.

    `alpha` is the false-alarm rate of all verdicts of one formula on one agent together, `beta` the probability to miss
    in one verdict. `error` and `error_alpha` are for `=?`, `limit` counts the samples of a quantity.
    """

    seed: Annotated[Count, Field(ge=0, le=(1 << 53) - 1)] = 0
    """The same seed draws the same samples."""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Probability that a formula ever raises a false alarm on one agent's stream."""
    beta: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Probability that one verdict misses a breach."""
    error: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Half-width asked of a `=?`, as a part of its range."""
    error_alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Probability that its interval misses the true value."""
    limit: Annotated[Count, Field(ge=1, le=10_000_000)] = 20_000
    """Samples of a quantity beyond which its verdict is undecided."""
    test: TestName = "betting"
    """`betting`: both rates hold for every model. `paper`: the paper's; for `R` and `delta` their rates are nominal."""


class TrustConfig(_Section):
    """How the model is held against the transitions that happen; if it fails, everything is marked `model_doubt`.

    `alpha` is the probability that a true model is ever doubted, for each agent and for all together. `impossible`:
    which part of the steps may contradict the model (a sensor's glitch) without its being wrong.
    """

    enabled: bool = True
    """Whether the model is tested at all."""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.001
    """Probability that a true model is ever doubted."""
    impossible: Annotated[float, Field(gt=0, le=0.005)] = 0.0001
    """Part of the steps that may contradict the model, such as a sensor's glitches."""
    acknowledged: dict[str, Annotated[str, Field(max_length=200)]] = Field(default_factory=dict, max_length=1000)
    """Agent, or `*` for all: why its doubt is settled. A new or another text begins the test anew, at a reload too."""


class StreamConfig(_Section):
    """How long silence may last, and how old a step may be."""

    stale_after: Duration = 5.0
    """Silence in mid-episode after which an agent's formulas are marked `stale`; so long steps may wait for answers."""
    idle_after: Duration = 900.0
    """Silence between episodes after which an agent's formulas are marked `idle`: it is done, or it died."""
    forget_after: Duration = 3600.0
    """Silence after which an agent is forgotten, with its alerts and series."""
    max_lag: Duration = 2.0
    """Alarms of older steps are marked `late`. When more steps come than can be answered, and have waited half as long,
    answers are skipped."""


class HttpConfig(_Section):
    """Where metrics, health and the status page are served; loopback unless told otherwise.

    With `token_file`, everything but `/healthz`, `/readyz` and `/startupz` needs the token in it (`Authorization:
    Bearer ...`); it is read again at each request. `hosts`: names under which we may be asked, as a proxy passes them
    on. On loopback without a token, no others but loopback's own are answered.
    """

    listen: Listen = "127.0.0.1:9108"
    """Address and port of the page, the metrics and the probes."""
    token_file: Path | None = None
    """A file with the bearer token that is asked for."""
    url: Annotated[str, Field(max_length=2048, pattern=r"^https?://\S+$")] | None = None
    """How people reach the page; links in alerts lead there. If absent, `listen`, unless that is every address."""
    hosts: Annotated[tuple[Host, ...], Field(max_length=100)] = ()
    """Names under which we may be asked, as a proxy passes them on."""


class StoreConfig(_Section):
    """What survives a restart, in the database `path`, with `evidence/` and `objects/` beside it.

    `path: null` keeps nothing at all. Evidence older than `keep` is removed, and the oldest where it is more than
    `size`; it ages while the monitor runs, and by a day at most between two runs. With `signing_key`, each piece of
    evidence has an Ed25519 signature beside it, `evidence/<id>.sig`.
    """

    path: Path | None = Path("var/cfmon.sqlite")
    """The database; `null`: nothing is kept."""
    keep: Duration = 30 * 86400.0
    """Evidence older than that is removed."""
    size: Size = 1_000_000_000
    """Where evidence takes more, the oldest is removed."""
    signing_key: Path | None = None
    """PEM file of an Ed25519 private key, not encrypted, read at start; evidence is signed with it."""

    @model_validator(mode="after")
    def _consistent(self) -> StoreConfig:
        if self.signing_key is not None and self.path is None:
            raise ValueError("signing_key is of no use without path: nothing is kept that could be signed")
        return self


class LimitsConfig(_Section):
    """Where the monitor stops growing. `deadline`: what does not fit into so long an evaluation waits for the next."""

    message_bytes: Annotated[Count, Field(ge=64, le=16 << 20)] = 65536
    """Longer messages are rejected."""
    agents: Annotated[Count, Field(ge=1, le=1_000_000)] = 1000
    """Agents beyond that are refused, counted and alerted, unless one that said little and fell silent makes room."""
    queue: Annotated[Count, Field(ge=1, le=1_000_000)] = 100_000
    """Steps that wait here; then the broker waits, for half a `keepalive`; then steps are dropped: blind."""
    deadline: Duration = 0.05
    """How long one evaluation may take; what does not fit waits for the next, agents taking turns."""


class LoggingConfig(_Section):
    """How the log is written."""

    format: Literal["text", "json"] = "text"
    """For people, or one JSON document a line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """What is less important is left out."""


class Config(BaseSettings):
    """The whole configuration; paths are absolute once loaded. Documented in `cfmon config schema`."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENVIRONMENT_PREFIX,
        hide_input_in_errors=True,
        validate_default=False,
        use_attribute_docstrings=True,
    )

    mqtt: MqttConfig = MqttConfig()
    """The broker and the topics."""
    model: Annotated[str, Field(min_length=1)]
    """A model file, or `gymnasium:ID?argument=value`; `cfmon model info --help` lists the forms."""
    state_encoder: Literal["index", "name", "valuation", "bins"] = "index"
    """What the agents' states are: numbers, names, values of variables, or floats that the model's bin edges sort."""
    policies: dict[Identifier, Path]
    """Name -> manifest; `nominal` is the policy that the agents run."""
    models: dict[Identifier, str] = {}
    """Name -> other dynamics over the same states, for `model:name`."""
    path: PathConfig = PathConfig()
    """How much of the past is held."""
    formulas: Annotated[tuple[FormulaConfig, ...], Field(min_length=1, max_length=1000)]
    """What is watched."""
    labels: Annotated[dict[Name, Words], Field(max_length=1000)] = {}
    """Label of the model -> words for it in the sentences of alerts, such as `death: "the patient dies"`."""
    sampling: SamplingConfig = SamplingConfig()
    """How well samples found an answer."""
    trust: TrustConfig = TrustConfig()
    """How the model is tested."""
    stream: StreamConfig = StreamConfig()
    """Silence and lateness."""
    heartbeat: Duration = 10.0
    """How often alerts are repeated and the status is told."""
    http: HttpConfig = HttpConfig()
    """Page, metrics, probes."""
    store: StoreConfig = StoreConfig()
    """What survives a restart."""
    limits: LimitsConfig = LimitsConfig()
    """Where it stops growing."""
    logging: LoggingConfig = LoggingConfig()
    """Format and level of the log."""

    _file: YamlFile | None = PrivateAttr(default=None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_named: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is passed in: the environment is merged by `load_config`, which can say where a value came from."""
        return (init_settings,)

    def where(self, *location: str | int) -> str:
        """`config.yaml, line 12, formulas[0].formula`: how an error names a place in the configuration."""
        return self._file.where(location) if self._file else dotted(location)

    def read_from(self, file: YamlFile) -> Config:
        """Remember the file, so that later errors can name the line."""
        self._file = file
        return self

    @property
    def digest(self) -> str:
        """Sha256 over everything but the broker's credentials: the same for a changed password."""
        plain = self.model_dump(mode="json", by_alias=True)
        plain["mqtt"]["url"] = parse_broker(self.mqtt.url).address
        del plain["mqtt"]["username"], plain["mqtt"]["password"]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def config_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the file, for editors and for checks in CI."""
    schema = Config.model_json_schema(by_alias=True)
    for section in (schema, *schema["$defs"].values()):
        for setting in section["properties"].values():
            _write_plainly(setting)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Counterfactual monitor"}


_BOUNDS = {"ge": "minimum", "le": "maximum"}


def _write_plainly(setting: dict[str, Any]) -> None:
    """A default as a person would write it; a section's defaults stand at its own settings. Ranges by their JSON names.

    pydantic keeps its own names of bounds where a validator comes before them.
    """
    for ours, theirs in _BOUNDS.items():
        if ours in setting:
            setting[theirs] = setting.pop(ours)
    if isinstance(setting.get("default"), dict):
        del setting["default"]
    elif "default" in setting:
        setting["default"] = as_text(setting["default"], setting.get("pattern"))
