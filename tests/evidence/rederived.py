"""An alarm's evidence made in one call, and everything that is wrong with a document."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.alarm.message import Identity
from monitor.evaluation.models import AnyModel
from monitor.evaluation.worlds import WorldChecker
from monitor.evidence.contradictions import contradictions
from monitor.evidence.document import Evidence, read_evidence
from monitor.evidence.maker import Choosing, EvidenceMaker
from monitor.evidence.rederivation import Deriver, Policies, derive_again
from monitor.types import Alert, TakenOver


def make_evidence(
    about: Alert | TakenOver,
    identity: Identity,
    tables: Mapping[str, Choosing],
    manifests: Mapping[str, Mapping[str, object]],
) -> bytes:
    """The document for one alert or judged takeover."""
    return EvidenceMaker(identity, tables, manifests).make(about)


def confirmed(alert: Alert, checker: WorldChecker, identity: Identity, deriver: Deriver) -> Evidence:
    """The evidence of an alert on a world with numbers, in which one program finds nothing wrong."""
    document = read_evidence(make_evidence(alert, identity, checker.policies, {}))
    found = derive_again(document, checker.model, checker.policies, {}, [deriver])
    assert (found.problems, found.by) == ([], deriver.name)
    return document


def rederive(
    evidence: Evidence, model: AnyModel, tables: Policies, models: Mapping[str, AnyModel] | None = None
) -> list[str]:
    """Everything in the evidence that does not follow from its path, this model and these policies."""
    return contradictions(evidence) or derive_again(evidence, model, tables, models).problems
