// Charts of series over the last 15 minutes, as SVG. A time without a known value is a gap in the line.

import { element } from "./elements.js";
import { WINDOW_MS } from "./recorded.js";

// Units of the drawing: one a second across, and the highest value is at the top.
const WIDTH = WINDOW_MS / 1000, HEIGHT = 1000;
// Samples further apart have a gap between them: the machine was asleep.
const GAP_MS = 12500;
// A sparkline has one value for so many samples, as it has few pixels.
export const SPARKLINE_STEP = 3;
const TICKS = ["15 min ago", "10 min", "5 min", "now"];

// Return the path of a series up to `endMs`, and `top` as its highest value.
export function pathOf(series, endMs, top, gapMs = GAP_MS) {
  let path = "", before = null;
  for (const [atMs, value] of series) {
    if (value === null) {
      before = null;
      continue;
    }
    const x = WIDTH - Math.round((endMs - atMs) / 1000);
    const y = HEIGHT - Math.round((Math.min(value, top) / top) * HEIGHT);
    // A point on its own is drawn as a dot.
    path += before === null || atMs - before > gapMs ? "M" + x + " " + y + "h.1L" + x + " " + y : "L" + x + " " + y;
    before = atMs;
  }
  return path;
}

// Return the first of 1, 2, 5, 10, 20 … that is not below any value.
export function topOf(...lines) {
  let highest = 0;
  for (const series of lines) for (const [, value] of series) if (value !== null && value > highest) highest = value;
  if (!highest) return 1;
  const power = 10 ** Math.floor(Math.log10(highest));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= highest);
}

// A chart with its title, axes and a legend; `lines` are {name, series}, and `format` writes a value.
export function chart(title, lines, format) {
  const top = topOf(...lines.map((line) => line.series));
  const end = lines[0].series.length ? lines[0].series.at(-1)[0] : 0;
  return element("figure", { class: "chart", key: title },
    element("figcaption", {}, element("span", {}, title), lines.map((line, at) => element("span", { class: "legend" },
      stroke(at), line.name + " ", element("strong", {}, format(last(line.series)))))),
    element("div", { class: "plot" },
      element("span", { class: "top" }, format(top)),
      element("svg", { viewBox: "0 0 " + WIDTH + " " + HEIGHT, preserveAspectRatio: "none", role: "img", "aria-label": summary(title, lines, format) },
        [1, 2].map((third) => element("path", { class: "grid", d: "M" + (third * WIDTH) / 3 + " 0v" + HEIGHT })),
        element("path", { class: "grid", d: "M0 " + HEIGHT / 2 + "h" + WIDTH }),
        lines.map((line, at) => element("path", { class: "line line-" + at, d: pathOf(line.series, end, top) })))),
    element("div", { class: "axis", "aria-hidden": "true" }, TICKS.map((tick) => element("span", {}, tick))));
}

// A short line without axes, for a cell of a table; its highest value is its own.
export function sparkline(name, series, format) {
  const top = topOf(series), end = series.length ? series.at(-1)[0] : 0;
  const label = name + ", last 15 minutes: highest " + format(highestOf(series));
  return element("svg", { class: "sparkline", viewBox: "0 0 " + WIDTH + " " + HEIGHT, preserveAspectRatio: "none", role: "img", "aria-label": label },
    element("path", { class: "line line-0", d: pathOf(series, end, top, SPARKLINE_STEP * GAP_MS) }));
}

const last = (series) => (series.length ? series.at(-1)[1] : null);

function highestOf(series) {
  const known = series.map(([, value]) => value).filter((value) => value !== null);
  return known.length ? Math.max(...known) : null;
}

// What the lines show, for who does not see them.
function summary(title, lines, format) {
  return title + " over the last 15 minutes: " + lines.map((line) =>
    (line.name ? line.name + " " : "") + format(last(line.series)) + " now, " + format(highestOf(line.series)) + " at most").join("; ");
}

// The line of a legend: solid or dashed as in the chart.
function stroke(at) {
  return element("svg", { class: "stroke", viewBox: "0 0 24 10", "aria-hidden": "true" }, element("path", { class: "line line-" + at, d: "M0 5h24" }));
}
