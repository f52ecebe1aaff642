// The page: follows the event stream, and shows each state as a whole.

import { SPARKLINE_STEP, chart, sparkline } from "./charts.js";
import { element, patch, shared } from "./elements.js";
import { UNKNOWN, clock, count, rate, seconds } from "./format.js";
import { numberedRebalances, rebalanceText, timeline } from "./ownership.js";
import { Recorded, VALUES } from "./recorded.js";
import { showPatterns, signed } from "./signs.js";

const CHIPS_MAX = 24;
// The last event, and by group id its recording and the partition whose charts are shown (null: all).
let view = null;
const recorded = new Map();
const chosen = new Map();
// Groups whose owners are shown as text, and the width of timelines in pixels; 0: it is measured once there is one.
const withText = new Set();
const WIDTH_MIN = 100;
let timelineWidth = 0;

const historyOf = (group) => recorded.get(group.group_id) || new Recorded();

function stateClass(state) {
  if (state === "Stable" || state === "Running") return "good";
  if (state === "Unknown" || state === "Stopped" || state === "Dead" || state === "Waiting") return "bad";
  return "busy";
}
const badge = (state) => element("span", { class: "state " + stateClass(state) }, state);

const ROWS_OF_BODY = 8;
const BODY = shared({ role: "rowgroup" });

// Columns of a table: the head of each, and the attributes of the cells below it.
const columns = (...heads) => heads.map(([head, ofColumn]) => [head, shared({ class: ofColumn || "", "data-head": head, role: "cell" })]);

// Rows begin with their key. Each row is a grid of its own, and a body has few of them, so that the browser lays out only the bodies in
// view; the roles say that it is a table all the same. In a narrow window cells show the heads of their columns themselves.
function table(kind, name, ofTable, rows) {
  const head = ofTable.map(([text, attributes]) => element("th", { class: attributes.class, scope: "col", role: "columnheader" }, text));
  const body = rows.map(([key, ...cells]) => element("tr", { key, role: "row" }, cells.map((cell, at) => element("td", ofTable[at][1], cell))));
  const bodies = [];
  for (let from = 0; from < body.length; from += ROWS_OF_BODY) bodies.push(element("tbody", BODY, body.slice(from, from + ROWS_OF_BODY)));
  return element("div", { class: "rows " + kind, tabindex: 0, role: "group", "aria-label": name },
    element("table", { role: "table" }, element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, head)), bodies));
}

const CHIP = shared({ class: "chip" });

function chips(names) {
  if (!names.length) return element("span", { class: "soft" }, "none");
  const more = names.length - CHIPS_MAX;
  return element("span", {}, names.slice(0, CHIPS_MAX).map((name) => element("span", CHIP, name)),
    more > 0 ? element("span", { class: "soft" }, "and " + count(more) + " more") : null);
}

function numbers(pairs) {
  return element("dl", { class: "numbers" }, pairs.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

async function scale(workload, replicas) {
  const message = document.getElementById("message");
  try {
    const answer = await fetch("api/scale", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ workload: workload.namespace + "/" + workload.name, replicas }),
    });
    message.textContent = answer.ok ? "" : (await answer.json()).error;
  } catch (error) {
    message.textContent = "not scaled: no answer; check that rota up is still running";
  }
}

function scaling(workload) {
  return element("span", { key: workload.namespace + "/" + workload.name },
    element("button", { click: () => scale(workload, workload.wanted - 1), disabled: workload.wanted === 0, "aria-label": "remove a replica of " + workload.name }, "−"),
    " " + workload.running + " of " + workload.wanted + " ",
    element("button", { click: () => scale(workload, workload.wanted + 1), "aria-label": "add a replica of " + workload.name }, "+"));
}

function restartsByReplica(workloads) {
  return new Map(workloads.flatMap((workload) => workload.replicas.map((replica) => [replica.name, replica.restarts])));
}

const OF_MEMBERS = columns(
  ["member"], ["state"], ["partitions"], ["client id"], ["host"], ["in flight", "number"], ["processed", "number"],
  ["dead letters", "number"], ["rate", "number"], ["restarts", "number"],
);

function members(group, workloads, history) {
  const restarts = restartsByReplica(workloads);
  return table("of-members", "members of " + group.group_id, OF_MEMBERS, group.members.map((member) => [
    member.name,
    element("span", { title: member.last_error || "" }, signed(member.name, history.signs)),
    badge(member.draining ? "Draining" : member.suspended ? "Suspended" : member.state),
    chips(member.partitions),
    member.client_id || UNKNOWN, member.host || UNKNOWN,
    count(member.in_flight), count(member.records_done), deadLetters(member.dead_letters), rate(member.done_rate),
    restarts.has(member.name) ? count(restarts.get(member.name)) : UNKNOWN,
  ]));
}

// Of a member, or of all: unknown while it is unknown of one.
const deadLetters = (value) => (value ? element("span", { class: "state bad" }, count(value)) : count(value));
function deadLettersOf(members) {
  const known = members.map((member) => member.dead_letters);
  return known.length && !known.includes(null) ? known.reduce((sum, value) => sum + value, 0) : null;
}

