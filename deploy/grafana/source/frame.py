"""Common parts of the dashboards: head, variables, states, and links between them."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model
from panels import BLIND, GOOD, NO_ANSWER, SOURCE, TROUBLE, WAIT, Words, link

from monitor.alarm.blindness import COMPLETE

__all__ = [
    "AGENT_LINKS",
    "CHOSEN",
    "HERE",
    "JOB",
    "NOT_ALL_SEEN",
    "PAGE",
    "STATES",
    "Episode",
    "board",
    "choose",
    "counted",
    "jobs",
    "recalled",
    "state_by",
    "unseen",
    "unwatched",
]

PAGE = "http://127.0.0.1:9108"
"""Default address of the monitor's own page, also for links in Grafana's alerts."""

JOB = 'job=~"$job"'
"""The scrape jobs selected at the top."""

HERE = f'{JOB}, instance=~"$instance"'
"""The monitors selected at the top."""

STATES: Words = {
    18: ("FIRING, BLIND", TROUBLE),
    16: ("FIRING", TROUBLE),
    10: ("BLIND, was pending", BLIND),
    8: ("pending", WAIT),
    2: ("BLIND", BLIND),
    1: ("NOT MONITORED", NO_ANSWER),
    0: ("clear", GOOD),
    34: ("DOWN", NO_ANSWER),
    32: ("up", GOOD),
}
"""Values of `state`, in the order of the status page: a larger value needs a person sooner.

An agent has 0, 8 or 16 for its alarm, 2 more while blind, 1 more if its monitor is down. A monitor has 32 or 34.
"""

CHOSEN = "${job:queryparam}&${instance:queryparam}"
"""Passes the selection at the top to a link."""

AGENT_LINKS = [link("This agent", f"/d/cfmon-agent?var-agent=${{__field.labels.agent}}&{CHOSEN}")]


def state_by(by: str, which: str) -> str:
    """Return the state (`STATES`) by these labels: the worst alarm, plus 2 if anything is blind.

    An agent that was never blind has no `cfmon_blind` series, so its alarm series gives a 0. An agent that was known in
    the last hour and is no longer known is shown as not monitored.
    """
    alarm = f'cfmon_alarm_state{{{which}, state="firing"}} * 16 or cfmon_alarm_state{{{which}, state="pending"}} * 8'
    blind = f"max by ({by}) (cfmon_blind{{{which}}})"
    never = f"0 * max by ({by}) (cfmon_alarm_state{{{which}}})"
    known = f"max by ({by}) (last_over_time(cfmon_alarm_state{{{which}}}[1h]))"
    return f"max by ({by}) ({alarm}) + on ({by}) 2 * ({blind} or {never}) or 1 + 0 * {known}"


NOT_ALL_SEEN = {-1: ("UNKNOWN: incomplete", NO_ANSWER)}
"""Text for the value -1 of `counted`: nothing was found, but the data are incomplete."""

NO_ZERO = "or vector(0)"


def unwatched() -> str:
    """Return the number of selected monitors that are down or do not evaluate."""
    stalled = f"(time() - cfmon_last_evaluation_timestamp_seconds{{{HERE}}}) > bool 60"
    return f"((sum(up{{{HERE}}} == bool 0) {NO_ZERO}) + (sum({stalled}) {NO_ZERO}))"


def unseen(which: str) -> str:
    """Return how much is unknown: monitors that do not work or have lost the broker, and formulas that are blind.

    Not counted are idle agents, for which no evaluation is due, and rejected models, which have their own panel.
    """
    lost = f"(sum(cfmon_mqtt_connected{{{HERE}}} == bool 0) {NO_ZERO})"
    blind = f'(sum(cfmon_blind{{{which}, reason!~"{"|".join(sorted(COMPLETE))}"}}) {NO_ZERO})'
    return f"({unwatched()} + {lost} + {blind})"


def counted(what: str, unknown: str, otherwise: str) -> str:
    """Return the query of the number of `what`; -1 (`NOT_ALL_SEEN`) if this number is 0 and `unknown` is not 0.

    `otherwise`: query used if `what` has no value; if it has no value either, there is none.
    """
    known = f"({what} or {otherwise})"
    return f"({what}) > 0 or (0 - clamp_max({unknown}, 1) < 0) and on () {known} or {known}"


class Annotation(model.AnnotationQuery):
    """Annotation from Prometheus; the SDK's schema lacks its text format."""

    def __init__(self, name: str, color: str, expression: str, words: str) -> None:
        super().__init__(name=name, datasource=SOURCE, icon_color=color, expr=expression)
        self.words = words

    def to_json(self) -> dict[str, object]:
        """Return the JSON that Grafana reads."""
        return {**super().to_json(), "titleFormat": self.name, "textFormat": self.words, "step": "10s"}


