"""The language PCFTL: its nodes, its text, and path formulas as automata. It computes no values."""

from monitor.logic.automaton import FALSE, TRUE, Automaton, PathAutomaton, RewardAutomaton, automaton_of
from monitor.logic.diagram import timing
from monitor.logic.parser import parse
from monitor.logic.printer import print_formula
from monitor.logic.syntax import Formula

__all__ = [
    "FALSE",
    "TRUE",
    "Automaton",
    "Formula",
    "PathAutomaton",
    "RewardAutomaton",
    "automaton_of",
    "parse",
    "print_formula",
    "timing",
]
