// Timeline of a group's owners: partitions down, the last 15 minutes across, rebalances and offset resets as lines.

import { element } from "./elements.js";
import { clock, count } from "./format.js";
import { UNOWNED, WINDOW_MS } from "./recorded.js";
import { fillOf, letterOf, signed } from "./signs.js";

// In pixels: height of a partition, of the numbers of rebalances, and the width that a letter or a number needs.
const LANE = 18, HEAD = 16, LETTER = 9, NUMBER = 18;
// The window moves by this much at a time: each cell is drawn anew then.
const MOVED_MS = 5000;
// Partitions that are drawn at a time, those above the visible ones, and how many may scroll by until others are drawn.
const DRAWN = 38, ABOVE = 6, STEP = 4;
// By group id: the first visible partition, and what was said last of the cell at the pointer.
const scrolled = new Map();
const pointed = new Map();
const TICKS = ["15 min ago", "10 min", "5 min", "now"];

// Text of a rebalance: its generation, cause and effect.
export function rebalanceText(event) {
  const pause = event.pause_ms === null ? "" : ", paused " + count(event.pause_ms) + " ms";
  const what = event.generation === null ? "rebalance" : "generation " + event.generation;
  return what + ": " + event.message + pause + ", " + count(event.moved) + (event.moved === 1 ? " partition moved" : " partitions moved");
}

// Rebalances of the group that are known, newest first, with their numbers since the start.
export function numberedRebalances(group) {
  return group.history.filter((event) => event.kind === "rebalance").map((event, at) => ({ ...event, number: group.rebalances - at }));
}

// Rebalances and resets of offsets since `start`, newest first, as {kind, label, event}: rebalances by their numbers, resets by an R.
function marksOf(group, start) {
  const numbers = new Map(numberedRebalances(group).map((event) => [event.at_ms, event.number]));
  return group.history.filter((event) => event.at_ms >= start && (event.kind === "rebalance" || event.kind === "reset")).map((event) =>
    ({ kind: event.kind, label: event.kind === "reset" ? "R" : String(numbers.get(event.at_ms)), event }));
}

// The timeline up to `nowMs`, drawn `width` pixels wide. Of many partitions only those are drawn that are in view: `onScroll` is
// called when others are.
export function timeline(group, history, nowMs, width, { isTextOpen, onText, onScroll }) {
  const lanes = lanesOf(group, history);
  if (!lanes.length) return element("p", { class: "soft" }, "no partitions yet");
  const end = Math.ceil(nowMs / MOVED_MS) * MOVED_MS, start = end - WINDOW_MS;
  const x = (ms) => Math.round(((Math.min(Math.max(ms, start), end) - start) / WINDOW_MS) * width);
  const marks = marksOf(group, start);
  const height = lanes.length * LANE;
  const first = Math.max(0, (scrolled.get(group.group_id) || 0) - ABOVE);
  const scroll = (event) => {
    const top = Math.floor(event.target.scrollTop / LANE), before = scrolled.get(group.group_id) || 0;
    if (Math.abs(top - before) < STEP && top !== 0) return;
    scrolled.set(group.group_id, top);
    onScroll();
  };
  const look = (event) => point(event, group.group_id, lanes, start);
  return element("div", {},
    element("div", { class: "timeline", scroll, tabindex: 0, role: "group", "aria-label": "owners of " + lanes.length + " partitions over the last 15 minutes; as text below" },
      element("div", { class: "head soft" }, "rebalances"),
      element("svg", { class: "head", width, height: HEAD, "aria-hidden": "true" }, labelsOf(marks, x)),
      element("div", { class: "lanes" }, lanes.map(([name, , topic, number]) => element("div", { class: "lane", key: name, title: name },
        element("span", {}, topic), element("span", {}, number)))),
      element("svg", { class: "cells", width, height, "aria-hidden": "true", pointermove: look, pointerdown: look },
        lanes.slice(first, first + (width ? DRAWN : 0)).map(([name, spans], row) =>
          element("g", { key: name, transform: "translate(0 " + (first + row) * LANE + ")" }, cells(spans, start, x, history.signs))),
        marks.map(({ kind, label, event }) => element("path", { class: kind, key: label + event.at_ms, d: "M" + x(event.at_ms) + " 0v" + height }))),
      element("div", { class: "foot" }),
      element("div", { class: "axis foot", "aria-hidden": "true" }, TICKS.map((tick) => element("span", {}, tick)))),
    element("output", { class: "soft pointed" }, pointed.get(group.group_id) || "point at a cell to see its owner; blank: unknown"),
    legend(group, history),
    causes(marks),
    element("details", { toggle: onText }, element("summary", {}, "Owners as text"), isTextOpen ? texts(lanes, start) : null));
}

