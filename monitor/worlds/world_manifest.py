"""The manifest of a world: `kind: world`, a YAML file beside the ONNX graphs of its location and scale."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from monitor.errors import ConfigError, ModelError
from monitor.policy.manifest import inside
from monitor.worlds.protocol import Feature
from monitor.yamltext import parse_yaml

MAX_MANIFEST_BYTES = 1 << 20
MOST_FITS = 100

_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class File(_Strict):
    """A file beside the manifest.

    An ONNX graph has one output. Its inputs are among `x` (the state), `a` (the action, one-hot) and `w` (the inputs).
    The inputs of the graph for `reward` are among `x`, `a` and `x_next` (the next state).
    """

    file: Annotated[str, Field(min_length=1, max_length=256)]
    """The file, relative to the manifest and inside its folder."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """The SHA-256 of the file, hexadecimal."""

    _file_inside = field_validator("file")(inside)


class WorldNumber(_Strict):
    """A number of the state, or an input."""

    name: _Name
    """Name of the number in conditions and messages."""
    unit: str = ""
    """Unit, shown to people."""
    low: float = -math.inf
    """The least possible value."""
    high: float = math.inf
    """The largest possible value."""

    @model_validator(mode="after")
    def _ordered(self) -> WorldNumber:
        if not self.low < self.high:
            raise ValueError(f"low is {self.low} and high {self.high}; low comes first")
        return self

    @property
    def feature(self) -> Feature:
        """The number, as the engines use it."""
        return Feature(self.name, self.unit, self.low, self.high)


class FeatureSpec(WorldNumber):
    """A feature: a number, or one of several named values."""

    whole: bool = False
    """Whether the value is rounded to a whole number, half up."""
    clip: bool = False
    """Whether the value is clipped to `low` and `high` after rounding; if not, a step beyond them is an error."""
    values: tuple[_Name, ...] = ()
    """Named values 0, 1, ..; the probabilities of the next value are the output of `probabilities`."""
    probabilities: File | None = None
    """Graph with one output [batch, number of values]."""

    @model_validator(mode="after")
    def _consistent(self) -> FeatureSpec:
        if bool(self.values) != (self.probabilities is not None):
            raise ValueError("values and probabilities belong together")
        if self.values and (len(set(self.values)) < len(self.values) or len(self.values) < 2):
            raise ValueError("values are two or more different names")
        if self.values and (self.whole or self.clip or self.low > -math.inf or self.high < math.inf):
            raise ValueError("named values are not rounded, clipped or bounded")
        return self

    @property
    def feature(self) -> Feature:
        """The feature, as the engines use it."""
        if self.values:
            return Feature(self.name, self.unit, values=self.values)
        return Feature(self.name, self.unit, self.low, self.high, self.whole)


class Noise(_Strict):
    """A noise distribution other than the normal distribution: Student's t, or a distribution of residuals."""

    student: Annotated[float, Field(gt=0)] | None = None
    """Degrees of freedom of Student's t distribution, which is not scaled."""
    residuals: Annotated[tuple[float, ...], Field(min_length=2, max_length=100_000)] | None = None
    """The residuals of the training data, divided by the scale. Their distribution is smoothed."""
    bandwidth: Annotated[float, Field(gt=0)] | None = None
    """Bandwidth of the smoothing; if absent, it follows Silverman's rule."""

    @model_validator(mode="after")
    def _one(self) -> Noise:
        if (self.student is None) == (self.residuals is None):
            raise ValueError("give one of student and residuals")
        return self


