"""The model: a Markov decision process, its files, and the encoding of an agent's states and actions as indices.

Names are imported when they are first used, so that `monitor.model.formats` is fast to import for `cfmon --help`.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from monitor.model.encode import encode_action as encode_action
    from monitor.model.encode import encode_action_text as encode_action_text
    from monitor.model.encode import encode_state as encode_state
    from monitor.model.io import canonical_bytes as canonical_bytes
    from monitor.model.io import load_model as load_model
    from monitor.model.io import model_sha256 as model_sha256
    from monitor.model.io import read_model as read_model
    from monitor.model.io import save_model as save_model
    from monitor.model.mdp import MDP as MDP

_HOMES = {"encode_action": "encode", "encode_action_text": "encode", "encode_state": "encode", "MDP": "mdp"}
_HOMES |= dict.fromkeys(("canonical_bytes", "load_model", "model_sha256", "read_model", "save_model"), "io")

__all__ = [*sorted(_HOMES)]  # noqa: PLE0604 - the names are listed once, in the table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
