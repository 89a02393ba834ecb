"""Every setting of a sidecar, with its type, range and default. `reading` reads the configuration file.

This module checks everything that can be checked without the model. `load` reads the model and checks the rest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from monitor.sidecar.config.derived import Section, describe, setting
from monitor.sidecar.config.fields import (
    ActionKey,
    Count,
    Duration,
    Every,
    Host,
    Identifier,
    LabelWords,
    Listen,
    MqttVersion,
    Name,
    ShardText,
    Size,
    Topic,
    TopicPattern,
    Url,
    WebLink,
    as_text,
)
from monitor.sidecar.config.webhook import WebhookConfig
from monitor.sidecar.config.yamlfile import YamlFile, dotted
from monitor.sidecar.mqtt.broker import Broker, Tls, parse_broker
from monitor.stream.shard import Shard, parse_shard
from monitor.types.specs import (
    AlarmOnlyIf,
    AlarmSpec,
    AlarmWhen,
    BandSettings,
    BandsWhen,
    Engine,
    FormulaSpec,
    RecourseWhen,
    RequestedModel,
    Sampling,
    StreamSettings,
    TestName,
    TrustSettings,
)

ENVIRONMENT_PREFIX = "CFMON_"


class MqttConfig(Section):
    """The broker and the topics. `url` may contain a user name and a password, so it is never printed.

    With `mqtts://` the broker must present a certificate for its host name, signed by an authority in `ca`. The files
    of secrets and certificates are read again at each connection.
    """

    url: Annotated[Url, Field(repr=False)] = "mqtt://localhost:1883"
    """The broker: `mqtt://host:port`, or `mqtts://host:port` for TLS."""
    username: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(default=None, repr=False)
    """User name at the broker, if it requires one."""
    username_file: Path | None = None
    """A file that contains the user name."""
    password: SecretStr | None = None
    """Password at the broker. `password_file` or the environment variable `CFMON_MQTT__PASSWORD` is safer."""
    password_file: Path | None = None
    """A file that contains the password."""
    ca: Path | None = None
    """PEM file of the authorities that may sign the broker's certificate; if absent, the system's authorities."""
    certificate: Path | None = None
    """PEM file of the monitor's certificate, if the broker requires one."""
    key: Path | None = None
    """PEM file of the key of `certificate`, not encrypted. If absent, the file `certificate` also contains the key."""
    version: MqttVersion = "5"
    """MQTT version: `5` or `3.1.1`. If the broker refuses version 5, the monitor continues with 3.1.1."""
    steps: TopicPattern = "agents/+/steps"
    """Topic on which agents publish their steps. The topic has exactly one `+`, which stands for the agent's name."""
    alerts: Topic = "cfmon/alerts"
    """Alerts are published on `<alerts>/<agent>/<formula>`."""
    status: Topic = "cfmon/status"
    """The status and the last will are published on `<status>/<client_id>`."""
    client_id: Name | None = None
    """The monitor's MQTT client id. If absent, made from the host name and a digest, and kept in the store."""
    shard: ShardText | None = None
    """`3/8` means: monitor only the agents of shard 3 of 8. Shards are numbered from 0. `shard` needs `client_id`, to
    which the monitor appends `-3-8`."""
    keepalive: Duration = 15.0
    """The broker regards the monitor as lost after a silence of 1.5 times this duration."""

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
        if self.shard is not None and self.client_id is None:
            raise ValueError("shard needs client_id, the same for all shards: their names at the broker begin with it")
        return self

    @property
    def part(self) -> Shard | None:
        """The shard whose agents are monitored; None if all agents are monitored."""
        return None if self.shard is None else parse_shard(self.shard)

    @property
    def session(self) -> str | None:
        """The MQTT client id, different for each shard; None if `client_id` is not configured."""
        part = self.part
        return self.client_id if part is None else f"{self.client_id}-{part.number}-{part.of}"

    @property
    def _has_password(self) -> bool:
        return self.broker.password is not None or self.password_file is not None

    @property
    def broker(self) -> Broker:
        """Address of the broker, user, password and TLS files. The files are not read yet."""
        there = parse_broker(self.url)
        return dataclasses.replace(
            there,
            username=there.username if self.username is None else self.username,
            password=there.password if self.password is None else self.password.get_secret_value(),
            username_file=self.username_file,
            password_file=self.password_file,
            tls=None if there.tls is None else Tls(self.ca, self.certificate, self.key),
        )


class ReorderConfig(Section):
    """How long the monitor waits for a missing step. After that, the step is lost and the formulas become blind."""

    steps: Count = setting(StreamSettings, "reorder_steps", ge=1, le=65536)
    wait: Duration = setting(StreamSettings, "reorder_wait")


class PathConfig(Section):
    """How much of an agent's past is kept. The offsets in formulas must be smaller than `window`."""

    window: Count = setting(StreamSettings, "window", le=65536)
    reorder: ReorderConfig = ReorderConfig()
    """When a missing step counts as lost."""