class Episode(Builder[model.AnnotationQuery]):
    """Builder of an `Annotation`: the intervals in which `expression` has a value."""

    def __init__(self, name: str, color: str, expression: str, words: str) -> None:
        self._made = Annotation(name, color, expression, words)

    def build(self) -> Annotation:
        """Return the annotation."""
        return self._made


def recalled(name: str, label: str, about: str, series: str, *, of: str = "", many: bool) -> build.QueryVariable:
    """Return a variable with the values of the label `of` (by default `name`) in `series`. `many`: preselect all."""
    asked = f"label_values({series}, {of or name})"
    made = _variable(name, label, about, asked).multi(many)
    return made.include_all(True).all_value(".*").current(_everything()) if many else made


def _variable(name: str, label: str, about: str, asked: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(label)
        .description(about)
        .datasource(SOURCE)
        .query({"query": asked, "refId": "names"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )


def _everything() -> model.VariableOption:
    return model.VariableOption(selected=True, text=["All"], value=["$__all"])


def jobs() -> build.QueryVariable:
    """Return the variable of scrape jobs that had a monitor in the last week or have `cfmon` in their name.

    These jobs are preselected rather than `.*`, because other jobs have an `up` too.
    """
    about = "Scrape jobs of Prometheus that contain monitors."
    seen = 'count by (job) (last_over_time(cfmon_build_info[7d]) or up{job=~".*cfmon.*"})'
    made = _variable("job", "Job", about, f"query_result({seen})").regex('/job="([^"]+)"/')
    return made.multi(True).include_all(True).current(_everything())


def choose() -> build.QueryVariable:
    """Return the variable of monitors. It uses `up`, so that a monitor that is down can still be selected."""
    about = "Monitors, by their instance label in Prometheus."
    return recalled("instance", "Monitor", about, f"up{{{JOB}}}", many=True)


def board(
    uid: str, title: str, about: str, variables: Sequence[build.QueryVariable], *, tag: str = "cfmon"
) -> build.Dashboard:
    """Return a dashboard without panels: variables, and links to the dashboards, the runbooks and the status page."""
    here = "Address of the monitor's status page in your browser: path, counterfactual worlds and evidence."
    page = build.TextBoxVariable("page").label("Status page").description(here).default_value(PAGE)
    made = (
        build.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags([tag])
        .readonly()
        .refresh("5s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in [jobs(), *variables]:
        made = made.with_variable(variable)
    return (
        made.with_variable(page)
        .link(_to_dashboards("Dashboards", "cfmon"))
        .link(_to_dashboards("Runbooks", "cfmon-runbook").as_dropdown(True))
        .link(
            build.DashboardLink("Status page")
            .type(model.DashboardLinkType.LINK)
            .icon("external link")
            .tooltip("The monitor's status page: firing alarms and their explanation")
            .url("${page}/")
            .target_blank(True)
        )
    )


def _to_dashboards(title: str, tag: str) -> build.DashboardLink:
    made = build.DashboardLink(title).type(model.DashboardLinkType.DASHBOARDS).tags([tag])
    return made.include_vars(True).keep_time(True)
