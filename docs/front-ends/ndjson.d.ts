// The lines of `POST /ndjson/chat`.
// Generated from the Rust types; run `BLESS=1 cargo test -p throughline-codec typescript` to write it anew.

import type { EndDetails, FaultKind, Loss, Usage } from "./events";

/**
 * One line of a reply. Ignore lines of an unknown type.
 */
export type Line = { "type": "thinking", content: string, append: boolean, block: number, seq: number, } | { "type": "thinking_signature", content: string, block: number, seq: number, } | { "type": "redacted_thinking", content: string, block: number, seq: number, } | { "type": "text", content: string, refusal?: boolean, block: number, seq: number, } | { "type": "source", content: string, title?: string, block: number, seq: number, } | { "type": "tool_call", id: string, name: string, arguments: unknown, signature?: string, block: number, seq: number, } | { "type": "error", message: string, kind: FaultKind, seq: number, } | { "type": "done", reason: DoneReason, stop_reason: string, model: string, usage: Usage, details?: EndDetails, losses?: Array<Loss>, seq: number, };

/**
 * The outcome of a turn.
 */
export type DoneReason = "completed" | "truncated" | "empty" | "timeout" | "interrupted" | "error";
