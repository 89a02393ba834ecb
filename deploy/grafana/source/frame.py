"""What the dashboards share: their head, their variables, the states they show, and how they lead to one another."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model
from panels import BLIND, GOOD, NO_ANSWER, SOURCE, TROUBLE, WAIT, Words, link

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
    "standing",
    "unseen",
    "unwatched",
]

PAGE = "http://127.0.0.1:9108"
"""Where browsers reach the monitor's own page, unless told at the top; links in Grafana's own alerts lead there too."""

JOB = 'job=~"$job"'
"""Only the scrape jobs chosen at the top."""

HERE = f'{JOB}, instance=~"$instance"'
"""Only the monitors chosen at the top."""

STATES: Words = {
    0: ("clear", GOOD),
    1: ("pending", WAIT),
    2: ("FIRING", TROUBLE),
    4: ("BLIND", BLIND),
    5: ("BLIND, was pending", BLIND),
    6: ("BLIND, FIRING", BLIND),
    8: ("watches", GOOD),
    9: ("NOT WATCHED", NO_ANSWER),
    10: ("DOWN", NO_ANSWER),
}
"""What `standing` counts: 0 to 2 for the alarm, 4 more while blind, 9 if its monitor is gone; 8, 10: of a monitor."""

CHOSEN = "${job:queryparam}&${instance:queryparam}"
"""Hands on what is chosen at the top."""

AGENT_LINKS = [link("This agent", f"/d/cfmon-agent?var-agent=${{__field.labels.agent}}&{CHOSEN}")]


def standing(by: str, which: str) -> str:
    """The state (`STATES`) by these labels: the worst alarm, and whether anything is blind.

    An agent that was never blind has no series that says so, so its alarm's stands in with a 0. One that was known in
    the last hour and is no more is said to be unwatched, rather than left out.
    """
    alarm = f'cfmon_alarm_state{{{which}, state="firing"}} * 2 or cfmon_alarm_state{{{which}, state="pending"}}'
    blind = f"max by ({by}) (cfmon_blind{{{which}}})"
    never = f"0 * max by ({by}) (cfmon_alarm_state{{{which}}})"
    known = f"max by ({by}) (last_over_time(cfmon_alarm_state{{{which}}}[1h]))"
    return f"max by ({by}) ({alarm}) + on ({by}) 4 * ({blind} or {never}) or 9 + 0 * {known}"


NOT_ALL_SEEN = {-1: ("UNKNOWN: not all is seen", BLIND)}
"""What `counted` says where it found nothing and did not look everywhere."""

NO_ZERO = "or vector(0)"


def unwatched() -> str:
    """How many of the monitors chosen are down or do not judge."""
    stalled = f"(time() - cfmon_last_evaluation_timestamp_seconds{{{HERE}}}) > bool 60"
    return f"((sum(up{{{HERE}}} == bool 0) {NO_ZERO}) + (sum({stalled}) {NO_ZERO}))"


def unseen(which: str) -> str:
    """How much is not seen: monitors that do not work or reach no broker, and formulas that are not answered.

    An agent that rests has nothing to be asked; a doubted model answers, and has a panel of its own.
    """
    lost = f"(sum(cfmon_mqtt_connected{{{HERE}}} == bool 0) {NO_ZERO})"
    blind = f'(sum(cfmon_blind{{{which}, reason!~"idle|model_doubt"}}) {NO_ZERO})'
    return f"({unwatched()} + {lost} + {blind})"


def counted(what: str, unknown: str, otherwise: str) -> str:
    """The number of `what`; -1 (`NOT_ALL_SEEN`) where none was found and `unknown` is not 0.

    `otherwise`: the value where there is no `what` at all; nothing is said where that has no value either.
    """
    known = f"({what} or {otherwise})"
    return f"({what}) > 0 or (0 - clamp_max({unknown}, 1) < 0) and on () {known} or {known}"


class Annotation(model.AnnotationQuery):
    """A marked stretch of time; the schema leaves out how Prometheus' are worded."""

    def __init__(self, name: str, color: str, expression: str, words: str) -> None:
        super().__init__(name=name, datasource=SOURCE, icon_color=color, expr=expression)
        self.words = words

    def to_json(self) -> dict[str, object]:
        """As Grafana keeps it."""
        return {**super().to_json(), "titleFormat": self.name, "textFormat": self.words, "step": "10s"}


class Episode(Builder[model.AnnotationQuery]):
    """Builds an `Annotation`: the stretches of time at which `expression` has a value."""

    def __init__(self, name: str, color: str, expression: str, words: str) -> None:
        self._made = Annotation(name, color, expression, words)

    def build(self) -> Annotation:
        """It is there already."""
        return self._made


def recalled(name: str, label: str, about: str, series: str, *, of: str = "", many: bool) -> build.QueryVariable:
    """A variable: what values a label (of its own name, or `of`) has in `series`; one, or `many` and all at first."""
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
    """Which scrape jobs: those that had a monitor within a week, or whose name says so: as the alert rules have it.

    All of these at first, and not `.*`: other jobs have an `up` too.
    """
    about = "Prometheus' scrape jobs that have monitors."
    seen = 'count by (job) (last_over_time(cfmon_build_info[7d]) or up{job=~".*cfmon.*"})'
    made = _variable("job", "Job", about, f"query_result({seen})").regex('/job="([^"]+)"/')
    return made.multi(True).include_all(True).current(_everything())


def choose() -> build.QueryVariable:
    """Which monitors; by `up`, so that one that is down can still be chosen."""
    about = "The monitors' processes, as Prometheus names them."
    return recalled("instance", "Monitor", about, f"up{{{JOB}}}", many=True)


def board(
    uid: str, title: str, about: str, variables: Sequence[build.QueryVariable], *, tag: str = "cfmon"
) -> build.Dashboard:
    """A dashboard without panels: with jobs to choose, and links to the others, to the status page, to the runbooks."""
    here = (
        "Where your browser reaches the monitor's own page: it has the path, the worlds asked about and the evidence."
    )
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
            .tooltip("The monitor's own page: firing alarms, and why")
            .url("${page}/")
            .target_blank(True)
        )
    )


def _to_dashboards(title: str, tag: str) -> build.DashboardLink:
    made = build.DashboardLink(title).type(model.DashboardLinkType.DASHBOARDS).tags([tag])
    return made.include_vars(True).keep_time(True)
