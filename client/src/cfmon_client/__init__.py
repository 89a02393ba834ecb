"""The agent's side of the counterfactual monitor: publish steps, receive alerts.

The names below are the public API. Each is loaded on first use, so you need a wrapper's library only if you use the
wrapper.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from cfmon_client._version import __version__

if TYPE_CHECKING:
    from cfmon_client.alert import Alert as Alert
    from cfmon_client.alert import read_alert as read_alert
    from cfmon_client.broker import Broker as Broker
    from cfmon_client.errors import AlertError as AlertError
    from cfmon_client.errors import ClientError as ClientError
    from cfmon_client.message import Observed as Observed
    from cfmon_client.publisher import Publisher as Publisher
    from cfmon_client.publisher import Status as Status
    from cfmon_client.stable_baselines import WatchedTraining as WatchedTraining
    from cfmon_client.steps import Steps as Steps
    from cfmon_client.steps import publish as publish
    from cfmon_client.subscription import alerts as alerts
    from cfmon_client.takeover import Acting as Acting
    from cfmon_client.takeover import Takeover as Takeover
    from cfmon_client.takeover_rules import Rules as Rules
    from cfmon_client.watched import Watched as Watched
    from cfmon_client.watched import WatchedVector as WatchedVector

_HOME_OF: Final = {
    "Acting": "takeover",
    "Alert": "alert",
    "AlertError": "errors",
    "Broker": "broker",
    "ClientError": "errors",
    "Observed": "message",
    "Publisher": "publisher",
    "Rules": "takeover_rules",
    "Status": "publisher",
    "Steps": "steps",
    "Takeover": "takeover",
    "Watched": "watched",
    "WatchedTraining": "stable_baselines",
    "WatchedVector": "watched",
    "alerts": "subscription",
    "publish": "steps",
    "read_alert": "alert",
}
"""Name -> module."""

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604 - the names are listed once, in the table above


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cfmon_client' has no attribute {name!r}")
    value = getattr(import_module(f"cfmon_client.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
