// Signs of members: a letter, a colour and a pattern for each number. Colour is never the only sign.

import { element, patch, shared } from "./elements.js";

const HUES = 11;
// Size of a pattern in pixels, and its marks, which the style of swatches has as well; the first one is plain. Together with the hues 55
// members differ at sight.
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

// Attributes of the swatch of each number; undefined: a member without one.
const swatches = new Map();
function swatchOf(number) {
  if (!swatches.has(number)) {
    const look = number === undefined ? "" : " hue-" + (number % HUES) + " mark-" + (number % MARKS.length);
    swatches.set(number, shared({ class: "swatch" + look, "aria-hidden": "true" }));
  }
  return swatches.get(number);
}

// The member's name behind a swatch with its letter, for lists and tables.
export function signed(name, signs) {
  const number = signs.get(name);
  return [element("span", swatchOf(number), letterOf(number)), " " + name];
}
