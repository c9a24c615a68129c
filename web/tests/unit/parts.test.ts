import { expect, test } from "vitest";

import { addLine, newTurn, partsOf, resultsOf, type Turn } from "../../src/lib/parts";

function read(lines: Record<string, unknown>[]): Turn {
  const turn = newTurn();
  lines.forEach((line, at) => addLine(turn, { type: "", seq: at + 1, ...line }, 1000 + at * 100));
  return turn;
}

const SIGNATURE = "c2lnbmF0dXJlLW9mLXRoZS1wcm92aWRlcg==";

test("a turn keeps thinking, text and calls in order, with several spans", () => {
  const turn = read([
    { type: "thinking", content: "One ", append: false, block: 0 },
    { type: "thinking", content: "two.", append: true, block: 0 },
    { type: "thinking_signature", content: SIGNATURE, block: 0 },
    { type: "text", content: "I ", block: 1 },
    { type: "text", content: "look.", block: 1 },
    { type: "tool_call", id: "c1", name: "look", arguments: { where: "here" }, block: 2 },
    { type: "tool_result", id: "c1", content: [{ type: "text", text: "found" }] },
    { type: "thinking", content: "Then.", append: false, block: 3 },
    { type: "text", content: "Done.", block: 4 },
    { type: "done", reason: "completed", nodeId: "n", usage: { output: 5, thinking: 3 } },
  ]);
  expect(turn.parts.map((part) => part.kind)).toEqual(["thinking", "text", "tool", "thinking", "text"]);
  expect(turn.parts[0]).toMatchObject({ text: "One two.", streaming: false, began: 1000, ended: 1300 });
  expect(turn.parts[2]).toMatchObject({ name: "look", result: { text: "found", failed: false } });
  expect(turn.done).toEqual({ reason: "completed", nodeId: "n", usage: { output: 5, thinking: 3 } });
});

test("neighbouring thinking blocks are one section with a blank line between them", () => {
  const turn = read([
    { type: "redacted_thinking", content: "ENCRYPTED", block: 0 },
    { type: "thinking", content: "One.", append: false, block: 1 },
    { type: "thinking", content: "Two.", append: false, block: 2 },
  ]);
  expect(turn.parts).toEqual([
    { kind: "thinking", text: "One.\n\nTwo.", redacted: true, streaming: true, began: 1000, ended: undefined },
  ]);
});

test("signatures and redacted data are not part of the state", () => {
  const turn = read([
    { type: "redacted_thinking", content: "ENCRYPTED", block: 0 },
    { type: "thinking", content: "One.", block: 1 },
    { type: "thinking_signature", content: SIGNATURE, block: 1 },
  ]);
  const stored = partsOf([
    { type: "redacted_thinking", data: "ENCRYPTED" },
    { type: "thinking", thinking: "One.", signature: SIGNATURE },
    { type: "tool_call", id: "c", name: "n", arguments: {}, signature: SIGNATURE },
  ]);
  const text = JSON.stringify([turn, stored]);
  expect(text).not.toContain(SIGNATURE);
  expect(text).not.toContain("ENCRYPTED");
});

test("an error keeps the partial thinking", () => {
  const turn = read([
    { type: "thinking", content: "Half a th", block: 0 },
    { type: "error", kind: "cut", message: "the provider stopped early" },
    { type: "done", reason: "interrupted", nodeId: "n" },
  ]);
  expect(turn.parts).toMatchObject([{ text: "Half a th", streaming: false }]);
  expect(turn.error).toEqual({ kind: "cut", message: "the provider stopped early" });
});

/** Covers: S4-41, S4-58 */
test("unknown lines and blocks change nothing", () => {
  expect(read([{ type: "hologram", content: "?" }]).parts).toEqual([]);
  expect(partsOf([{ type: "hologram", content: "?" }, { type: "tool_result", id: "c", content: "r" }])).toEqual([]);
});

test("stored blocks give the same parts as the stream", () => {
  const parts = partsOf([
    { type: "thinking", thinking: "One." },
    { type: "text", text: "A" },
    { type: "media", kind: "image", url: "data:image/png;base64,AA==", name: "a.png" },
    { type: "media", kind: "image", source: { kind: "base64", media_type: "image/png", data: "AA==" } },
  ]);
  expect(parts.map((part) => part.kind)).toEqual(["thinking", "text", "media", "media"]);
  expect(parts.slice(2)).toMatchObject([{ url: "data:image/png;base64,AA==" }, { url: "data:image/png;base64,AA==" }]);
  expect(resultsOf([{ type: "tool_result", id: "c", content: "r", is_error: true }]).get("c")).toEqual({ text: "r", failed: true });
});
