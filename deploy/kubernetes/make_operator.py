"""Make what carries the alert rules to Kubernetes: run `deploy/kubernetes/make_operator.py` after a change of them.

`operator.yaml`, for the Prometheus operator, and the Helm chart's copy: a chart can only read files of its own folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["CHART", "TARGET", "document"]

HERE: Final = Path(__file__).parent
RULES: Final = HERE.parent / "prometheus" / "cfmon.rules.yml"
TARGET: Final = HERE / "operator.yaml"
CHART: Final = HERE.parent / "helm" / "cfmon" / "files" / RULES.name
NAME: Final = {"app.kubernetes.io/name": "counterfactual-monitor"}
ABOUT: Final = """\
# For clusters with the Prometheus operator: what is scraped, and the alert rules of deploy/prometheus/cfmon.rules.yml.
# Made by deploy/kubernetes/make_operator.py; change the rules there. Give both the labels that your Prometheus selects
# by (`podMonitorSelector`, `ruleSelector`; `release: ...` where it came with a chart). Links in the alerts lead to the
# pod's own address, unless your Prometheus has an external label `monitor_url`: the address at which people reach the
# monitor. The Helm chart (deploy/helm/cfmon) has both resources too, and a value for that address.
#   kubectl apply -f deploy/kubernetes/operator.yaml
"""


def document() -> str:
    """Both resources as YAML."""
    return ABOUT + yaml.safe_dump_all([_monitor(), _rules()], sort_keys=False, width=120, allow_unicode=True)


def _monitor() -> dict[str, Any]:
    """Every container `cfmon`, a sidecar too, in a pod that is marked.

    By the job's name the rules also know a monitor that was never up.
    """
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "cfmon", "labels": NAME},
        "spec": {
            "selector": {"matchLabels": {"cfmon/monitored": "true"}},
            "podMetricsEndpoints": [
                {
                    "port": "metrics",
                    "interval": "15s",
                    "relabelings": [
                        {"action": "replace", "targetLabel": "job", "replacement": "cfmon"},
                        {
                            "action": "keep",
                            "sourceLabels": ["__meta_kubernetes_pod_container_name"],
                            "regex": "cfmon",
                        },
                    ],
                }
            ],
        },
    }


def _rules() -> dict[str, Any]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "cfmon", "labels": NAME},
        "spec": {"groups": groups},
    }


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
    CHART.parent.mkdir(exist_ok=True)
    CHART.write_text(RULES.read_text(encoding="utf-8"), encoding="utf-8")
