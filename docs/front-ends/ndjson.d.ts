// The lines of `POST /ndjson/chat`.
// Generated from the Rust types; run `BLESS=1 cargo test -p throughline-codec typescript` to write it anew.

import type { EndDetails, FaultKind, Loss, Usage } from "./events";

/**
 * One line of a reply. Ignore lines of an unknown type.
 */
export type Line = { "type": "thinking", content: string, append: boolean, block: number, seq: number, } | { "type": "thinking_signature", content: string, block: number, seq: number, } | { "type": "redacted_thinking", content: string, block: number, seq: number, } | { "type": "text", content: string, refusal?: boolean, block: number, seq: number, } | { "type": "source", content: string, title?: string, block: number, seq: number, } | { "type": "tool_call", id: string, name: string, arguments: unknown, signature?: string, block: number, seq: number, } | { "type": "approval_needed", calls: Array<WaitingCall>, seq: number, } | { "type": "tool_result", id: string, name: string, content: string | Array<Record<string, unknown>>, isError: boolean, block: number, seq: number, } | { "type": "error", message: string, kind: FaultKind, seq: number, } | { "type": "done", reason: DoneReason, stop_reason: string, model: string, usage: Usage, details?: EndDetails, losses?: Array<Loss>, seq: number, };

/**
 * A call that waits for a person.
 */
export type WaitingCall = { id: string, name: string, arguments: unknown, 
/**
 * What the tool asks, if it runs already.
 */
message?: string, 
/**
 * The JSON Schema of the answer.
 */
schema?: Record<string, unknown>, };

/**
 * The outcome of a turn.
 */
export type DoneReason = "completed" | "truncated" | "empty" | "timeout" | "max_rounds" | "cancelled" | "interrupted" | "error";
