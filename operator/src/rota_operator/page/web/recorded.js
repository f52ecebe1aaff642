// Recording of one group over the last 15 minutes. The event stream sends everything once, then what is new.

export const WINDOW_MS = 900000;
// In the order in which the server sends the values of a sample.
export const VALUES = { lagRecords: 0, lagSeconds: 1, arrivalRate: 2, doneRate: 3 };
// Owner of a partition that has none; null: it is unknown.
export const UNOWNED = "";

export class Recorded {
  constructor() {
    // Oldest first; `index` is the position of each partition by its name.
    this.samples = [];
    // Oldest first, as {at_ms, owners}: the first one has all owners of its time, the others those that are new.
    this.changes = [];
    // Numbers of the members by name.
    this.signs = new Map();
  }

  add(delta) {
    if (delta.is_complete) {
      this.samples = [];
      this.changes = [];
    }
    delta.samples.forEach((sample) => this.addSample(sample));
    delta.changes.forEach((change) => this.addChange(change));
    if (delta.changes.length) this.spansByPartition = null;
    this.signs = new Map(Object.entries(delta.signs));
  }

  addSample({ at_ms, group, names, partitions }) {
    // After a clock was set back.
    while (this.samples.length && this.samples.at(-1).at_ms >= at_ms) this.samples.pop();
    this.index = names ? new Map(names.map((name, at) => [name, at])) : this.index;
    this.samples.push({ at_ms, group, index: this.index, partitions });
    while (this.samples[0].at_ms <= at_ms - WINDOW_MS) this.samples.shift();
  }

  addChange(change) {
    while (this.changes.length && this.changes.at(-1).at_ms > change.at_ms) this.changes.pop();
    this.changes.push(change);
    while (this.changes.length > 1 && this.changes[1].at_ms <= change.at_ms - WINDOW_MS) {
      const [first, second] = this.changes.splice(0, 2);
      this.changes.unshift({ at_ms: second.at_ms, owners: { ...first.owners, ...second.owners } });
    }
  }

  // Names of the recorded partitions.
  get names() {
    return this.samples.length ? [...this.samples.at(-1).index.keys()] : [];
  }

  // Values of a partition, or of the group (null), as [time in ms, value]; null is unknown.
  series(partition, value) {
    return this.samples.map((sample) => [sample.at_ms, valueOf(sample, partition, value)]);
  }

  // The same with the highest of each `step` values, for a small drawing; unknown if one of them is.
  thinned(partition, value, step) {
    const found = [];
    for (let from = this.samples.length % step ? (this.samples.length % step) - step : 0; from < this.samples.length; from += step) {
      let highest = -Infinity;
      for (let at = Math.max(0, from); at < from + step; at++) {
        const each = valueOf(this.samples[at], partition, value);
        highest = each === null || highest === null ? null : Math.max(highest, each);
      }
      found.push([this.samples[from + step - 1].at_ms, highest]);
    }
    return found;
  }

  // Owners by partition as {fromMs, untilMs, owner}, oldest first; untilMs is null for the present one.
  get spans() {
    this.spansByPartition = this.spansByPartition || spansOf(this.changes);
    return this.spansByPartition;
  }
}

function valueOf(sample, partition, value) {
  if (partition === null) return sample.group[value];
  const at = sample.index.get(partition);
  return at === undefined ? null : sample.partitions[at][value];
}

function spansOf(changes) {
  const found = new Map();
  for (const { at_ms, owners } of changes) {
    for (const [partition, owner] of Object.entries(owners)) {
      if (!found.has(partition)) found.set(partition, []);
      const spans = found.get(partition);
      const before = spans.at(-1);
      if (before && before.untilMs === null) before.untilMs = at_ms;
      if (owner !== null) spans.push({ fromMs: at_ms, untilMs: null, owner });
    }
  }
  return found;
}
