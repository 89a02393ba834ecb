"""Classifiers of scikit-learn, or anything with its `predict`, as policies: evaluated in every state, as a table.

A pickle executes code when it is opened, so open only files that you trust.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np

from monitor.arrays import Floats
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.policy_export.original import Anything, Original, Request, tabulated
from monitor.user_code import explained

__all__ = ["SUFFIXES", "of_classifier", "read_classifier"]

SUFFIXES = (".joblib", ".pkl", ".pickle")


def read_classifier(model: MDP, request: Request) -> Original:
    """Return the policy of a pickled classifier. Raises PolicyError: it cannot be opened, or as `of_classifier`."""
    file = Path(request.source)
    try:
        classifier = _opened(file)
    except Exception as error:  # a pickle raises anything
        raise PolicyError(f"policy {file}: cannot be opened ({explained(error)})") from error
    return of_classifier(classifier, model, request)


def of_classifier(classifier: Anything, model: MDP, request: Request) -> Original:
    """Return the policy of a classifier whose features are the model's observations and whose classes are actions.

    With `stochastic` its `predict_proba`, else its `predict`. Raises PolicyError: it does not fit the model, or fails.
    """
    where = f"policy {request.source}"
    if not callable(getattr(classifier, "predict", None)):
        raise PolicyError(f"{where}: it holds {type(classifier).__name__}, which has no method predict")
    if model.observations is None:
        raise PolicyError(f"{where}: a classifier sees observations, and the model has none")
    width = getattr(classifier, "n_features_in_", model.observations.shape[1])
    if width != model.observations.shape[1]:
        raise PolicyError(
            f"{where}: it takes {width} features, an observation of the model has {model.observations.shape[1]}"
        )
    assumed = ["the classifier sees the observations of the model, and its classes are the numbers of actions"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # names of features, versions
            if request.stochastic:
                return tabulated(_chances(classifier, model), model, request, assumed)
            predicted = np.asarray(classifier.predict(model.observations))
    except PolicyError:
        raise
    except Exception as error:
        raise PolicyError(f"{where}: it failed ({explained(error)})") from error
    if predicted.dtype.kind == "f" and (predicted == predicted.round()).all():
        predicted = predicted.astype(np.int64)
    return tabulated(predicted, model, request, assumed)


def _chances(classifier: Anything, model: MDP) -> Floats:
    """Return the probability of each action, [S, A]; 0 for an action that is no class."""
    chances = np.zeros((model.states, model.actions))
    chances[:, np.asarray(classifier.classes_).astype(np.int64)] = classifier.predict_proba(model.observations)
    return chances


def _opened(file: Path) -> Anything:
    if file.suffix.lower() == ".joblib":
        import joblib  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415 - of scikit-learn

        return joblib.load(file)
    with file.open("rb") as opened:
        return pickle.load(opened)  # noqa: S301 - the user's own file, as the help of the command says