function problems(group) {
  const found = group.members.flatMap((member) => member.problems.map((problem) =>
    element("li", {}, element("span", { class: "state bad" }, member.name), " " + problem)));
  return found.length ? element("ul", { class: "problems" }, found) : null;
}

function charts(group, history) {
  const partition = history.names.includes(chosen.get(group.group_id)) ? chosen.get(group.group_id) : null;
  const of = (value) => history.series(partition, VALUES[value]);
  const choose = (event) => {
    chosen.set(group.group_id, event.target.value || null);
    render();
  };
  return [
    element("div", { class: "title" }, element("h3", {}, "Last 15 minutes"),
      element("label", { class: "soft" }, "of ", element("select", { change: choose, value: partition === null ? "" : partition },
        element("option", { value: "" }, "all partitions"),
        history.names.map((name) => element("option", { value: name, key: name }, name))))),
    element("div", { class: "charts" },
      chart("Lag", [{ name: "uncommitted records", series: of("lagRecords") }], count),
      chart("Lag time", [{ name: "age of the oldest", series: of("lagSeconds") }], seconds),
      chart("Throughput", [
        { name: "arrival", series: of("arrivalRate") },
        { name: partition === null ? "processing" : "committed", series: of("doneRate") },
      ], rate)),
  ];
}

const OF_PARTITIONS = columns(
  ["partition"], ["owner"], ["committed offset", "number"], ["end offset", "number"], ["lag", "number"], ["lag, 15 min"],
  ["lag time", "number"], ["arrival rate", "number"],
);

function partitions(group, history) {
  const recordedNames = new Set(history.names);
  const rows = group.partitions.map((each) => {
    const name = each.topic + "-" + each.partition;
    return [
      name, name,
      owner(each.owner, group, history),
      count(each.committed), count(each.end), count(each.lag_records), recordedNames.has(name) ? lagLine(name, history) : "",
      seconds(each.lag_seconds), rate(each.arrival_rate),
    ];
  });
  const more = group.partitions_left_out;
  return element("div", {}, table("of-partitions", "partitions of " + group.group_id, OF_PARTITIONS, rows), more ? element("p", { class: "soft" }, "and " + count(more) + " more") : null);
}

// While the group's state is unknown, so is the owner of a partition that has none.
function owner(name, group, history) {
  if (name !== null) return signed(name, history.signs);
  return group.state === "Unknown" ? UNKNOWN : element("span", { class: "state bad" }, "unowned");
}

// Drawn once for each sample, not for each event.
function lagLine(name, history) {
  const newest = history.samples.at(-1);
  history.lines = history.lines && history.lines.of === newest ? history.lines : { of: newest, drawn: new Map() };
  const { drawn } = history.lines;
  if (!drawn.has(name)) drawn.set(name, sparkline("lag of " + name, history.thinned(name, VALUES.lagRecords, SPARKLINE_STEP), count));
  return drawn.get(name);
}

function ownership(group, history) {
  const id = group.group_id;
  const onText = (event) => {
    if (event.target.open) withText.add(id);
    else withText.delete(id);
    render();
  };
  return timeline(group, history, view.at_ms, timelineWidth, { isTextOpen: withText.has(id), onText, onScroll: render });
}

function events(group) {
  if (!group.history.length) return element("p", { class: "soft" }, "no events yet");
  const numbers = new Map(numberedRebalances(group).map((event) => [event.at_ms, event.number]));
  return element("ol", { class: "events" }, group.history.map((event) => element("li", { "data-kind": event.kind },
    element("time", {}, clock(event.at_ms)),
    element("span", {}, kindBadge(event, numbers.get(event.at_ms))),
    element("span", {}, event.kind === "rebalance" ? rebalanceText(event) : event.message))));
}

function kindBadge(event, number) {
  if (event.kind !== "rebalance") return element("span", { class: "state" }, event.kind);
  return element("span", { class: "state busy" }, "rebalance " + number);
}

function groupSection(group, workloads) {
  const own = workloads.filter((workload) => workload.group_id === group.group_id);
  const history = historyOf(group);
  return element("section", { "data-group": group.group_id, key: "group " + group.group_id },
    element("div", { class: "title" }, element("h2", {}, element("a", { href: linkTo(group.group_id) }, group.group_id)), badge(group.state),
      element("span", { class: "soft" }, "generation " + count(group.generation) + (group.strategy ? ", " + group.strategy : "")),
      own.map(scaling)),
    numbers([
      ["lag (uncommitted records)", count(group.lag_records)], ["lag time (age of the oldest)", seconds(group.lag_seconds)],
      ["arrival rate", rate(group.arrival_rate)], ["processing rate", rate(group.done_rate)], ["partitions", count(group.partitions.length + group.partitions_left_out)],
      ["unowned", count(group.unowned)], ["rebalances", count(group.rebalances)], ["dead letters", deadLetters(deadLettersOf(group.members))],
    ]),
    charts(group, history),
    element("h3", {}, "Owners, last 15 minutes"), ownership(group, history),
    element("h3", {}, "Members"), members(group, workloads, history), problems(group),
    element("h3", {}, "Partitions"), partitions(group, history),
    own.map(decisions),
    element("h3", {}, "Events"), events(group));
}

