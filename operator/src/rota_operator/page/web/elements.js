// Elements as values, and what makes the document equal to them: `patch` changes only what differs, so that focus, scroll
// positions and a button that is being pressed survive an update.

const SVG = document.getElementById("patterns").namespaceURI;

// Describe an element. Children are elements, texts, and lists of both; null and false are left out. Attributes: a function is
// an event handler, true and false are present and absent, `key` identifies an element among its siblings. Attributes that are
// `shared` by many elements of one name are compared by identity, and set once: on an element that is copied for the others.
export function element(name, attributes, ...children) {
  return { name, attributes: attributes || NONE, children: addTo([], children) };
}
export const shared = Object.freeze;
const NONE = {};
const originals = new WeakMap();

function addTo(shown, children) {
  for (const child of children) {
    if (Array.isArray(child)) addTo(shown, child);
    else if (typeof child === "object") child !== null && shown.push(child);
    else if (child !== false && child !== "") shown.push(String(child));
  }
  return shown;
}

// Make the children of `parent` equal to `wanted`. An element that is the same object as in the last call is left alone.
export function patch(parent, wanted) {
  const keyed = takeUnwantedAway(parent, wanted);
  let next = parent.firstChild;
  for (const want of wanted) {
    const node = reusable(keyed, next, want) || create(parent, want);
    if (node === next) next = node.nextSibling;
    else parent.insertBefore(node, next);
    update(node, want);
  }
  while (next !== null) {
    const rest = next.nextSibling;
    next.remove();
    next = rest;
  }
}

// Update children of which each fits to the one that was shown before, as most do.
function updateAll(parent, wanted) {
  let node = parent.firstChild;
  for (const want of wanted) {
    update(node, want);
    node = node.nextSibling;
  }
}

function isAlike(had, wanted) {
  return had.length === wanted.length && had.every((before, at) => {
    const want = wanted[at];
    return typeof want === "string" ? typeof before === "string" : before.name === want.name && before.attributes.key === want.attributes.key;
  });
}

// Remove keyed children that are not wanted any more, and return the others by key.
function takeUnwantedAway(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (keyOf(child) !== undefined) keyed.set(keyOf(child), child);
  if (!keyed.size) return keyed;
  const keys = new Set(wanted.map((want) => want.attributes && want.attributes.key));
  for (const [key, child] of keyed) {
    if (!keys.has(key)) {
      child.remove();
      keyed.delete(key);
    }
  }
  return keyed;
}
const keyOf = (node) => (node.shown ? node.shown.attributes.key : undefined);

function reusable(keyed, next, want) {
  if (typeof want === "string") return next !== null && next.nodeType === Node.TEXT_NODE ? next : null;
  const key = want.attributes.key;
  const node = key === undefined ? next : keyed.get(key);
  return node && node.shown && node.shown.name === want.name && keyOf(node) === key ? node : null;
}

function create(parent, want) {
  if (typeof want === "string") return document.createTextNode(want);
  const node = Object.isFrozen(want.attributes) ? copy(parent, want) : empty(parent, want);
  node.shown = { name: want.name, attributes: Object.isFrozen(want.attributes) ? want.attributes : { key: want.attributes.key }, children: [] };
  return node;
}

function empty(parent, want) {
  const isSvg = want.name === "svg" || parent.namespaceURI === SVG;
  return isSvg ? document.createElementNS(SVG, want.name) : document.createElement(want.name);
}

// A new element that has the shared attributes.
function copy(parent, want) {
  if (!originals.has(want.attributes)) {
    const original = empty(parent, want);
    for (const name in want.attributes) setAttribute(original, name, want.attributes[name]);
    originals.set(want.attributes, original);
  }
  return originals.get(want.attributes).cloneNode(false);
}

function update(node, want) {
  if (typeof want === "string") {
    if (node.data !== want) node.data = want;
    return;
  }
  const had = node.shown;
  if (had === want) return;
  if (had.attributes !== want.attributes) updateAttributes(node, had.attributes, want.attributes);
  node.shown = want;
  if (isAlike(had.children, want.children)) updateAll(node, want.children);
  else patch(node, want.children);
  // Of a selection: known once its options are there.
  if ("value" in want.attributes && node.value !== want.attributes.value) node.value = want.attributes.value;
}

function updateAttributes(node, had, wanted) {
  for (const name in had) if (!(name in wanted)) setAttribute(node, name, false);
  for (const name in wanted) if (had[name] !== wanted[name]) setAttribute(node, name, wanted[name]);
}

function setAttribute(node, name, value) {
  if (name === "key" || name === "value") return;
  if (typeof value === "function") node["on" + name] = value;
  else if (value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}