class AlarmConfig(Section):
    """When verdicts become an alarm, and what is published with it."""

    for_: Annotated[Count, Field(strict=True)] = setting(AlarmSpec, "for_", le=1_000_000, alias="for")
    keep: Count = setting(AlarmSpec, "keep", le=1_000_000)
    severity: Name = setting(AlarmSpec, "severity")
    runbook: WebLink | None = setting(AlarmSpec, "runbook")
    instructions: str | None = setting(AlarmSpec, "instructions", min_length=1, max_length=300)
    when: AlarmWhen | None = setting(AlarmSpec, "when")
    step: Annotated[float, Field(allow_inf_nan=False)] = setting(AlarmSpec, "step")
    only_if: AlarmOnlyIf | None = setting(AlarmSpec, "only_if")


class FormulaConfig(Section):
    """One formula to monitor."""

    name: Identifier = setting(FormulaSpec, "name")
    formula: str = setting(FormulaSpec, "text", min_length=1, max_length=65536)
    every: Every = setting(FormulaSpec, "every")
    causal_model: RequestedModel = setting(FormulaSpec, "causal_model")
    engine: Engine = setting(FormulaSpec, "engine")
    bands: BandsWhen = setting(FormulaSpec, "bands")
    recourse: RecourseWhen = setting(FormulaSpec, "recourse")
    alarm: AlarmConfig = AlarmConfig()
    """When the formula's verdicts become an alarm."""


class SamplingConfig(Section):
    """Error rates and limits of sampling, for formulas that are not evaluated exactly."""

    seed: Count = setting(Sampling, "seed")
    alpha: float = setting(Sampling, "alpha")
    beta: float = setting(Sampling, "beta")
    error: float = setting(Sampling, "error")
    error_alpha: float = setting(Sampling, "error_alpha")
    limit: Count = setting(Sampling, "limit", le=10_000_000)
    test: TestName = setting(Sampling, "test")


class BandsConfig(Section):
    """How credible bands are computed. Only models learned from data have bands."""

    draws: Count = setting(BandSettings, "draws")
    seed: Count = setting(BandSettings, "seed")
    level: float = setting(BandSettings, "level")
    delta: float = setting(BandSettings, "delta")
    doubt: str = setting(BandSettings, "doubt")


class TrustConfig(Section):
    """How the model is tested against the observed transitions.

    If the test rejects the model, verdicts are marked `model_doubt`.
    """

    enabled: bool = setting(TrustSettings, "enabled")
    alpha: float = setting(TrustSettings, "alpha")
    impossible: float = setting(TrustSettings, "impossible")
    acknowledged: dict[str, Annotated[str, Field(max_length=200)]] = setting(
        TrustSettings, "acknowledged", max_length=1000
    )


class StreamConfig(Section):
    """How long an agent may be silent, and how old a step may be."""

    stale_after: Duration = setting(StreamSettings, "stale_after")
    idle_after: Duration = setting(StreamSettings, "idle_after")
    forget_after: Duration = setting(StreamSettings, "forget_after")
    max_lag: Duration = setting(StreamSettings, "max_lag")


class HttpConfig(Section):
    """Address of the metrics, the health probes and the status page, and who may read them.

    If `token_file` is set, all requests except `/healthz`, `/readyz` and `/startupz` need the token in that file
    (`Authorization: Bearer ...`). The file is read again at each request. On loopback without a token, requests are
    accepted only if their `Host` header is in `hosts` or is a name of loopback.
    """

    listen: Listen = "127.0.0.1:9108"
    """Address and port of the page, the metrics and the probes."""
    token_file: Path | None = None
    """A file that contains the required bearer token."""
    url: WebLink | None = None
    """Public address of the page, for links in alerts. If absent, links use `listen`, unless it means all addresses."""
    hosts: Annotated[tuple[Host, ...], Field(max_length=100)] = ()
    """Further host names accepted in the `Host` header, for requests that come through a proxy."""


class StoreConfig(Section):
    """What survives a restart: the database `path`, and the folders `evidence/` and `objects/` beside it.

    For the age of evidence, the time between two runs of the monitor counts as one day at most. With `signing_key`,
    each piece of evidence has an Ed25519 signature beside it, `evidence/<id>.sig`.
    """

    path: Path | None = Path("var/cfmon.sqlite")
    """File of the database. With `null`, nothing survives a restart."""
    keep: Duration = 30 * 86400.0
    """Evidence older than this is removed."""
    size: Size = 1_000_000_000
    """If the evidence exceeds this size, the oldest evidence is removed."""
    signing_key: Path | None = None
    """PEM file of the Ed25519 private key that signs evidence, not encrypted; read at the start."""

    @model_validator(mode="after")
    def _consistent(self) -> StoreConfig:
        if self.signing_key is not None and self.path is None:
            raise ValueError("signing_key is of no use without path: nothing is kept that could be signed")
        return self