// Partitions as [name, spans, topic, number], in the order of the group; those that do not exist any more come last.
function lanesOf(group, history) {
  const spans = new Map(history.spans);
  const lanes = [];
  for (const { topic, partition } of group.partitions) {
    const name = topic + "-" + partition;
    if (spans.has(name)) lanes.push([name, spans.get(name), topic, "-" + partition]);
    spans.delete(name);
  }
  for (const [name, rest] of spans) if (rest.length) lanes.push([name, rest, name, ""]);
  return lanes;
}

function cells(spans, start, x, signs) {
  const drawn = [];
  for (const { fromMs, untilMs, owner } of spans) {
    if (untilMs !== null && untilMs < start) continue;
    const left = x(fromMs), width = Math.max(1, x(untilMs === null ? Infinity : untilMs) - left);
    const isUnowned = owner === UNOWNED;
    drawn.push(element("rect", { class: isUnowned ? "cell unowned" : "cell", x: left, y: 1, width, height: LANE - 2, fill: isUnowned ? "none" : fillOf(signs.get(owner)) }));
    const letter = isUnowned ? "none" : letterOf(signs.get(owner));
    if (width > LETTER * letter.length + 2) drawn.push(element("text", { x: left + 3, y: 13 }, letter));
  }
  return drawn;
}

// Labels above the lines, as far as there is room; the newest come first.
function labelsOf(marks, x) {
  let free = Infinity;
  return marks.map(({ label, event }) => {
    const at = x(event.at_ms);
    if (at + NUMBER > free) return null;
    free = at;
    return element("text", { key: label + event.at_ms, x: at, y: 12, "text-anchor": "end" }, label);
  });
}

function legend(group, history) {
  const present = new Set(group.members.map((member) => member.name));
  const names = [...history.signs.keys()].sort((a, b) => history.signs.get(a) - history.signs.get(b));
  return element("ul", { class: "members-legend" }, names.map((name) => element("li", { key: name },
    signed(name, history.signs), present.has(name) ? "" : element("span", { class: "soft" }, " (left)"))));
}

function causes(marks) {
  if (!marks.length) return null;
  return element("ol", { class: "causes", tabindex: 0, "aria-label": "rebalances and resets of the last 15 minutes" }, marks.map(({ kind, label, event }) =>
    element("li", { key: label + event.at_ms }, element("span", { class: kind === "reset" ? "state" : "state busy" }, kind + " " + label), " ",
      element("time", {}, clock(event.at_ms)), " " + (kind === "reset" ? event.message : rebalanceText(event)))));
}

function texts(lanes, start) {
  const rows = lanes.flatMap(([name, spans]) => spans.filter(({ untilMs }) => untilMs === null || untilMs >= start).map((span) => [name, span]));
  return element("ul", { class: "texts" }, rows.map(([name, { fromMs, untilMs, owner }]) => element("li", { key: name + " " + fromMs },
    name + ": " + (owner === UNOWNED ? "unowned" : owner) + " from " + clock(fromMs) + (untilMs === null ? " on" : " to " + clock(untilMs)))));
}

// Say whose cell the pointer is at.
function point(event, id, lanes, start) {
  const box = event.currentTarget.getBoundingClientRect();
  const lane = lanes[Math.floor((event.clientY - box.top) / LANE)];
  if (lane === undefined) return;
  const atMs = start + ((event.clientX - box.left) / box.width) * WINDOW_MS;
  const span = lane[1].find(({ fromMs, untilMs }) => fromMs <= atMs && (untilMs === null || atMs < untilMs));
  const owner = span === undefined ? "owner unknown" : span.owner === UNOWNED ? "unowned" : span.owner;
  pointed.set(id, lane[0] + " at " + clock(atMs) + ": " + owner);
  event.currentTarget.closest("section").querySelector("output").firstChild.data = pointed.get(id);
}
