"""Every setting of a sidecar, with its type, range and default; `config` reads the file they come from.

Everything that can be known without the model is checked here; `load` checks the rest with the model at hand.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    SecretStr,
    WithJsonSchema,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from monitor.sidecar.broker import Broker, Tls, parse_broker
from monitor.sidecar.yamlfile import YamlFile, dotted

__all__ = ["ENVIRONMENT_PREFIX", "Config", "FormulaConfig", "config_schema", "parse_duration", "parse_size"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = r"^[0-9]{1,9}(\.[0-9]+)?(kB|MB|GB|TB)$"
_DURATION = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"
_NAME = r"^[A-Za-z0-9_.-]{1,64}$"
_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
_HOST = r"^[A-Za-z0-9._-]{1,253}$|^\[[0-9A-Fa-f:.]{2,64}\]$"
ENVIRONMENT_PREFIX = "CFMON_"


def parse_duration(value: object) -> float:
    """Seconds of a duration such as `500ms`, `5s`, `1h`; a number without a unit is refused.

    >>> parse_duration("500ms")
    0.5
    """
    if not isinstance(value, str) or not re.fullmatch(_DURATION, value):
        raise ValueError("must be a duration with its unit, such as 500ms, 5s or 1h")
    number, unit = re.fullmatch(r"([0-9.]+)(ms|s|m|h|d)", value).groups()  # type: ignore[union-attr]  # matched above
    seconds = float(number) * _UNITS[unit]
    if not 0 < seconds <= 366 * 86400:
        raise ValueError("must be longer than nothing and at most 366 days")
    return seconds


def parse_size(value: object) -> int:
    """Bytes of a size such as `500MB` or `1GB`; a number without a unit is refused.

    >>> parse_size("1.5GB")
    1500000000
    """
    if not isinstance(value, str) or not re.fullmatch(_SIZE, value):
        raise ValueError("must be a size with its unit, such as 500MB or 1GB")
    number, unit = re.fullmatch(r"([0-9.]+)(kB|MB|GB|TB)", value).groups()  # type: ignore[union-attr]  # matched above
    return round(float(number) * _BYTES[unit])


def _parse_every(value: object) -> int | float:
    wrong = "must be a number of steps, or a duration such as 500ms"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(wrong)  # noqa: TRY004 - pydantic collects ValueErrors only
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if isinstance(value, str):
        return parse_duration(value)
    if not 1 <= value <= 1_000_000:
        raise ValueError("must be at least 1 step (and at most a million)")
    return value


def _parse_count(value: object) -> int:
    """A whole number; text is taken too, for the environment has nothing else. True is not 1, 2.0 is not 2."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic collects ValueErrors only
    return value


def _check_topic(topic: str) -> str:
    if (
        not topic
        or "+" in topic
        or "#" in topic
        or "\0" in topic
        or topic.startswith(("/", "$"))
        or topic.endswith("/")
    ):
        raise ValueError("must be a topic without wildcards, not starting or ending with a slash")
    return topic


def _check_pattern(pattern: str) -> str:
    levels = pattern.split("/")
    if levels.count("+") != 1 or any("+" in level for level in levels if level != "+") or "#" in pattern:
        raise ValueError("must hold exactly one + (the agent's name) and no #, such as agents/+/steps")
    if pattern.startswith("$") or "\0" in pattern:
        raise ValueError("must not start with $: steps of one agent must all come here, in order")
    return pattern


def _check_url(url: str) -> str:
    parse_broker(url)
    return url


def _check_listen(listen: str) -> str:
    parts = urlsplit(f"//{listen}")
    try:
        fine = parts.hostname is not None and parts.port is not None and parts.path == "" and parts.username is None
    except ValueError:
        fine = False
    if not fine:
        raise ValueError("must be host:port, such as 127.0.0.1:9108 or [::1]:9108")
    return listen


