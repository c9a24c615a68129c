import { expect, test } from "vitest";

import { dollars } from "../../src/lib/format";
import { byModel, fits, percentiles, waterfall } from "../../src/lib/turn_numbers";

const turn = (id: string, usage: Record<string, number>, total: number, cost: number | null = null) => ({
  id,
  time: 0,
  backend: "b",
  model: "m",
  upstream_model: "",
  usage,
  cost,
  ms: { first_byte: total / 2, total },
});

test("cache share is the part of all input that the cache read", () => {
  const [numbers] = byModel([turn("1", { input: 10, cache_read: 60, cache_write: 30, output: 5 }, 10), turn("2", { input: 100 }, 30)]);
  expect(numbers).toMatchObject({ turns: 2, input: 200, cacheRead: 60, cacheShare: 0.3, output: 5 });
  expect(numbers?.total).toEqual({ p50: 10, p90: 30, p99: 30 });
});

test("cost of a model is the sum of what is known", () => {
  const [known] = byModel([turn("1", {}, 10, 0.25), turn("2", {}, 10, 0.5), turn("3", {}, 10)]);
  expect(known?.cost).toBe(0.75);
  expect(byModel([turn("1", {}, 10)])[0]?.cost).toBeNull();
});

test("dollars keep two digits of a small cost", () => {
  expect([0, 0.00001234, 0.0042, 0.0421, 0.1, 1.239, 12].map(dollars)).toEqual([
    "$0", "$0.000012", "$0.0042", "$0.042", "$0.10", "$1.24", "$12.00",
  ]);
});

test("percentiles use the nearest rank", () => {
  const values = Array.from({ length: 100 }, (_, at) => 100 - at);
  expect(percentiles(values)).toEqual({ p50: 50, p90: 90, p99: 99 });
  expect(percentiles([])).toBeNull();
});

test("a waterfall has a step for each time that is known", () => {
  expect(waterfall({ first_byte: 5, first_thinking: null, first_text: 20, total: 50 })).toEqual([
    { name: "request", from: 0, to: 5 },
    { name: "first_byte", from: 5, to: 20 },
    { name: "first_text", from: 20, to: 50 },
  ]);
  expect(waterfall({ first_byte: 5, first_thinking: 5, first_text: 20, total: 50 }).map((step) => step.name)).toEqual([
    "request",
    "first_thinking",
    "first_text",
  ]);
});

test("a filter needs all its words", () => {
  const record = { id: "turn_1", model: "claude-opus-5", backend: "glm", client_dialect: "anthropic", status: 429 };
  expect(fits(record, "OPUS 429")).toBe(true);
  expect(fits(record, "opus gemini")).toBe(false);
  expect(fits(record, "  ")).toBe(true);
});
