"""Export torch modules as ONNX: the user's own, as in CleanRL, and modules made for a policy of another library."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.policy_export.normalisation import AS_THEY_ARE, Normalisation, read_normalisation
from monitor.authoring.policy_export.original import MEMORY, Anything, ExportRequest, Original
from monitor.errors import PolicyError, to_install
from monitor.model.mdp import MDP
from monitor.policy.draft import OutputKind
from monitor.policy.manifest import MemoryTensor
from monitor.user_code import explained

OPSET: Final = 17


@dataclass(frozen=True)
class Exported:
    """A network as ONNX bytes. `normalisation`: the normalisation that is part of the network, or None."""

    content: bytes
    normalisation: Normalisation | None


def torch_or_error(source: str) -> Anything:
    """Return the package torch. Raises PolicyError if it is not installed."""
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - a gigabyte, for this only
    except ImportError as error:
        raise PolicyError(f"policy {source}: needs torch: {to_install('train')}") from error
    return torch


def is_module(value: object) -> bool:
    """Return whether a value is a torch module, without importing torch."""
    import sys  # noqa: PLC0415 - likewise

    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def of_module(module: Anything, model: MDP, request: ExportRequest) -> Original:
    """Return the policy of a torch module that maps observations [n, D] to scores [n, A].

    Agents of CleanRL have no `forward`, but an `actor`. The policy of such a module is the actor, applied to the output
    of its `network` if it has a network. `request.weights` gives the parameters, if set. Raises PolicyError if the
    module has memory, fails, or does not fit the model.
    """
    where = f"policy {request.source}"
    torch = torch_or_error(request.source)
    if model.observations is None:
        raise PolicyError(f"{where}: a network sees observations, and the model has none")
    if request.weights is not None:
        _load(torch, module, request.weights)
    assumed: list[str] = [*model.named_actions.order]
    head = _head(torch, module, where, assumed)
    refuse_memory(torch, module, where)
    kind: OutputKind = request.output or "logits"
    if request.output is None:
        assumed.append("the network's output holds logits; if not, give --output")
    exported = network_onnx(torch, head, model, request, kind)
    seen = model.observations.astype(np.float64)
    if exported.normalisation is not None:
        seen = exported.normalisation.apply(seen)
    scores = evaluated(torch, head, seen, where)
    if scores.shape != (model.states, model.actions):
        raise PolicyError(f"{where}: its output has shape {list(scores.shape)}, not {[model.states, model.actions]}")
    return Original(exported.content, kind, bool(request.stochastic), None, scores, assumed)


def refuse_memory(torch: Anything, module: Anything, where: str) -> None:
    """Raise PolicyError if a module has recurrent parts."""
    recurrent = (torch.nn.RNNBase, torch.nn.RNNCellBase)
    found = next((type(part).__name__ for part in module.modules() if isinstance(part, recurrent)), None)
    if found is not None:
        raise PolicyError(f"{where}: it contains {found}, so it has memory: {MEMORY}")


def evaluated(torch: Anything, module: Anything, observations: Floats, where: str) -> Floats:
    """Return the module's output for observations [n, D], evaluated by torch."""
    try:
        with torch.no_grad():
            out = module(torch.as_tensor(observations.astype(np.float32)))
    except Exception as error:
        raise PolicyError(f"{where}: the network cannot be evaluated ({explained(error)})") from error
    if not isinstance(out, torch.Tensor):
        raise PolicyError(
            f"{where}: its forward returns {type(out).__name__}, not one tensor of scores; return the part of the "
            "module that gives them"
        )
    scores: Floats = out.detach().cpu().numpy().astype(np.float64)
    return scores


def network_onnx(
    torch: Anything,
    module: Anything,
    model: MDP,
    request: ExportRequest,
    output: str,
    *,
    remembered: Mapping[MemoryTensor, Anything] = MappingProxyType({}),
) -> Exported:
    """Return a module as ONNX with input `observation` [batch, D] and output [batch, A], normalisation included.

    `remembered`: names of the memory's inputs and outputs -> an example of the tensor; the batch is then 1. Raises
    PolicyError if torch cannot export the module.
    """
    assert model.observations is not None, "the caller has looked"
    width = int(model.observations.shape[1])
    without = request.normalise in (None, AS_THEY_ARE)
    normalisation = None if without else read_normalisation(str(request.normalise), width)
    whole = _with_normalisation(torch, module, normalisation).eval()
    example = model.observations[:1].copy() if normalisation else model.observations[:1].astype(np.float32)
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # warnings about deprecations, and about constants found while tracing
            torch.onnx.export(
                whole,
                (torch.as_tensor(example), *remembered.values()),
                buffer,
                input_names=["observation", *(each.input for each in remembered)],
                output_names=[output, *(each.output for each in remembered)],
                dynamic_axes={} if remembered else {"observation": {0: "batch"}, output: {0: "batch"}},
                opset_version=OPSET,
                dynamo=False,
            )
    except Exception as error:
        raise PolicyError(f"policy {request.source}: torch cannot export it ({explained(error)})") from error
    return Exported(buffer.getvalue(), normalisation)


def _with_normalisation(torch: Anything, module: Anything, statistics: Normalisation | None) -> Anything:
    if statistics is None:
        return module
    base: Anything = torch.nn.Module
    mean, scale, clip = (torch.as_tensor(each) for each in (statistics.mean, statistics.scale, statistics.clip))

    class Normalised(base):  # type: ignore[misc, unused-ignore] # torch may not be installed
        """The module after normalisation of its input."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = module
            self.register_buffer("mean", mean)
            self.register_buffer("scale", scale)
            self.register_buffer("clip", clip)

        def forward(self, observation: Anything, *remembered: Anything) -> Anything:
            scaled = (observation.double() - self.mean) / self.scale  # 64 bits, as in the original
            return self.inner(torch.maximum(torch.minimum(scaled, self.clip), -self.clip).float(), *remembered)

    return Normalised()


def _head(torch: Anything, module: Anything, where: str, assumed: list[str]) -> Anything:
    """Return the module that maps an observation to scores."""
    module.eval()
    if type(module).forward is not torch.nn.Module.forward:
        return module
    actor, network = getattr(module, "actor", None), getattr(module, "network", None)
    if not is_module(actor):
        raise PolicyError(f"{where}: the module has no forward and no actor; return the part that gives the scores")
    assumed.append(f"the policy is the module's {'network and ' if is_module(network) else ''}actor")
    return torch.nn.Sequential(network, actor) if is_module(network) else actor


def _load(torch: Anything, module: Anything, weights: str) -> None:
    try:
        module.load_state_dict(torch.load(Path(weights), map_location="cpu", weights_only=True))
    except Exception as error:
        raise PolicyError(f"--weights {weights}: cannot be loaded into the module ({explained(error)})") from error
