"""Choose the reader of a policy by its source."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from monitor.authoring.policy_export import classifiers, table_files
from monitor.authoring.policy_export.classifiers import of_classifier, read_classifier
from monitor.authoring.policy_export.normalisation import AS_THEY_ARE
from monitor.authoring.policy_export.original import Anything, ExportRequest, Original
from monitor.authoring.policy_export.policy_functions import of_function
from monitor.authoring.policy_export.stable_baselines import is_agent, of_agent, read_zip
from monitor.authoring.policy_export.table_files import read_table
from monitor.authoring.policy_export.torch_modules import is_module, of_module
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.user_code import explained, is_reference, load_object

READERS: Final[Mapping[str, Callable[[MDP, ExportRequest], Original]]] = {
    ".zip": read_zip,
    **dict.fromkeys(table_files.SUFFIXES, read_table),
    **dict.fromkeys(classifiers.SUFFIXES, read_classifier),
}
"""Readers of files by suffix. Each raises PolicyError, beginning with `policy <file>:`, if the file has no policy."""
Found = TypeVar("Found")
PICKLES: Final = (".zip", *classifiers.SUFFIXES)
"""Suffixes of sources that contain pickles."""


def pickled(request: ExportRequest) -> list[str]:
    """Return the files of a request that contain pickles. Opening a pickle runs the code in it."""
    source = [] if is_reference(request.source) or not request.source.lower().endswith(PICKLES) else [request.source]
    plain = request.normalise in (None, AS_THEY_ARE) or str(request.normalise).endswith(".npz")
    return source if plain else [*source, str(request.normalise)]


def convert(model: MDP, request: ExportRequest) -> Original:
    """Return the policy of a source as ONNX, with the original's choices in every state.

    `module.py:name` is a function of a state, a torch module or a classifier, or a function without arguments that
    returns one of these. Raises PolicyError.
    """
    suffix = Path(request.source).suffix.lower()
    if is_reference(request.source):
        return _of_object(loaded(request.source), model, request)
    if not Path(request.source).is_file():
        raise PolicyError(f"policy {request.source}: there is no such file; give a file, or module.py:function")
    if suffix in READERS:
        return READERS[suffix](model, request)
    if suffix == ".onnx":
        raise PolicyError(f"policy {request.source}: it is ONNX already; `cfmon policy init` writes its manifest")
    raise PolicyError(
        f"policy {request.source}: unknown kind of file; give .zip (stable-baselines3), .json, .csv or .npy (a table), "
        ".joblib or .pkl (scikit-learn), or module.py:function"
    )


def on_first(tables: Sequence[MDP], use: Callable[[MDP], Found]) -> Found:
    """Return the result of `use` for the first of several models whose observations fit the policy.

    Raises PolicyError if no model fits. The message has the error for the first model. If the errors differ, it also
    has the widths of the observations of all models.
    """
    errors: list[PolicyError] = []
    for model in tables:
        try:
            return use(model)
        except PolicyError as error:
            errors.append(error)
    first = errors[0]
    if len({str(error) for error in errors}) == 1:
        raise first  # the error does not depend on the width of the observations
    widths = " nor ".join(str(each.observations.shape[1]) for each in tables if each.observations is not None)
    raise PolicyError(f"{first}. It takes neither {widths} numbers: states, or states and inputs") from first


def loaded(source: str) -> Anything:
    """Return the object that `module.py:name` names or, if it is a function without arguments, its result.

    Raises PolicyError.
    """
    value = load_object(source, PolicyError)
    ready = is_module(value) or (hasattr(value, "predict") and not isinstance(value, type))
    if callable(value) and not ready and _takes_nothing(value):
        try:
            return value()
        except Exception as error:
            raise PolicyError(f"policy {source}: it failed ({explained(error)})") from error
    return value


def _of_object(value: Anything, model: MDP, request: ExportRequest) -> Original:
    if is_module(value):
        return of_module(value, model, request)
    if request.weights is None and is_agent(value):
        return of_agent(value, model, request)
    if request.weights is not None or request.normalise is not None:
        raise PolicyError(f"policy {request.source}: --weights and --normalise are for torch modules; this is none")
    if hasattr(value, "predict"):
        return of_classifier(value, model, request)
    if callable(value):
        return of_function(value, model, request)
    raise PolicyError(
        f"policy {request.source}: it is {type(value).__name__}; give a function of a state, a torch module, a "
        "classifier, or a function without arguments that returns one"
    )


def _takes_nothing(function: Anything) -> bool:
    try:
        needed = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in needed
    )
