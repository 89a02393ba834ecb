"""An alarm's evidence made in one call, and everything that is wrong with a document."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.alarm.message import Identity
from monitor.evaluation.models import AnyModel
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import Evidence
from monitor.evidence.maker import Choosing, EvidenceMaker
from monitor.evidence.rederivation import Policies, derive_again
from monitor.types import Alert, TakenOver


def make_evidence(
    about: Alert | TakenOver,
    identity: Identity,
    tables: Mapping[str, Choosing],
    manifests: Mapping[str, Mapping[str, object]],
) -> bytes:
    """The document for one alert or judged takeover."""
    return EvidenceMaker(identity, tables, manifests).make(about)


def rederive(
    evidence: Evidence, model: AnyModel, tables: Policies, models: Mapping[str, AnyModel] | None = None
) -> list[str]:
    """Everything in the evidence that does not follow from its path, this model and these policies."""
    return contradictions(evidence) or derive_again(evidence, model, tables, models).problems
