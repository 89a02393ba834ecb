"""The model: a Markov decision process, how it is read, and how an agent's words become its indices."""

from monitor.model.encode import encode_action, encode_state
from monitor.model.io import canonical_bytes, load_model, model_sha256, read_model, save_model
from monitor.model.mdp import MDP

__all__ = [
    "MDP",
    "canonical_bytes",
    "encode_action",
    "encode_state",
    "load_model",
    "model_sha256",
    "read_model",
    "save_model",
]
