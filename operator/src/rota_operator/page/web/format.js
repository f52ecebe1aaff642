// Values as text. null is unknown, and never shown as zero.

export const UNKNOWN = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const count = (value) => (value === null ? UNKNOWN : whole.format(value));
export const rate = (value) => (value === null ? UNKNOWN : one.format(value) + "/s");
export const seconds = (value) => (value === null ? UNKNOWN : one.format(value) + " s");
export const clock = (ms) => time.format(ms);
