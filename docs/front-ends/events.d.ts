// The canonical events: the `data` of each event of `POST /v1/stream`.
// Generated from the Rust types; run `BLESS=1 cargo test -p throughline-canonical` to write it anew.

/**
 * One step of a reply. Text is borrowed from the input where possible.
 */
export type Event = { "type": "message_started", 
/**
 * The provider's id of the reply.
 */
id: string, 
/**
 * The provider's name of the model.
 */
model: string, } | { "type": "block_started", 
/**
 * Index of the block in the message.
 */
index: number, 
/**
 * The kind of block, with any content that came with the start.
 */
block: BlockStart, } | { "type": "block_delta", 
/**
 * Index of the block in the message.
 */
index: number, 
/**
 * The addition.
 */
delta: Delta, } | { "type": "block_ended", 
/**
 * Index of the block in the message.
 */
index: number, } | { "type": "tool_started", 
/**
 * The id of the call.
 */
id: string, } | { "type": "approval_needed", 
/**
 * The calls.
 */
calls: Array<WaitingCall>, } | { "type": "tool_result", 
/**
 * The id of the call.
 */
id: string, 
/**
 * The name of the tool.
 */
name: string, 
/**
 * Texts and media.
 */
content: Array<Record<string, unknown>>, 
/**
 * Whether the call failed, or was not made.
 */
is_error: boolean, } | { "type": "transformed", 
/**
 * One entry per affected block.
 */
transformations: Array<Transformation>, } | { "type": "usage" } & Usage | { "type": "end_explained" } & EndDetails | { "type": "fault" } & Fault | { "type": "lost", 
/**
 * The losses.
 */
losses: Array<Loss>, } | { "type": "ended", 
/**
 * Why the reply ended.
 */
reason: EndReason, };

/**
 * The start of a block.
 */
export type BlockStart = { "kind": "text", 
/**
 * Text that came with the start.
 */
text: string, } | { "kind": "thinking", 
/**
 * Text that came with the start.
 */
text: string, 
/**
 * The signature, if it came with the start; usually empty.
 */
signature: string, } | { "kind": "refusal", 
/**
 * Text that came with the start.
 */
text: string, } | { "kind": "redacted", 
/**
 * All its data.
 */
data: string, } | { "kind": "tool_call", 
/**
 * The id of the call.
 */
id: string, 
/**
 * The name of the tool.
 */
name: string, } | { "kind": "opaque", 
/**
 * The dialect it belongs to.
 */
dialect: string, 
/**
 * The provider's name of the block type.
 */
name: string, };

/**
 * The growth of a block.
 */
export type Delta = { "kind": "text", "value": string } | { "kind": "thinking", "value": string } | { "kind": "signature", "value": string } | { "kind": "citation", "value": Citation } | { "kind": "tool_arguments", "value": string } | { "kind": "opaque", "value": string };

/**
 * Why a reply ended.
 */
export type EndReason = "stop" | "length" | "stop_sequence" | "tool_calls" | "pause" | "refusal" | { "other": string } | "failed" | "cut";

/**
 * Details about the end of a reply.
 */
export type EndDetails = { 
/**
 * The stop sequence that the model wrote.
 */
sequence?: string, 
/**
 * The category of a refusal, as the provider names it.
 */
category?: string, 
/**
 * The explanation of a refusal for people.
 */
explanation?: string, };

/**
 * Token counts of one reply. `None` means that the provider did not report it.
 */
export type Usage = { 
/**
 * Input tokens that were neither read from nor written to a cache.
 */
input?: number, 
/**
 * Input tokens read from a cache.
 */
cache_read?: number, 
/**
 * Input tokens written to a cache.
 */
cache_write?: number, 
/**
 * The part of `cache_write` that the cache keeps for an hour. The rest is kept for minutes.
 */
cache_write_1h?: number, 
/**
 * Output tokens, thinking included.
 */
output?: number, 
/**
 * Output tokens spent on thinking.
 */
thinking?: number, };

/**
 * A loss in its form for reports: a `count`, or the name of a `part` or `setting`.
 */
export type Loss = { kind: string, count?: number, part?: string, setting?: string, reason?: string, };

/**
 * An error as a value.
 */
export type Fault = { 
/**
 * The kind, which decides the status.
 */
kind: FaultKind, 
/**
 * A message for people. It starts with the path, if there is one.
 */
message: string, 
/**
 * Seconds after which a retry may succeed.
 */
retry_after?: number, 
/**
 * A code for programs, if the kind says too little.
 */
code?: string, };

/**
 * The kinds of fault.
 */
export type FaultKind = "invalid" | "unauthenticated" | "forbidden" | "not_found" | "wrong_method" | "conflict" | "too_large" | "rate_limited" | "overloaded" | "unreachable" | "timed_out" | "tool_call_parse_error" | "internal";

/**
 * A source that a text refers to.
 */
export type Citation = { 
/**
 * The address of the source.
 */
url?: string, 
/**
 * The title or the file name.
 */
title?: string, 
/**
 * The cited text.
 */
quote?: string, 
/**
 * The half-open range of characters in the block that refer to the source. `None` means the
 * whole block.
 */
span?: [number, number], 
/**
 * The citation in the provider's own form, for clients of the same dialect.
 */
verbatim?: Verbatim, };

/**
 * A value in the form of one dialect.
 */
export type Verbatim = { 
/**
 * The name of the dialect.
 */
dialect: string, 
/**
 * The value.
 */
value: unknown, };

/**
 * What the provider did to one thinking block of the request.
 */
export type Transformation = { 
/**
 * The action, as the provider names it.
 */
action: string, 
/**
 * Indexes of the message and of the block in the request that the provider received.
 */
at: [number, number] | null, 
/**
 * The reason, as the provider names it.
 */
reason: string, };

/**
 * A call that waits for a person.
 */
export type WaitingCall = { 
/**
 * The id of the call.
 */
id: string, 
/**
 * The name of the tool.
 */
name: string, 
/**
 * The arguments, as the model wrote them.
 */
arguments: string, 
/**
 * What the tool asks, if it runs already.
 */
message?: string, 
/**
 * The JSON Schema of the answer.
 */
schema?: Record<string, unknown>, };
