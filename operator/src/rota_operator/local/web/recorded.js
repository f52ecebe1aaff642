// What was recorded of one group over the last 15 minutes. The event stream sends everything once, then what is new.

export const WINDOW_MS = 900000;
// In the order in which the server sends the values of a sample.
export const VALUES = { lagRecords: 0, lagSeconds: 1, arrivalRate: 2, doneRate: 3 };

export class Recorded {
  constructor() {
    // Oldest first; `index` is the position of each partition by its name.
    this.samples = [];
  }

  add(delta) {
    if (delta.is_complete) this.samples = [];
    for (const { at_ms, group, names, partitions } of delta.samples) {
      // After a clock was set back.
      while (this.samples.length && this.samples.at(-1).at_ms >= at_ms) this.samples.pop();
      const index = names ? new Map(names.map((name, at) => [name, at])) : this.index;
      this.index = index;
      this.samples.push({ at_ms, group, index, partitions });
    }
    const end = this.samples.length ? this.samples.at(-1).at_ms : 0;
    let old = 0;
    while (old < this.samples.length && this.samples[old].at_ms <= end - WINDOW_MS) old++;
    if (old) this.samples.splice(0, old);
  }

  // Names of the recorded partitions.
  get names() {
    return this.samples.length ? [...this.samples.at(-1).index.keys()] : [];
  }

  // Values of a partition, or of the group (null), as [time in ms, value]; null is unknown.
  series(partition, value) {
    return this.samples.map((sample) => [sample.at_ms, valueOf(sample, partition, value)]);
  }
}

function valueOf(sample, partition, value) {
  if (partition === null) return sample.group[value];
  const at = sample.index.get(partition);
  return at === undefined ? null : sample.partitions[at][value];
}
