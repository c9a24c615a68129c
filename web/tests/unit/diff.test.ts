import { expect, test } from "vitest";

import { diffRequests } from "../../src/lib/diff";
import { maskText } from "../../src/lib/mask";

const mark = { cache_control: { type: "ephemeral" } };
const say = (text: string, more = {}) => ({ role: "user", content: [{ type: "text", text, ...more }] });
const answer = (text: string, signature = "sig") => ({
  role: "assistant",
  content: [
    { type: "thinking", thinking: `about ${text}`, signature },
    { type: "text", text },
  ],
});
const request = (messages: unknown[], more = {}) =>
  JSON.stringify({ model: "m", tools: [{ name: "t", input_schema: {} }], system: [{ type: "text", text: "s" }], messages, ...more });

test("a request that grows at its end keeps its whole prefix", () => {
  const diff = diffRequests(request([say("a", mark)]), request([say("a"), answer("b"), say("c", mark)]));
  expect(diff.rows.map((row) => [row.path, row.change])).toEqual([
    ["tools.0", "same"],
    ["system.0", "same"],
    ["messages.0.content.0", "same"],
    ["messages.1.content.0", "added"],
    ["messages.1.content.1", "added"],
    ["messages.2.content.0", "added"],
    ["model", "same"],
  ]);
  expect(diff.cachedUntil).toBe(3);
  expect(diff.signedChange).toBeNull();
});

test("a changed system text ends the cache and breaks the signatures after it", () => {
  const before = request([say("a"), answer("b")]);
  const after = request([say("a"), answer("b"), say("c")], { system: [{ type: "text", text: "other" }] });
  const diff = diffRequests(before, after);
  expect(diff.cachedUntil).toBe(1);
  expect(diff.signedChange).toBe(1);
  expect(diff.rows[1]).toMatchObject({ path: "system.0", change: "changed" });
  expect(diff.rows[1]?.after).toContain("other");
});

test("a removed block shows where it was, and what follows is found again", () => {
  const before = request([say("a"), answer("b"), say("c")]);
  const { content, ...rest } = answer("b");
  const after = request([say("a"), { ...rest, content: [content[1]] }, say("c"), answer("d"), say("e")]);
  const changes = diffRequests(before, after).rows.map((row) => [row.kind, row.change]);
  expect(changes).toContainEqual(["thinking", "removed"]);
  expect(changes.filter(([, change]) => change === "same").length).toBeGreaterThanOrEqual(5);
});

test("a setting is no part of the prefix", () => {
  const diff = diffRequests(request([say("a")], { max_tokens: 1 }), request([say("a")], { max_tokens: 2 }));
  expect(diff.cachedUntil).toBeNull();
  expect(diff.rows.at(-1)).toMatchObject({ path: "max_tokens", change: "changed", before: "1", after: "2" });
});

test("other dialects are read in the same order", () => {
  const gemini = (text: string) =>
    JSON.stringify({ contents: [{ role: "user", parts: [{ text }] }], systemInstruction: { parts: [{ text: "s" }] } });
  expect(diffRequests(gemini("a"), gemini("b")).rows.map((row) => [row.path, row.change])).toEqual([
    ["systemInstruction", "same"],
    ["contents.0.parts.0", "changed"],
  ]);
});

test("signatures are not shown", () => {
  const diff = diffRequests(request([say("a"), answer("b", "SECRET-ONE")]), request([say("a"), answer("b", "SECRET-TWO")]));
  expect(diff.counts.changed).toBe(1);
  expect(JSON.stringify(diff)).not.toContain("SECRET");
});

test("signatures in bodies and streams are masked, other text is not", () => {
  const text = 'data: {"signature":"c2lnbmF0dXJlLXRoYXQtaXMtbG9uZw==","text":"a \\"signature\\": stays"}';
  expect(maskText(text)).toBe('data: {"signature":"(32 characters)","text":"a \\"signature\\": stays"}');
});

test("bodies of 2 MB are compared in less than 50 ms", () => {
  const turn = (at: number) => [say(`question ${at} ${"word ".repeat(500)}`), answer(`answer ${at} ${"word ".repeat(1500)}`)];
  const messages = Array.from({ length: 120 }, (_, at) => turn(at)).flat();
  const before = request(messages);
  const after = request([...messages, say("one more")], { system: [{ type: "text", text: "other" }] });
  expect(before.length).toBeGreaterThan(2_000_000);
  const times = Array.from({ length: 7 }, () => diffRequests(before, after).took).sort((one, other) => one - other);
  expect(times[0]).toBeLessThan(50);
});
