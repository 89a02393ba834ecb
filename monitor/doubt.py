"""Whether the model is in doubt: its test against what happens, how it stands, and what of it is kept."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from monitor.model import MDP
from monitor.statistics.trust import ModelTest, TrustState
from monitor.types import Notice, Trust, TrustSettings

__all__ = ["Doubt", "DoubtState"]


class DoubtState(msgspec.Struct, frozen=True, array_like=True):
    """A `Doubt` as plain data, and on what it depends beside the model: if that changes, it begins anew.

    `told`: transitions when it was last told how the model stands.
    """

    settings: TrustSettings
    encoder: str
    test: TrustState
    told: int


class Doubt:
    """One test for all agents. `encoder`: how states are read; read otherwise, they are another model's.

    `test` is None where the settings switch it off: then nothing is kept, and it is told as one that tested nothing,
    since a reload that switches it off must take back a doubt that was shown.
    """

    def __init__(self, model: MDP, settings: TrustSettings, encoder: str) -> None:
        self._settings, self._encoder = settings, encoder
        self._told = 0
        self.test: ModelTest | None = None
        if settings.enabled:
            rows = model.indptr.data, model.successors.data, model.probabilities.data
            self.test = ModelTest(*rows, alpha=settings.alpha, impossible=settings.impossible)

    @property
    def stands(self) -> bool:
        """Whether the model is doubted now; never where it is not tested."""
        return self.test is not None and self.test.doubted

    def news(self) -> Iterator[Notice]:
        """How the model stands, if it was tested since that was last told."""
        if self.test is not None and self.test.transitions > self._told:
            self._told = self.test.transitions
            yield from self.again()

    def again(self) -> Iterator[Notice]:
        """How the model stands."""
        if self.test is None:
            yield Trust(doubted=False, log10_e=0.0, transitions=0)
        else:
            yield Trust(self.test.doubted, self.test.log10_e, self.test.transitions)

    def dump(self) -> DoubtState | None:
        """What is kept; None where nothing is tested."""
        return None if self.test is None else DoubtState(self._settings, self._encoder, self.test.dump(), self._told)

    def load(self, state: DoubtState | None, *, same_model: bool) -> bool:
        """Go on where a former test stood; False if that was of something else, or another test: it begins anew."""
        if self.test is None or state is None:
            return self.test is None and state is None
        if not same_model or (state.settings, state.encoder) != (self._settings, self._encoder):
            return False
        self.test.load(state.test)
        self._told = state.told
        return True