class RecordedAction(_Strict):
    """The recorded data of an action, in the steps from which a world was learned."""

    steps: Annotated[int, Field(ge=1)]
    """Number of recorded steps with this action."""
    ranges: dict[_Name, tuple[float, float]] = {}
    """Feature or input -> the least and the greatest number at which the action was taken."""

    @field_validator("ranges")
    @classmethod
    def _ordered(cls, ranges: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        for name, (low, high) in ranges.items():
            if not low <= high:
                raise ValueError(f"the range of {name} is {low} to {high}; the least comes first")
        return ranges


class WorldManifest(_Strict):
    """Manifest of a world: the next value of a feature is location + scale x noise, rounded and clipped."""

    kind: Literal["world"]
    version: Annotated[str, Field(min_length=1, max_length=256)]
    """Name and version of the world."""
    features: Annotated[tuple[FeatureSpec, ...], Field(min_length=1, max_length=256)]
    """The numbers of a state, in order."""
    actions: Annotated[tuple[str, ...], Field(min_length=1, max_length=4096)]
    """The names of the actions 0, 1, .."""
    inputs: tuple[WorldNumber, ...] = ()
    """Numbers recorded with each step."""
    recorded_inputs: File | None = None
    """CSV file of recorded inputs, from which future inputs are resampled; if absent, the last inputs are kept."""
    location: File | None = None
    """Graph of the location: one output [batch, number of features without named values]."""
    scale: File | tuple[Annotated[float, Field(ge=0)], ...] = ()
    """Graph of the scale, with an output of the same shape as the location, or a number for each of these features."""
    noise: Literal["normal"] | Noise | dict[_Name, Literal["normal"] | Noise] = "normal"
    """One distribution for all features, or one for each feature by name; features that are not named are normal."""
    labels: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")], str] = {}
    """Name -> condition, such as `level >= 9 and mode == 'busy'`."""
    reward: File | None = None
    """Graph of the reward of a step: one output [batch, 1]; if absent, formulas with R are refused."""
    learned: bool = False
    """Whether location, scale and noise were estimated from data."""
    recorded: dict[str, RecordedAction] = {}
    """Action -> its recorded data. Beyond these data the world extrapolates, and answers report this. An action that is
    missing here was never recorded. If `recorded` is absent, nothing is known about recorded data.
    """
    fits: Annotated[tuple[File, ...], Field(max_length=MOST_FITS)] = ()
    """Manifests of the same world estimated from other data, such as resampled recordings. Differences between their
    answers show the uncertainty of the data. The ranges, labels, rewards and future inputs of this world replace those
    of the fits.
    """

    @model_validator(mode="after")
    def _consistent(self) -> WorldManifest:
        numbers = [each.name for each in self.features if not each.values]
        if bool(numbers) != (self.location is not None):
            raise ValueError("location is for the features without named values, which need it")
        if not isinstance(self.scale, File) and len(self.scale) != len(numbers):
            raise ValueError(f"scale has {len(self.scale)} numbers for {len(numbers)} features without named values")
        if isinstance(self.noise, dict) and (unknown := set(self.noise) - set(numbers)):
            raise ValueError(f"noise of {', '.join(sorted(unknown))}: no such feature without named values")
        if self.recorded_inputs is not None and not self.inputs:
            raise ValueError("recorded_inputs are those of inputs, and there are none")
        names = [each.name for each in (*self.features, *self.inputs)]
        if len(set(names)) < len(names) or len(set(self.actions)) < len(self.actions):
            raise ValueError("each name of features and inputs, and of actions, is needed once")
        if unknown := self.recorded.keys() - set(self.actions):
            raise ValueError(f"recorded: {', '.join(sorted(unknown))}: no such action")
        for action, recorded in self.recorded.items():
            if unknown := recorded.ranges.keys() - set(names):
                raise ValueError(f"recorded.{action}: {', '.join(sorted(unknown))}: no such feature or input")
        return self

    def described_by(self, world: WorldManifest) -> WorldManifest:
        """Return this manifest of a fit with the ranges and labels of `world`, where a user may have corrected them."""
        described = {(each.name, each.values): each for each in world.features}
        features = tuple(
            described.get((each.name, each.values), each).model_copy(update={"probabilities": each.probabilities})
            for each in self.features
        )
        inputs = {each.name: each for each in world.inputs}
        return self.model_copy(
            update={
                "features": features,
                "inputs": tuple(inputs.get(each.name, each) for each in self.inputs),
                "labels": world.labels,
            }
        )


def read_manifest(content: bytes, where: str) -> WorldManifest:
    """Read the manifest in the bytes of a YAML file. Raises ModelError with one line, which calls the file `where`."""
    try:
        given = parse_yaml(content, where, limit=MAX_MANIFEST_BYTES).content
        return WorldManifest.model_validate(given)
    except ConfigError as error:
        raise ModelError(f"world {error}") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'manifest'}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors(include_url=False)
        )
        raise ModelError(f"world {where}: {problems}") from error
