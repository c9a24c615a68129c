// Numbers and times for people.

export function duration(ms: number): string {
  if (ms < 950) return `${Math.max(0.1, Math.round(ms / 100) / 10).toFixed(1)} s`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export function milliseconds(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "\u2013";
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
}

export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  return size < 1_000_000 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1_000_000).toFixed(1)} MB`;
}

export function number(value: number): string {
  return value.toLocaleString("en");
}

/** Dollars with at least two significant digits, so that the cost of a short answer is not 0. */
export function dollars(value: number): string {
  if (value === 0) return "$0";
  const digits = value >= 0.1 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(value)));
  return `$${value.toFixed(digits)}`;
}

export function time(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function day(ms: number, now = Date.now()): string {
  const date = new Date(ms);
  const isToday = date.toDateString() === new Date(now).toDateString();
  if (isToday) return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}
