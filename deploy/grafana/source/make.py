"""Make Grafana's files anew: `make dashboards`. Change what is made here, not the files.

What may be given is the folder they go to, instead of the one above. The rest of that folder is left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml
from agent import agent
from alerts import alerting, alerts, runbook
from fleet import fleet
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from itself import itself
from others import others

GRAFANA = Path(__file__).resolve().parents[1]
HEAD = """\
# Made by deploy/grafana/source from Prometheus' rules and Alertmanager's routes: change those, then `make dashboards`.
#
# For a Grafana that alerts by itself, in place of Prometheus and Alertmanager: put this file into provisioning/alerting
# and your own addresses in place of the webhooks'. Not beside them: all would be said twice. The policies replace those
# that Grafana has. Of what fired when its monitor was lost, this knows for an hour; Prometheus, until it is back.
"""


def main(folder: Path) -> None:
    """Write every file into `folder`."""
    made = {"fleet": fleet(), "agent": agent(), "monitor": itself()}
    shown = "".join(JSONEncoder().encode(dashboard.build()) for dashboard in made.values())
    for panel in others(shown):
        made["monitor"].with_panel(panel)
    for name, dashboard in made.items():
        write(folder / "dashboards" / f"{name}.json", dashboard)
    for alert in alerts():
        write(folder / "dashboards" / "runbooks" / f"{alert}.json", runbook(alert))
    target = folder / "alerting" / "cfmon.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(HEAD + yaml.safe_dump(alerting(), sort_keys=False, width=120))


def write(path: Path, dashboard: Dashboard) -> None:
    """A dashboard as JSON; its panels are numbered from 1, as they come."""
    made = dashboard.build()
    for number, panel in enumerate(made.panels or [], start=1):
        panel.id_val = number
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(JSONEncoder(indent=2).encode(made) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GRAFANA)
