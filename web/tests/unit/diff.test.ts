import { expect, test } from "vitest";

import { comparable, contentAt, diffShapes, parseBody, sectionSizes, type Part, type Section } from "../../src/lib/diff";
import { maskText } from "../../src/lib/mask";

const part = (section: Section, path: string, kind: string, fingerprint: string): Part => ({ section, path, kind, bytes: 100, fingerprint });
/** The shape of a request with these messages: `t` is a text, `k` thinking. */
const shape = (messages: string[], { system = "s", setting = "1" } = {}): Part[] => [
  part("tools", "tools.0", "tool", "tool"),
  part("system", "system.0", "text", system),
  ...messages.map((name, at) => part("messages", `messages.${at}.content.0`, name.startsWith("k") ? "thinking" : "text", name)),
  part("settings", "max_tokens", "number", setting),
];

test("a request that grows at its end keeps its whole prefix", () => {
  const diff = diffShapes(shape(["t1"]), shape(["t1", "k2", "t2", "t3"]));
  expect(diff.rows.map((row) => [row.path, row.change])).toEqual([
    ["tools.0", "same"],
    ["system.0", "same"],
    ["messages.0.content.0", "same"],
    ["messages.1.content.0", "added"],
    ["messages.2.content.0", "added"],
    ["messages.3.content.0", "added"],
    ["max_tokens", "same"],
  ]);
  expect(diff.cachedUntil).toBe(3);
  expect(diff.signedChange).toBeNull();
});

test("a changed system text ends the cache and breaks the signatures after it", () => {
  const diff = diffShapes(shape(["t1", "k2", "t2"]), shape(["t1", "k2", "t2", "t3"], { system: "other" }));
  expect(diff.cachedUntil).toBe(1);
  expect(diff.signedChange).toBe(1);
  expect(diff.rows[1]).toMatchObject({ path: "system.0", change: "changed", before: "system.0" });
});

test("a removed block shows where it was, and what follows is found again", () => {
  const diff = diffShapes(shape(["t1", "k2", "t2", "t3"]), shape(["t1", "t2", "t3", "k4", "t4"]));
  const changes = diff.rows.map((row) => [row.kind, row.change]);
  expect(changes).toContainEqual(["thinking", "removed"]);
  expect(changes.filter(([, change]) => change === "same").length).toBeGreaterThanOrEqual(5);
  expect(diff.rows.find((row) => row.change === "removed")?.before).toBe("messages.1.content.0");
});

test("a setting is no part of the prefix", () => {
  const diff = diffShapes(shape(["t1"]), shape(["t1"], { setting: "2" }));
  expect(diff.cachedUntil).toBeNull();
  expect(diff.rows.at(-1)).toMatchObject({ path: "max_tokens", change: "changed" });
});

test("shapes without fingerprints are not compared", () => {
  const [first] = shape([]);
  expect(comparable(shape(["t1"]))).toBe(true);
  expect(comparable([{ ...(first as Part), fingerprint: undefined }])).toBe(false);
  expect(comparable(undefined)).toBe(false);
});

test("contents are found by their path, without signatures", () => {
  const body = parseBody(JSON.stringify({ messages: [{ content: [{ type: "thinking", thinking: "t", signature: "SECRET" }] }], system: "s" }));
  expect(contentAt(body, "system")).toBe("s");
  expect(contentAt(body, "messages.0.content.0")).toContain('"thinking": "t"');
  expect(contentAt(body, "messages.0.content.0")).not.toContain("SECRET");
  expect(contentAt(body, "messages.7.content.0")).toBeNull();
  expect(contentAt(parseBody('{"cut'), "system")).toBeNull();
});

test("tokens of a section are its share of what the provider counted", () => {
  const sizes = sectionSizes(shape(["t1", "t2"]), 400);
  expect(sizes.map(({ section, parts, bytes, tokens }) => [section, parts, bytes, tokens])).toEqual([
    ["tools", 1, 100, 100],
    ["system", 1, 100, 100],
    ["messages", 2, 200, 200],
    ["settings", 1, 100, null],
  ]);
  expect(sectionSizes(shape(["t1"]), 0)[0]?.tokens).toBeNull();
});

test("signatures in bodies and streams are masked, other text is not", () => {
  const text = 'data: {"signature":"c2lnbmF0dXJlLXRoYXQtaXMtbG9uZw==","text":"a \\"signature\\": stays"}';
  expect(maskText(text)).toBe('data: {"signature":"(32 characters)","text":"a \\"signature\\": stays"}');
});

test("the longest shapes are compared in less than 50 ms", () => {
  const names = Array.from({ length: 4000 }, (_, at) => (at % 2 ? `k${at}` : `t${at}`));
  const before = shape(names);
  const after = shape([...names.map((name, at) => (at % 50 === 7 ? `${name} changed` : name)), "t new"], { system: "other" });
  const times = Array.from({ length: 7 }, () => diffShapes(before, after).took).sort((one, other) => one - other);
  expect(times[0]).toBeLessThan(50);
});
