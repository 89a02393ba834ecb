"""A policy that a user gives together with recordings.

The columns that it sees are known before anything is learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.left_out import RowLimit
from monitor.authoring.policy_export import classifiers, table_files
from monitor.authoring.policy_export.classifiers import of_classifier, opened_classifier
from monitor.authoring.policy_export.convert import loaded
from monitor.authoring.policy_export.original import Anything, ExportRequest
from monitor.authoring.policy_export.policy_columns import PolicyRows, offered, rows_of_columns
from monitor.authoring.policy_export.row_functions import Answered, RowFunction
from monitor.authoring.policy_export.stable_baselines import is_agent
from monitor.authoring.policy_export.torch_modules import is_module
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.policy.network import open_network
from monitor.policy.onnx_policy import opened, read_onnx
from monitor.user_code import is_reference

MANIFESTS: Final = (".yaml", ".yml")


@dataclass(frozen=True)
class GivenPolicy:
    """A policy that a user gives.

    Attributes:
        source: name of the policy, as the user gave it.
        function: the policy, if it is a function of recorded columns.
        classifier: the policy, if it is an object with `predict`.
        seen: the columns that the policy takes as numbers, or several possible choices of columns; empty if the policy
            takes the number of a state or is a function.
    """

    source: str
    function: RowFunction | None = None
    classifier: Anything = None
    seen: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, source: str, names: Sequence[str], roles: Roles) -> GivenPolicy:
        """Return the policy of a source for recordings with these columns.

        Raises PolicyError if the file does not exist, if the parameters are not columns, or if their number is wrong.
        """
        where, suffix = f"policy {source}", Path(source).suffix.lower()
        if not is_reference(source) and not Path(source).is_file():
            raise PolicyError(f"{where}: there is no such file; give a file, or module.py:function")
        usual = roles.observation or roles.state
        choices = tuple(dict.fromkeys((usual, *([(*roles.state, *roles.inputs)] if roles.inputs else []))))
        columns = offered(names, roles)
        if is_reference(source):
            value = loaded(source)
            if is_module(value) or is_agent(value):
                return cls(source, seen=choices)
            if not hasattr(value, "predict"):
                if not callable(value):
                    raise PolicyError(
                        f"{where}: it is {type(value).__name__}; give a function of columns, a torch module, a "
                        "classifier, or a function without arguments that returns one"
                    )
                return cls(source, RowFunction.of(value, columns, where))
            return cls(source, classifier=value, seen=_of_classifier(value, columns, choices, where))
        if suffix in classifiers.SUFFIXES:
            value = opened_classifier(source)
            return cls(source, classifier=value, seen=_of_classifier(value, columns, choices, where))
        if suffix in table_files.SUFFIXES:
            return cls(source)
        if suffix in (".onnx", *MANIFESTS):
            content = opened(source, lambda _, read, __: read).content if suffix != ".onnx" else read_onnx(Path(source))
            return cls(source, seen=_of_network(content, choices, where))
        return cls(source, seen=choices)

    @property
    def sees_columns(self) -> bool:
        """Whether the policy sees columns of the recordings, and not the number of a state."""
        return self.function is not None or bool(self.seen)

    def chosen(self, rows: PolicyRows, model: MDP, limit: RowLimit) -> Answered:
        """Return the choices of a function or a classifier on rows. `model`: gives the actions. Raises PolicyError.

        `limit`: number of rows on which a function may fail.
        """
        if self.function is not None:
            return self.function.answers(rows, model, limit)
        assert self.classifier is not None
        where = f"policy {self.source}"
        table = rows.table(self.seen[0], model, where)
        found = of_classifier(self.classifier, table, ExportRequest(self.source))
        values = found.scores if found.actions is None else found.actions
        assert values is not None
        return Answered(rows, values)


def choices_of(source: str, columns: Mapping[str, AnyArray]) -> set[object]:
    """Return the actions that `module.py:function` chooses in some rows of columns [n]; none if it is not a function.

    The roles of the columns are not known yet, so it is no error if the function fails in all these rows.
    """
    try:
        value = loaded(source)
        if not callable(value) or is_module(value) or is_agent(value) or hasattr(value, "predict"):
            return set()
        rows = rows_of_columns(columns)
        return RowFunction.of(value, tuple(columns), f"policy {source}").choices(rows)
    except PolicyError:
        return set()


def _of_classifier(
    classifier: Anything, columns: Sequence[str], choices: Sequence[tuple[str, ...]], where: str
) -> tuple[tuple[str, ...], ...]:
    named = tuple(map(str, getattr(classifier, "feature_names_in_", ())))
    if named and set(named) <= set(columns):
        return (named,)
    return _of_width(getattr(classifier, "n_features_in_", None), choices, where, ", ".join(named))


def _of_network(content: bytes, choices: Sequence[tuple[str, ...]], where: str) -> tuple[tuple[str, ...], ...]:
    inputs, _ = open_network(content, where)
    element, shape = (inputs[0][1], inputs[0][2]) if len(inputs) == 1 else ("", [])
    if "float" not in element and "double" not in element:
        return ()
    width = shape[1] if len(shape) == 2 else None
    if len(choices) == 1 and len(choices[0]) == 1 and width != 1:
        return ()  # a single column may have names of states, which a network takes as one-hot vectors
    return _of_width(width, choices, where)


def _of_width(
    width: object, choices: Sequence[tuple[str, ...]], where: str, named: str = ""
) -> tuple[tuple[str, ...], ...]:
    """Return the choices with `width` columns. Raises PolicyError if there is none."""
    found = tuple(each for each in choices if not isinstance(width, int | np.integer) or len(each) == width)
    if found:
        return found
    has = ", or ".join(f"{len(each)} ({', '.join(each)})" for each in choices)
    raise PolicyError(
        f"{where}: it takes {width} features{named and f' ({named})'}, and the recordings give it {has}. Name the "
        "columns that it takes as --state, in its order, and those of them that the agent does not influence as "
        "--inputs; or give a function of columns by name, def act(COLUMN, COLUMN), that calls it"
    )
