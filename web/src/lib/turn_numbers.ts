// Numbers about recent turns: by model, as percentiles, and as points of plots.

export interface CountedTurn {
  id: string;
  time: number;
  backend: string;
  upstream_model: string;
  model: string;
  usage: Record<string, number | null>;
  /** In US dollars. `null`: the price is not known. */
  cost: number | null;
  ms: { first_byte: number | null; total: number | null };
}

export interface ModelNumbers {
  key: string;
  backend: string;
  model: string;
  turns: number;
  input: number;
  output: number;
  thinking: number;
  cacheRead: number;
  /** The part of the input that came from the cache, from 0 to 1. */
  cacheShare: number;
  /** The sum of what is known; `null` if no price is known. */
  cost: number | null;
  firstByte: Percentiles | null;
  total: Percentiles | null;
}

export interface Percentiles {
  p50: number;
  p90: number;
  p99: number;
}

export function byModel(turns: readonly CountedTurn[]): ModelNumbers[] {
  const groups = new Map<string, CountedTurn[]>();
  for (const turn of turns) {
    const key = `${turn.backend} / ${turn.upstream_model || turn.model}`;
    const list = groups.get(key);
    if (list) list.push(turn);
    else groups.set(key, [turn]);
  }
  return [...groups].map(([key, list]) => numbersOf(key, list)).sort((one, other) => other.turns - one.turns);
}

function numbersOf(key: string, turns: CountedTurn[]): ModelNumbers {
  const sum = (name: string) => turns.reduce((all, turn) => all + (turn.usage[name] ?? 0), 0);
  const times = (name: "first_byte" | "total") => percentiles(turns.flatMap((turn) => turn.ms[name] ?? []));
  // The gateway counts what the cache read and wrote apart from the other input.
  const cacheRead = sum("cache_read");
  const input = sum("input") + cacheRead + sum("cache_write");
  const costs = turns.flatMap((turn) => turn.cost ?? []);
  const first = turns[0] as CountedTurn;
  return {
    key,
    backend: first.backend,
    model: first.upstream_model || first.model,
    turns: turns.length,
    input,
    output: sum("output"),
    thinking: sum("thinking"),
    cacheRead,
    cacheShare: input > 0 ? cacheRead / input : 0,
    cost: costs.length > 0 ? costs.reduce((all, cost) => all + cost, 0) : null,
    firstByte: times("first_byte"),
    total: times("total"),
  };
}

/** Percentiles by the nearest rank; `null` without values. */
export function percentiles(values: readonly number[]): Percentiles | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((one, other) => one - other);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] as number;
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}

export interface Step {
  name: string;
  from: number;
  to: number;
}

/** The parts of a turn's time: waiting for the reply, thinking, the answer. */
export function waterfall(ms: { first_byte: number | null; first_thinking: number | null; first_text: number | null; total: number | null }): Step[] {
  const names = ["first_byte", "first_thinking", "first_text", "total"] as const;
  const marks = names.flatMap((name) => (ms[name] === null || ms[name] === undefined ? [] : [{ name, at: ms[name] as number }]));
  marks.sort((one, other) => one.at - other.at);
  // A step is named after what begins it, and ends with the next mark.
  const steps = marks.map((mark, index): Step => {
    const before = marks[index - 1];
    return { name: before?.name ?? "request", from: before?.at ?? 0, to: mark.at };
  });
  return steps.filter((step) => step.name !== "first_byte" || step.to > step.from);
}

/** Whether a turn fits all words of a filter. */
export function fits(turn: object, filter: string): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const record = turn as Record<string, unknown>;
  const names = ["id", "model", "upstream_model", "backend", "client_dialect", "upstream_dialect", "lane", "status", "end", "lineage", "error", "path"];
  const text = names.map((name) => String(record[name] ?? "")).join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}