class LimitsConfig(Section):
    """Resource limits of the monitor."""

    message_bytes: Annotated[Count, Field(ge=64, le=16 << 20)] = 65536
    """Longer messages are rejected."""
    agents: Count = setting(StreamSettings, "agents", le=1_000_000)
    queue: Annotated[Count, Field(ge=1, le=1_000_000)] = 100_000
    """Maximum number of steps in the inbox. If the inbox is full, the monitor stops reading. If the inbox is still full
    after half a `keepalive`, steps are dropped, and their agents become blind. With MQTT 5 the broker sends at most
    half of this number before it waits for acknowledgements, but some brokers send more. With 3.1.1 nothing limits
    this."""
    deadline: Duration = 0.05
    """How long one evaluation may take. The remaining steps wait for the next evaluation. Agents take turns."""


class LoggingConfig(Section):
    """How the log is written."""

    format: Literal["text", "json"] = "text"
    """`text` for people, or `json` for one JSON document per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is logged."""


class Config(BaseSettings):
    """The whole configuration; its paths are absolute after loading. `cfmon config schema` documents it."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENVIRONMENT_PREFIX,
        hide_input_in_errors=True,
        validate_default=False,
        json_schema_extra=describe,
    )

    mqtt: MqttConfig = MqttConfig()
    """The broker and the topics."""
    model: Annotated[str, Field(min_length=1)]
    """A model file, or a source such as `gymnasium:ID?argument=value` (see the help of `cfmon model info`). For a world
    with numbers: a manifest (`.yaml`) or `module.py:name`; then the monitor runs this Python file.
    """
    state_encoder: Literal["index", "name", "valuation", "bins", "nearest", "features"] = setting(
        StreamSettings, "encoder"
    )
    policies: dict[Identifier, Path]
    """Name -> manifest of a policy; `nominal` is the policy that the agents run."""
    models: dict[Identifier, str] = {}
    """Name -> another model over the same states. Formulas refer to this model as `model:name`."""
    path: PathConfig = PathConfig()
    """How much of an agent's past is kept."""
    formulas: Annotated[tuple[FormulaConfig, ...], Field(min_length=1, max_length=1000)]
    """The formulas to monitor."""
    labels: Annotated[dict[Name, LabelWords], Field(max_length=1000)] = {}
    """Label of the model -> words for it in the sentences of alerts, for example `death: "the patient dies"`."""
    actions: Annotated[dict[ActionKey, LabelWords], Field(max_length=1000)] = {}
    """Name of an action (its number if actions have no names) -> words for the action in texts for people, for example
    `10: "fluids low, vasopressor 2"`.
    """
    sampling: SamplingConfig = SamplingConfig()
    """Error rates and limits of sampling."""
    bands: BandsConfig = BandsConfig()
    """How the uncertainty of a learned model is computed."""
    trust: TrustConfig = TrustConfig()
    """How the model is tested against observed transitions."""
    stream: StreamConfig = StreamConfig()
    """Limits for silent agents and late steps."""
    heartbeat: Duration = 10.0
    """Interval at which firing alerts are repeated and the status is published."""
    http: HttpConfig = HttpConfig()
    """Status page, metrics and probes."""
    webhooks: Annotated[dict[Identifier, WebhookConfig], Field(max_length=20)] = {}
    """Name -> a receiver of alerts over HTTP, for systems that do not use MQTT."""
    store: StoreConfig = StoreConfig()
    """What survives a restart."""
    limits: LimitsConfig = LimitsConfig()
    """Resource limits."""
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
        """Read only the arguments.

        `load_config` merges the environment, so that errors can say where a value came from.
        """
        return (init_settings,)

    def where(self, *location: str | int) -> str:
        """Return a place in the configuration as errors name it: `config.yaml, line 12, formulas[0].formula`."""
        return self._file.where(location) if self._file else dotted(location)

    def read_from(self, file: YamlFile) -> Config:
        """Remember the file, so that later errors can name the line."""
        self._file = file
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of everything except credentials, so a changed password or webhook path does not change it."""
        plain = self.model_dump(mode="json", by_alias=True)
        plain["mqtt"]["url"] = parse_broker(self.mqtt.url).address
        del plain["mqtt"]["username"], plain["mqtt"]["password"]
        for name, webhook in self.webhooks.items():
            plain["webhooks"][name]["url"] = webhook.address
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the file, for editors and for checks in CI."""
    schema = Config.model_json_schema(by_alias=True)
    for section in (schema, *schema["$defs"].values()):
        for entry in section["properties"].values():
            _write_plainly(entry)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Counterfactual monitor"}


_BOUNDS = {"ge": "minimum", "le": "maximum"}


def _write_plainly(entry: dict[str, Any]) -> None:
    """Write the default as in a file, and the bounds by their JSON Schema names; drop the default of a section.

    The settings of a section have their own defaults. If a validator precedes the bounds, pydantic leaves its own names
    for them in the schema.
    """
    for ours, theirs in _BOUNDS.items():
        if ours in entry:
            entry[theirs] = entry.pop(ours)
    if isinstance(entry.get("default"), dict):
        del entry["default"]
    elif "default" in entry:
        entry["default"] = as_text(entry["default"], entry.get("pattern"))
