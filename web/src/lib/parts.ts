// What a message shows, in order: thinking, text, tool calls. Built from the lines of a run or from the blocks of a
// stored node. Signatures and the data of redacted blocks are dropped here, so that they cannot reach the page.

import type { RunLine } from "./follow";

export interface ThinkingPart {
  kind: "thinking";
  text: string;
  /** Whether the provider hid some of it. */
  redacted: boolean;
  streaming: boolean;
  /** When it began and ended, in milliseconds; unknown for stored messages. */
  began?: number;
  ended?: number;
}

export interface TextPart {
  kind: "text";
  text: string;
}

export interface ToolPart {
  kind: "tool";
  id: string;
  name: string;
  arguments: unknown;
  result?: { text: string; failed: boolean };
}

export interface MediaPart {
  kind: "media";
  media: string;
  url?: string;
  name?: string;
}

export type Part = ThinkingPart | TextPart | ToolPart | MediaPart;

/** The state of an answer that is being written. */
export interface Turn {
  parts: Part[];
  /** The block of the last part, as the server numbers it. */
  block?: number;
  error?: { kind?: string; message: string };
  done?: { reason: string; nodeId: string | null; usage?: Usage };
}

/** Token counts. What a cache read or wrote is not part of `input`. */
export interface Usage {
  input?: number;
  output?: number;
  thinking?: number;
  cache_read?: number;
  cache_write?: number;
}

/** All tokens that went in. */
export function inputTokens(usage: Usage): number {
  return (usage.input ?? 0) + (usage.cache_read ?? 0) + (usage.cache_write ?? 0);
}

export function newTurn(): Turn {
  return { parts: [] };
}

/** Adds a line to a turn. Unknown lines change nothing: a new provider needs no new page. */
export function addLine(turn: Turn, line: RunLine, now: number): void {
  const text = typeof line.content === "string" ? line.content : "";
  const block = typeof line.block === "number" ? line.block : undefined;
  switch (line.type) {
    case "thinking":
      addThinking(turn, now).text += text && separated(turn, block) + text;
      break;
    case "redacted_thinking":
      addThinking(turn, now).redacted = true;
      break;
    case "text": {
      const last = turn.parts.at(-1);
      endThinking(turn, now);
      if (last?.kind === "text") last.text += text;
      else if (text) turn.parts.push({ kind: "text", text });
      break;
    }
    case "tool_call":
      endThinking(turn, now);
      turn.parts.push({
        kind: "tool",
        id: String(line.id ?? ""),
        name: String(line.name ?? ""),
        arguments: line.arguments ?? {},
      });
      break;
    case "tool_result":
      setResult(turn.parts, String(line.id ?? ""), line.content, line.isError === true || line.is_error === true);
      break;
    case "error":
      endThinking(turn, now);
      turn.error = { kind: line.kind as string | undefined, message: String(line.message ?? "") };
      break;
    case "done":
      endThinking(turn, now);
      turn.done = {
        reason: String(line.reason ?? ""),
        nodeId: (line.nodeId as string | null | undefined) ?? null,
        usage: (line.usage as Usage | null | undefined) ?? undefined,
      };
      break;
  }
  if (block !== undefined) turn.block = block;
}

/** The parts of a stored node, from its blocks. */
export function partsOf(blocks: readonly unknown[]): Part[] {
  const parts: Part[] = [];
  for (const block of blocks as readonly Record<string, unknown>[]) addBlock(parts, block);
  return parts;
}

function addBlock(parts: Part[], block: Record<string, unknown>): void {
  const last = parts.at(-1);
  switch (block.type) {
    case "text":
      if (last?.kind === "text") last.text += String(block.text ?? "");
      else if (block.text) parts.push({ kind: "text", text: String(block.text) });
      break;
    case "thinking": {
      const text = String(block.thinking ?? block.text ?? "");
      if (!text) break;
      if (last?.kind === "thinking") last.text += (last.text ? "\n\n" : "") + text;
      else parts.push({ kind: "thinking", text, redacted: false, streaming: false });
      break;
    }
    case "redacted_thinking":
      if (last?.kind === "thinking") last.redacted = true;
      else parts.push({ kind: "thinking", text: "", redacted: true, streaming: false });
      break;
    case "tool_call":
      parts.push({
        kind: "tool",
        id: String(block.id ?? ""),
        name: String(block.name ?? ""),
        arguments: block.arguments ?? {},
      });
      break;
    case "media":
      parts.push({
        kind: "media",
        media: String(block.kind ?? "image"),
        url: mediaUrl(block),
        name: typeof block.name === "string" ? block.name : undefined,
      });
      break;
  }
}

/** The address of an image or file: its own, or its bytes as one. */
function mediaUrl(block: Record<string, unknown>): string | undefined {
  if (typeof block.url === "string") return block.url;
  const source = block.source as { kind?: string; media_type?: string; data?: string; url?: string } | undefined;
  if (source?.data && source.media_type) return `data:${source.media_type};base64,${source.data}`;
  return source?.url;
}

/** The results of tool calls in the blocks of a node, by the ids of their calls. */
export function resultsOf(blocks: readonly unknown[]): Map<string, { text: string; failed: boolean }> {
  const results = new Map<string, { text: string; failed: boolean }>();
  for (const block of blocks as readonly Record<string, unknown>[]) {
    if (block.type !== "tool_result") continue;
    const failed = block.is_error === true || block.isError === true;
    results.set(String(block.id ?? block.tool_call_id ?? ""), { text: plainText(block.content), failed });
  }
  return results;
}

/** Whether a message has anything to show. A node with results only shows them at their calls. */
export function isEmpty(parts: readonly Part[]): boolean {
  return parts.length === 0;
}

function setResult(parts: Part[], id: string, content: unknown, failed: boolean): void {
  const call = parts.find((part): part is ToolPart => part.kind === "tool" && part.id === id);
  if (call) call.result = { text: plainText(content), failed };
}

function plainText(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content === undefined ? "" : JSON.stringify(content, null, 2);
  return content.map((part) => (typeof part?.text === "string" ? part.text : `[${part?.type ?? "?"}]`)).join("\n");
}

function addThinking(turn: Turn, now: number): ThinkingPart {
  const last = turn.parts.at(-1);
  if (last?.kind === "thinking") {
    last.streaming = true;
    last.ended = undefined;
    return last;
  }
  turn.parts.push({ kind: "thinking", text: "", redacted: false, streaming: true, began: now });
  // Taken from the list again: a state library may have wrapped it.
  return turn.parts.at(-1) as ThinkingPart;
}

/** Two thinking blocks in a row are one part; a blank line separates them. */
function separated(turn: Turn, block: number | undefined): string {
  const last = turn.parts.at(-1);
  const another = block !== undefined && turn.block !== undefined && block !== turn.block;
  return another && last?.kind === "thinking" && last.text ? "\n\n" : "";
}

/** Ends the thinking that is being written, if there is any. */
export function endThinking(turn: Turn, now: number): void {
  const last = turn.parts.at(-1);
  if (last?.kind !== "thinking" || !last.streaming) return;
  last.streaming = false;
  last.ended = now;
}