Duration = Annotated[
    float, BeforeValidator(parse_duration), WithJsonSchema({"type": "string", "pattern": _DURATION, "examples": ["5s"]})
]
Size = Annotated[
    int, BeforeValidator(parse_size), WithJsonSchema({"type": "string", "pattern": _SIZE, "examples": ["1GB"]})
]
Every = Annotated[
    int | float,
    PlainValidator(_parse_every),
    WithJsonSchema({"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _DURATION}]}),
]
Count = Annotated[int, BeforeValidator(_parse_count)]
Name = Annotated[str, Field(pattern=_NAME)]
Identifier = Annotated[str, Field(pattern=_IDENTIFIER)]
Topic = Annotated[str, Field(max_length=512), AfterValidator(_check_topic)]


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=False, hide_input_in_errors=True, strict=False
    )


class MqttConfig(_Section):
    """The broker and the topics. `url` may hold a user and a password; it is never printed.

    With `mqtts://` the broker must show a certificate for its name, signed by one in `ca` (default: those the system
    trusts); `certificate` and `key` are our own, where it asks for one. All are PEM files. Files of secrets and
    certificates are read again at each connection.
    """

    url: Annotated[str, Field(repr=False), AfterValidator(_check_url)] = "mqtt://localhost:1883"
    username: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(default=None, repr=False)
    username_file: Path | None = None
    password: SecretStr | None = Field(default=None, description="better in password_file, or in the environment")
    password_file: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = Field(default=None, description="default: the key in the file `certificate`")
    steps: Annotated[str, Field(max_length=512), AfterValidator(_check_pattern)] = "agents/+/steps"
    alerts: Topic = "cfmon/alerts"
    status: Topic = "cfmon/status"
    client_id: Name | None = Field(default=None, description="default: host name and digest of this configuration")
    keepalive: Duration = Field(default=15.0, validate_default=False)

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
    wait: Duration = 0.5


class PathConfig(_Section):
    """How much of an agent's past is held; offsets must be smaller than `window`."""

    window: Annotated[Count, Field(ge=1, le=65536)] = 64
    reorder: ReorderConfig = ReorderConfig()


class AlarmConfig(_Section):
    """When verdicts become an alarm, and what a person is told then."""

    for_: Annotated[Count, Field(ge=1, le=1_000_000, strict=True, alias="for")] = 1
    keep: Annotated[Count, Field(ge=1, le=1_000_000)] = 1
    severity: Name = "warning"
    runbook: Annotated[str, Field(max_length=2048, pattern=r"^https?://\S+$")] | None = None
    when: Literal["fails", "holds", "regret", "unavoidable"] | None = None


class FormulaConfig(_Section):
    """One formula to watch."""

    name: Identifier
    formula: Annotated[str, Field(min_length=1, max_length=65536)]
    every: Every = 1
    causal_model: Literal["gumbel", "any", "stable"] = "gumbel"
    engine: Literal["auto", "exact", "sampled"] = "auto"
    alarm: AlarmConfig = AlarmConfig()


class SamplingConfig(_Section):
    """How well answers by sampling are founded, for formulas that are not answered exactly.

    `alpha` is the false-alarm rate of all verdicts of one formula on one agent together, `beta` the probability to miss
    in one verdict; tests on a stream have no region of indifference. `error` and `error_alpha` are for `=?`, `limit`
    counts the samples of a quantity.
    """

    seed: Annotated[Count, Field(ge=0, le=(1 << 53) - 1)] = 0
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.01
    beta: Annotated[float, Field(gt=0, lt=1)] = 0.01
    error: Annotated[float, Field(gt=0, lt=1)] = 0.02
    error_alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    limit: Annotated[Count, Field(ge=1, le=10_000_000)] = 20_000


class TrustConfig(_Section):
    """How the model is held against the transitions that happen; if it fails, everything is marked `model_doubt`.

    `alpha` is the probability that a true model is ever doubted. `impossible`: which part of the steps may contradict
    the model (a sensor's glitch) without its being wrong.
    """

    enabled: bool = True
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.001
    impossible: Annotated[float, Field(gt=0, le=0.005)] = 0.0001


class StreamConfig(_Section):
    """How long silence may last, and how old a step may be."""

    stale_after: Duration = 5.0
    forget_after: Duration = 3600.0
    max_lag: Duration = 2.0


class HttpConfig(_Section):
    """Where metrics, health and the status page are served; loopback unless told otherwise.

    With `token_file`, everything but `/healthz` and `/readyz` needs the token in it (`Authorization: Bearer ...`); it
    is read again at each request. `hosts`: names under which we may be asked, as a proxy passes them on. On loopback
    without a token, no others but loopback's own are answered.
    """

    listen: Annotated[str, AfterValidator(_check_listen)] = "127.0.0.1:9108"
    token_file: Path | None = None
    hosts: Annotated[tuple[Annotated[str, Field(pattern=_HOST)], ...], Field(max_length=100)] = ()


class StoreConfig(_Section):
    """What survives a restart, in the database `path`, with `evidence/` and `objects/` beside it.

    `path: null` keeps nothing at all. Evidence older than `keep` is removed, and the oldest where it is more than
    `size`.
    """

    path: Path | None = Path("var/cfmon.sqlite")
    keep: Duration = 30 * 86400.0
    size: Size = 1_000_000_000


class LimitsConfig(_Section):
    """Where the monitor stops growing. `deadline`: agents that do not fit into so long an evaluation take turns."""

    message_bytes: Annotated[Count, Field(ge=64, le=16 << 20)] = 65536
    agents: Annotated[Count, Field(ge=1, le=1_000_000)] = 1000
    queue: Annotated[Count, Field(ge=1, le=1_000_000)] = 10_000
    deadline: Duration = 0.05


class LoggingConfig(_Section):
    """How the log is written."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Config(BaseSettings):
    """The whole configuration; paths are absolute once loaded. Documented in `cfmon config schema`."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=ENVIRONMENT_PREFIX, hide_input_in_errors=True, validate_default=False
    )

    mqtt: MqttConfig = MqttConfig()
    model: Annotated[str, Field(min_length=1)]
    state_encoder: Literal["index", "name", "valuation", "bins"] = "index"
    policies: dict[Identifier, Path]
    models: dict[Identifier, str] = {}
    path: PathConfig = PathConfig()
    formulas: Annotated[tuple[FormulaConfig, ...], Field(min_length=1, max_length=1000)]
    sampling: SamplingConfig = SamplingConfig()
    trust: TrustConfig = TrustConfig()
    stream: StreamConfig = StreamConfig()
    heartbeat: Duration = 10.0
    http: HttpConfig = HttpConfig()
    store: StoreConfig = StoreConfig()
    limits: LimitsConfig = LimitsConfig()
    logging: LoggingConfig = LoggingConfig()

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
            _write_default_as_text(setting)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Counterfactual monitor"}


def _write_default_as_text(setting: dict[str, Any]) -> None:
    """A default as a person would write it: `5s`, not 5.0, or `1GB`; a section's defaults stand at its own settings."""
    default = setting.get("default")
    if isinstance(default, dict):
        del setting["default"]
    elif isinstance(default, float) and setting.get("pattern") == _DURATION:
        setting["default"] = f"{default:g}s"
    elif isinstance(default, int) and setting.get("pattern") == _SIZE:
        setting["default"] = f"{default / 1e9:g}GB"
