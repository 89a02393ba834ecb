"""A user's own policies, given to the command as `sources.py:...`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

COUNT = [0]


def by_observation(observation: Any) -> int:  # noqa: ANN401 - a NumPy array
    return int(observation[0] > 0)


def by_index(state: int) -> str:
    return "right" if state % 2 else "left"


def by_valuation(valuation: tuple[Any, ...]) -> list[float]:
    return [0.25, 0.75] if valuation[0] else [1.0, 0.0]


def scores(_: object) -> Any:  # noqa: ANN401
    return np.array([3.0, -1.0])


def remembering(_: object) -> int:
    COUNT[0] += 1
    return COUNT[0] % 2


def sometimes_scores(state: int) -> object:
    return 0 if state else [1.0, 0.0]


def failing(_: object) -> int:
    raise ZeroDivisionError("no action here")


def wrong(_: object) -> object:
    return object()


def three(_: object) -> list[float]:
    return [1.0, 2.0, 3.0]


def unknown(_: object) -> str:
    return "up"


def factory() -> Callable[[object], int]:
    return lambda _: 1


def failing_factory() -> object:
    raise OSError("no weights")


class Voter:
    """A classifier as scikit-learn has them."""

    n_features_in_ = 2
    classes_ = np.array([1])

    def predict(self, features: Any) -> Any:  # noqa: ANN401
        return (features[:, 0] > 0).astype(float)

    def predict_proba(self, features: Any) -> Any:  # noqa: ANN401
        return np.ones((len(features), 1))


class Says:
    """A classifier of given classes: the first in state a, the second in b and c. `probable`: it has probabilities."""

    def __init__(self, classes: Any, *, probable: bool = True, column: bool = False) -> None:  # noqa: ANN401
        self.classes_, self.column = np.asarray(classes), column
        if probable:
            self.predict_proba = lambda features: np.eye(len(self.classes_))[self.places(features)]

    def places(self, features: Any) -> Any:  # noqa: ANN401
        return (features[:, 0] > 0).astype(int)

    def predict(self, features: Any) -> Any:  # noqa: ANN401
        said = self.classes_[self.places(features)]
        return said[:, np.newaxis] if self.column else said


class Two(Says):
    """Two outputs at once, as of a forest fitted to two columns."""

    def __init__(self) -> None:
        super().__init__([0, 1])
        self.predict_proba = lambda features: [np.eye(2)[self.places(features)]] * 2

    def predict(self, features: Any) -> Any:  # noqa: ANN401
        return np.stack([super().predict(features)] * 2, axis=1)


class Wide(Voter):
    n_features_in_ = 3


class Broken(Voter):
    def predict(self, features: Any) -> Any:  # noqa: ANN401
        raise ValueError(f"not fitted for {len(features)}")


voter = Voter()
number = 7
