// The state of a room, built from its events. Stored events have a number, and each one counts once, however often it
// arrives. Events without a number show what happens now: the message that follows has everything that they showed.

import type { Followed } from "./follow";
import { addLine, endThinking, newTurn, partsOf, resultsOf, type Part, type ThinkingPart, type Turn } from "./parts";

/** An event of `/api/rooms/{id}/events`. */
export interface RoomEvent extends Followed {
  room: string;
  channel?: string;
  run?: string;
  data: Record<string, unknown>;
}

/** A message as the page shows it. What only providers need, such as signatures, is not here. */
export interface RoomMessage {
  kind: "message";
  key: string;
  node: Record<string, unknown> & { id: string };
  role: string;
  /** The person or the channel that said it. */
  author: string;
  parts: Part[];
}

export interface RoomError {
  kind: "error";
  key: string;
  channel?: string;
  /** The kind, such as `loop_guard`. */
  reason: string;
  message: string;
}

/** A tool call that waits for a person. */
export interface WaitingCall {
  id: string;
  name: string;
  arguments: unknown;
  /** What the tool asks, if it asks something. */
  question?: string;
  /** Whether it needs an answer in words, not only a decision. */
  needsInput: boolean;
}

/** An answer that a member is working on. */
export interface LiveAnswer {
  run: string;
  channel: string;
  turn: Turn;
  waiting: WaitingCall[];
  /** Where the present span of thinking begins in its part. */
  spanStart: number;
  span: number;
}

export interface RoomState {
  /** The number of the last stored event. */
  seq: number;
  entries: (RoomMessage | RoomError)[];
  live: LiveAnswer[];
}

export function newRoomState(): RoomState {
  return { seq: 0, entries: [], live: [] };
}

/** Members that only providers need, or that the parts have in another form. */
const HIDDEN_MEMBERS = ["content", "contentBlocks", "thinking_content", "thinking_signature"];

/** Adds an event. Unknown types change nothing. */
export function addEvent(state: RoomState, event: RoomEvent, now: number): void {
  if (event.seq !== undefined) {
    if (event.seq <= state.seq) return;
    state.seq = event.seq;
  }
  const { data } = event;
  switch (event.type) {
    case "MESSAGE":
      addMessage(state, event);
      break;
    case "ERROR":
      addError(state, event);
      break;
    case "TYPING":
      if (data.active === true) answerOf(state, event);
      else settle(state, event.run ?? "", now);
      break;
    case "THINKING_START":
    case "THINKING_DELTA":
    case "THINKING_END":
      addThinking(answerOf(state, event), event, now);
      break;
    case "TOOL_CALL":
      addLine(answerOf(state, event).turn, { ...data, type: "tool_call", seq: 0 }, now);
      break;
    case "TOOL_RESULT": {
      const live = answerOf(state, event);
      addLine(live.turn, { ...data, type: "tool_result", seq: 0 }, now);
      live.waiting = live.waiting.filter((call) => call.id !== data.id);
      break;
    }
    case "APPROVAL_NEEDED": {
      const live = answerOf(state, event);
      endThinking(live.turn, now);
      live.waiting = [...live.waiting.filter((call) => call.id !== data.id), waitingCall(data)];
      break;
    }
  }
}

/** A run has ended without a message. What it showed stays if it is more than a sign of life. */
export function settle(state: RoomState, run: string, now: number): void {
  const live = state.live.find((answer) => answer.run === run);
  if (!live) return;
  endThinking(live.turn, now);
  live.waiting = [];
  if (live.turn.parts.length === 0) state.live = state.live.filter((answer) => answer.run !== run);
  else live.turn.done = { reason: "", nodeId: null };
}

/** What a member does now. */
export function activity(live: LiveAnswer): "thinking" | "waiting" | "writing" | null {
  if (live.turn.done) return null;
  if (live.waiting.length > 0) return "waiting";
  const last = live.turn.parts.at(-1);
  return last?.kind === "thinking" && last.streaming ? "thinking" : "writing";
}

function answerOf(state: RoomState, event: RoomEvent): LiveAnswer {
  const run = event.run ?? "";
  const known = state.live.find((answer) => answer.run === run);
  if (known) return known;
  state.live.push({ run, channel: event.channel ?? "", turn: newTurn(), waiting: [], spanStart: 0, span: 0 });
  // Taken from the list again: a state library may have wrapped it.
  return state.live.at(-1) as LiveAnswer;
}

function addThinking(live: LiveAnswer, { type, data }: RoomEvent, now: number): void {
  const last = live.turn.parts.at(-1);
  if (type === "THINKING_START") {
    // A new connection begins with all of the thinking that has not ended: it replaces what is here.
    const isRepeated = last?.kind === "thinking" && last.streaming;
    if (isRepeated) last.text = last.text.slice(0, live.spanStart);
    else live.spanStart = last?.kind === "thinking" ? last.text.length : 0;
    live.span += 1;
    addLine(live.turn, { type: "thinking", content: "", seq: 0 }, now);
  } else if (type === "THINKING_DELTA") {
    addLine(live.turn, { type: "thinking", content: data.text, block: live.span, seq: 0 }, now);
  } else {
    endThinking(live.turn, now);
  }
}

function addMessage(state: RoomState, event: RoomEvent): void {
  const { data, run } = event;
  const blocks = (data.contentBlocks as unknown[] | undefined) ?? [];
  const parts = partsOf(blocks);
  const results = resultsOf(blocks);
  for (const part of parts) if (part.kind === "tool") part.result = results.get(part.id);
  const live = state.live.find((answer) => run !== undefined && answer.run === run);
  if (live) takeTimes(parts, live.turn.parts);
  state.live = state.live.filter((answer) => answer !== live);
  const node = { ...data, id: String(data.id ?? "") };
  for (const member of HIDDEN_MEMBERS) delete (node as Record<string, unknown>)[member];
  const role = String(data.role ?? "user");
  const author = String(event.channel ?? data.channel ?? data.author ?? "");
  state.entries.push({ kind: "message", key: run ?? node.id, node, role, author, parts });
}

/** The times of the thinking are known only while it happens. */
function takeTimes(parts: Part[], seen: readonly Part[]): void {
  const isThinking = (part: Part): part is ThinkingPart => part.kind === "thinking";
  const times = seen.filter(isThinking);
  parts.filter(isThinking).forEach((part, at) => Object.assign(part, { began: times[at]?.began, ended: times[at]?.ended }));
}

function addError(state: RoomState, event: RoomEvent): void {
  const { data, channel, run, seq } = event;
  const key = `error ${seq ?? `${state.seq} ${state.entries.length}`}`;
  state.entries.push({ kind: "error", key, channel, reason: String(data.kind ?? ""), message: String(data.message ?? "") });
  if (run) state.live = state.live.filter((answer) => answer.run !== run || answer.turn.parts.length > 0);
}

function waitingCall(data: Record<string, unknown>): WaitingCall {
  const question = typeof data.message === "string" ? data.message : undefined;
  return { id: String(data.id ?? ""), name: String(data.name ?? ""), arguments: data.arguments ?? {}, question, needsInput: data.schema !== undefined };
}
