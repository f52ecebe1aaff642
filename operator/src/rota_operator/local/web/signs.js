// Signs of members: a letter, a colour and a pattern for each number. Colour is never the only sign.

import { element, patch } from "./elements.js";

const HUES = 11;
// Size of a pattern in pixels, and its marks; the first one is plain. Together with the hues 55 members differ at sight.
const SIZE = 8;
const MARKS = ["", "M-2 10L10 -2M-2 2L2 -2M6 10L10 6", "M0 2h8", "M2 0v8", "M0 2h8M2 0v8"];

// A, B … Z, AA, AB …; members over the bound of the recording have none.
export function letterOf(number) {
  if (number === undefined) return "?";
  const rest = Math.floor(number / 26);
  return (rest ? letterOf(rest - 1) : "") + String.fromCharCode(65 + (number % 26));
}

// What fills an area of the member with this number.
export const fillOf = (number) => (number === undefined ? "none" : "url(#sign-" + number + ")");

// Put the patterns of these numbers into the document.
export function showPatterns(numbers) {
  patch(document.getElementById("patterns"), [...new Set(numbers)].sort((a, b) => a - b).map((number) =>
    element("pattern", { key: number, id: "sign-" + number, width: SIZE, height: SIZE, patternUnits: "userSpaceOnUse" },
      element("rect", { class: "hue-" + (number % HUES), width: SIZE, height: SIZE }),
      element("path", { class: "mark", d: MARKS[number % MARKS.length] }))));
}

// A swatch with the member's letter, for lists and tables.
export function swatch(number) {
  return element("svg", { class: "swatch", viewBox: "0 0 26 18", "aria-hidden": "true" },
    element("rect", { width: 26, height: 18, rx: 3, fill: fillOf(number) }), element("text", { x: 13, y: 13, "text-anchor": "middle" }, letterOf(number)));
}

// The member's name behind its swatch.
export function signed(name, signs) {
  return element("span", { class: "signed" }, swatch(signs.get(name)), " ", element("span", {}, name));
}
