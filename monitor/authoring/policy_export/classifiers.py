"""Export classifiers of scikit-learn, and objects with the same `predict`, by evaluating them in every state.

Opening a pickle executes code, so open only files that you trust.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np

from monitor.arrays import AnyArray, Floats
from monitor.authoring.policy_export.original import Anything, ExportRequest, Original, action_numbers, tabulated_inputs
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.user_code import explained

SUFFIXES = (".joblib", ".pkl", ".pickle")


def read_classifier(model: MDP, request: ExportRequest) -> Original:
    """Return the policy of a pickled classifier. Raises PolicyError if it cannot be opened, or as `of_classifier`."""
    return of_classifier(opened_classifier(request.source), model, request)


def opened_classifier(source: str) -> Anything:
    """Return the object in a pickle. Raises PolicyError if it cannot be opened."""
    file = Path(source)
    try:
        return _opened(file)
    except Exception as error:  # a pickle may raise anything
        raise PolicyError(f"policy {file}: cannot be opened ({explained(error)})") from error


def of_classifier(classifier: Anything, model: MDP, request: ExportRequest) -> Original:
    """Return the policy of a classifier whose features are the model's observations and whose classes are actions.

    A class is the number or the name of an action (`action_numbers`). With `stochastic`, its `predict_proba` is used,
    otherwise its `predict`. Raises PolicyError if the classifier does not fit the model or fails.
    """
    where = f"policy {request.source}"
    predict = "predict_proba" if request.stochastic else "predict"
    if predict != "predict" and not callable(getattr(classifier, predict, None)):
        raise PolicyError(f"{where}: {type(classifier).__name__} has no {predict}; leave --stochastic out")
    if not callable(getattr(classifier, predict, None)):
        raise PolicyError(f"{where}: it holds {type(classifier).__name__}, which has no method predict")
    if model.observations is None or model.inputs is None:
        raise PolicyError(f"{where}: a classifier sees observations, and the model has none")
    width = getattr(classifier, "n_features_in_", model.observations.shape[1])
    if width != model.observations.shape[1]:
        raise PolicyError(
            f"{where}: it takes {width} features, an observation of the model has {model.observations.shape[1]}"
        )
    inputs, of = model.inputs
    columns = ", ".join(map(str, getattr(classifier, "feature_names_in_", ())))
    assumed = [f"the classifier sees the observations of the model{columns and f', whose columns are {columns}'}"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names of features and versions
            predicted = np.asarray(getattr(classifier, predict)(inputs))
            classes = np.asarray(getattr(classifier, "classes_", np.arange(model.actions)))
    except Exception as error:
        raise PolicyError(f"{where}: it failed ({explained(error)})") from error
    if request.stochastic:
        chances = _chances(predicted, classes, (model, len(of)), where)
        return tabulated_inputs(chances, of, model, request, [*assumed, _meaning(classes, model)])
    if predicted.shape == (len(of), 1):
        predicted = predicted[:, 0]
    if predicted.ndim > 1 and hasattr(classifier, "classes_"):  # a regressor without classes may predict scores
        raise PolicyError(f"{where}: it predicts {list(predicted.shape)} classes; give a classifier of one output")
    if predicted.ndim > 1:
        return tabulated_inputs(predicted, of, model, request, assumed)
    actions = action_numbers(predicted, model, where)
    return tabulated_inputs(actions, of, model, request, [*assumed, _meaning(predicted, model)])


def _meaning(classes: AnyArray, model: MDP) -> str:
    """Return a sentence on the interpretation of the classes."""
    if classes.dtype.kind == "b":
        return "its class False is action 0 and True action 1, unless actions have these names"
    texts = any(isinstance(each, str | bytes) for each in classes.reshape(-1).tolist())
    texts = texts or not model.named_actions.by_index
    return f"its classes are the {'names' if texts else 'numbers'} of actions"


def _chances(predicted: AnyArray, classes: AnyArray, size: tuple[MDP, int], where: str) -> Floats:
    """Return the probability of each action, [M, A], from the probabilities of the classes.

    The probability is 0 for an action that is not a class. `size`: the model, and the number M of inputs.
    """
    model, inputs = size
    if classes.ndim != 1 or predicted.shape != (inputs, len(classes)):
        raise PolicyError(
            f"{where}: its predict_proba has shape {list(predicted.shape)} for {inputs} observations and "
            f"{classes.size} classes; give a classifier of one output"
        )
    numbers = action_numbers(classes, model, where)
    if (numbers < 0).any() or (numbers >= model.actions).any():
        raise PolicyError(f"{where}: its classes are {classes.tolist()!r:.80}; actions are 0..{model.actions - 1}")
    chances = np.zeros((inputs, model.actions))
    chances[:, numbers] = predicted
    return chances


def _opened(file: Path) -> Anything:
    if file.suffix.lower() == ".joblib":
        import joblib  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415 - of scikit-learn

        return joblib.load(file)
    with file.open("rb") as opened:
        return pickle.load(opened)  # noqa: S301 - the user's own file, as the help of the command says
