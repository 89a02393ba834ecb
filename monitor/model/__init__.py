"""The model: a Markov decision process, how it is read, and how an agent's words become its indices."""

from monitor.model.mdp import MDP

__all__ = ["MDP"]
