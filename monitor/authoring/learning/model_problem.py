"""Problems of a learned model: a sentence for a report, and a short form for a table."""

from __future__ import annotations

from typing import Self


class ModelProblem(str):
    """A reason why a model is not good enough, as text. `brief`: the part of the text that fits into a table.

    >>> problem = ModelProblem("3% of the steps are in thin rows", "; use coarser bins")
    >>> print(problem)
    3% of the steps are in thin rows; use coarser bins
    >>> print(problem.brief)
    3% of the steps are in thin rows
    """

    __slots__ = ("brief",)
    brief: str

    def __new__(cls, brief: str, more: str = "") -> Self:
        """Return the problem. `more`: the rest of the text, such as details and advice."""
        made = super().__new__(cls, brief + more)
        made.brief = brief
        return made
