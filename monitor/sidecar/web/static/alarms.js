// The filtered list of alarms. The page's address contains the filter, so that the list can be shared.
import { makeAlarm } from "./alarm.js";
import { at, follow, look, many, put, sync, tell } from "./common.js";

const FIELDS = ["agent", "formula", "severity", "state", "since", "until"];
const input = (field) => at(field === "state" ? "state-wanted" : field);
const seen = { told: null };
const wanted = new URLSearchParams(location.search);
for (const field of FIELDS) input(field).value = wanted.get(field) ?? "";

function query() {
  const wanted = new URLSearchParams();
  for (const field of FIELDS) {
    const value = input(field).value.trim();
    // A datetime-local input has no time zone: it is the reader's.
    const time = field === "since" || field === "until";
    if (value) wanted.set(field, time ? String(new Date(value).getTime() / 1000) : value);
  }
  return wanted;
}

function show(told) {
  sync(at("list"), told, (alarm) => alarm.id, makeAlarm);
  put(at("state"), `${many(told.length, "alarm")}${told.length === 500 ? " or more: the newest 500" : ""}`);
  seen.told = told;
}

function judge(lost) {
  tell("list-none", !seen.told?.length, "No alarm matches.", lost);
}

at("filter").addEventListener("input", () => {
  const kept = new URLSearchParams();
  for (const field of FIELDS) if (input(field).value) kept.set(field, input(field).value);
  history.replaceState(null, "", `alarms?${kept}`);
  at("data").href = `api/alarms?${query()}`;
  look();
});
at("filter").addEventListener("submit", (event) => event.preventDefault());
at("data").href = `api/alarms?${query()}`;
follow(() => `api/alarms?limit=500&${query()}`, show, judge);