const OF_DECISIONS = columns(["time"], ["replicas", "number"], ["reason"], ["explanation"]);

// The autoscaler's last decisions; nothing without an autoscaler.
function decisions(workload) {
  if (!workload.decisions.length) return null;
  const name = workload.namespace + "/" + workload.name;
  const rows = workload.decisions.map((each) => [
    String(each.at_ms), clock(each.at_ms),
    each.before === each.replicas ? count(each.before) : count(each.before) + " → " + count(each.replicas),
    each.reason + (each.dry_run ? " (dry run)" : ""), each.explanation,
  ]);
  return element("details", { key: "decisions of " + name },
    element("summary", {}, "Autoscaling of " + name + ": " + workload.decisions[0].reason),
    table("of-decisions", "decisions of the autoscaler about " + name, OF_DECISIONS, rows));
}

const OF_WORKLOADS = columns(["workload"], ["kind"], ["replicas"], ["restarts", "number"]);

function otherSection(workloads) {
  return element("section", { key: "others" }, element("h2", {}, "Other workloads"), table("of-workloads", "other workloads", OF_WORKLOADS, workloads.map((workload) => [
    workload.namespace + "/" + workload.name,
    workload.namespace + "/" + workload.name, workload.kind, scaling(workload), count(workload.restarts),
  ])));
}

// Take over one event of the stream.
export function receive(event) {
  view = event;
  const groups = new Set(event.groups.map((group) => group.group_id));
  for (const key of recorded.keys()) if (!groups.has(key)) recorded.delete(key);
  for (const delta of event.recorded) {
    if (!recorded.has(delta.group_id)) recorded.set(delta.group_id, new Recorded());
    recorded.get(delta.group_id).add(delta);
  }
}

// Make the document show the last event.
export function render() {
  if (view === null) return;
  document.getElementById("coordinator").textContent = view.coordinator;
  showPatterns(view.groups.flatMap((group) => [...historyOf(group).signs.values()]));
  show();
  const lane = document.querySelector(".timeline .lanes");
  const width = lane && Math.max(WIDTH_MIN, lane.parentNode.clientWidth - lane.offsetWidth);
  if (lane === null || width === timelineWidth) return;
  timelineWidth = width;
  show();
}

function show() {
  const linked = linkedGroup();
  const isLinked = view.groups.some((group) => group.group_id === linked);
  const groups = isLinked ? view.groups.filter((group) => group.group_id === linked) : view.groups;
  const others = isLinked ? [] : view.workloads.filter((workload) => workload.group_id === null);
  patch(document.getElementById("groups"), view.groups.length > 1 ? links(isLinked ? linked : "") : []);
  patch(document.getElementById("main"), [
    linked && !isLinked ? element("p", { key: "unknown", class: "state bad" }, "unknown group " + linked + "; all groups are shown") : null,
    ...groups.map((group) => groupSection(group, view.workloads)),
    others.length ? otherSection(others) : null,
    view.groups.length ? null : element("p", { key: "none", class: "soft" }, "no ConsumerGroups"),
    view.groups_left_out ? element("p", { key: "more", class: "soft" }, "and " + count(view.groups_left_out) + " more groups: choose one namespace") : null,
  ].filter((section) => section !== null));
}

// The group that the address names after #; empty: none.
function linkedGroup() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch (error) {
    return location.hash.slice(1);
  }
}
const linkTo = (group) => "#" + encodeURIComponent(group);

function links(linked) {
  return ["", ...view.groups.map((group) => group.group_id)].map((id) =>
    element("a", { key: id, href: linkTo(id), "aria-current": id === linked ? "page" : false }, id || "all groups"));
}

// After an answer that is no stream, which the browser does not repeat by itself.
const RETRY_MS = 3000;
// Of the state that is asked for, such as ?namespace=shop.
const query = location.search;

// Why there is no stream, in the server's words; empty: it does not answer.
async function refusal() {
  try {
    const answer = await fetch("api/state" + query);
    return answer.ok ? "" : (await answer.json()).error;
  } catch (error) {
    return "";
  }
}

function follow() {
  const connection = document.getElementById("connection");
  const stream = new EventSource("api/events" + query);
  let isDue = false;
  stream.onmessage = (message) => {
    receive(JSON.parse(message.data));
    connection.className = "soft";
    connection.textContent = "live, " + clock(view.at_ms);
    if (isDue) return;
    isDue = true;
    // Not drawn while the tab is hidden.
    requestAnimationFrame(() => {
      isDue = false;
      render();
    });
  };
  stream.onerror = () => {
    connection.className = "bad";
    connection.textContent = "disconnected: the data shown is outdated; check that rota up, or kubectl rota ui, is still running";
    if (stream.readyState !== EventSource.CLOSED) return;
    setTimeout(follow, RETRY_MS);
    refusal().then((reason) => {
      if (reason) connection.textContent = reason;
    });
  };
}

addEventListener("resize", render);
addEventListener("hashchange", render);
follow();
