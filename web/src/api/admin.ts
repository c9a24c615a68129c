// The operator's paths of docs/api.md, and requests in any dialect for the "try it" box.

import type { Part } from "../lib/diff";
import { readChunks, readServerSentEvents } from "../lib/lines";
import { call, send } from "./http";

export interface Block {
  path: string;
  kind: string;
  fate: string;
  reason?: string | null;
  origin?: { backend: string; domain: string; model: string } | null;
}

export interface Loss {
  kind?: string;
  [member: string]: unknown;
}

export interface Plan {
  backend: string;
  model: string;
  lane: string;
  blocks: Block[];
  losses: Loss[];
  thinking?: unknown;
}

export interface TurnRecord {
  id: string;
  time: number;
  lineage: string;
  session: number;
  client_dialect: string;
  path: string;
  backend: string;
  fallback?: string;
  passed_over?: { backend: string; reason: string; cooling: boolean }[];
  upstream_dialect: string;
  model: string;
  upstream_model: string;
  lane: string;
  status: number;
  stream: boolean;
  blocks: Block[];
  blocks_omitted: number;
  losses: Loss[];
  usage: Record<string, number | null>;
  /** In US dollars. `null`: the price is not known. */
  cost: number | null;
  ms: { first_byte: number | null; first_thinking: number | null; first_text: number | null; total: number | null };
  end: string;
  request_id?: string;
  error?: string;
  /** The parts of the body sent to the backend, without contents; only if an operator read turns at the time. */
  shape?: Part[];
  /** The client's body, the body sent to the backend, and the reply; only if the server keeps them. */
  client_body?: string;
  sent?: string;
  received?: string;
}

export interface Backend {
  name: string;
  dialect: string;
  variant: string;
  base_url: string;
  domain: string;
  healthy: boolean;
  models: Record<string, string>;
  default_model: string | null;
  cool_down?: { model: string; reason: string; failures: number; seconds: number }[];
  off?: string;
}

export const backends = () => call<{ active: string; backends: Backend[] }>("GET", "/admin/backends");
export const switchTo = (backend: string) =>
  call<{ active: string; previous: string }>("POST", "/admin/switch", { body: { backend } });
export const thinking = () => call<Record<string, number>>("GET", "/admin/thinking");

/** Recent turns without their bodies, newest first. */
export const turns = (limit: number, after?: string) => {
  const query = new URLSearchParams({ limit: String(limit), bodies: "false" });
  if (after) query.set("after", after);
  return call<{ turns: TurnRecord[] }>("GET", `/admin/turns?${query}`).then((list) => list.turns);
};

/** One turn with its bodies, if the server keeps them. */
export const turn = (id: string) => call<TurnRecord>("GET", `/admin/turns/${encodeURIComponent(id)}`);

/** Turns as they end. */
export async function* turnStream(signal: AbortSignal): AsyncGenerator<TurnRecord> {
  const response = await send("GET", "/admin/turns/stream?bodies=false", { signal });
  if (!response.body) return;
  for await (const event of readServerSentEvents(readChunks(response.body))) {
    if (event.event === "turn") yield JSON.parse(event.data) as TurnRecord;
  }
}

export const plan = (dialect: string, backend: string, body: string, model: string) => {
  const query = new URLSearchParams({ dialect, backend });
  // Gemini's bodies do not name their model.
  if (dialect === "gemini") query.set("model", model);
  return call<Plan>("POST", `/v1/plan?${query}`, { body });
};

/** Where each dialect takes a request. */
export function dialectPath(dialect: string, body: Record<string, unknown>, stream: boolean): string {
  switch (dialect) {
    case "openai_chat":
      return "/v1/chat/completions";
    case "openai_responses":
      return "/v1/responses";
    case "gemini": {
      const model = String(body.model ?? "gemini-3-pro").replace(/^models\//, "");
      return `/v1beta/models/${encodeURIComponent(model)}:${stream ? "streamGenerateContent?alt=sse" : "generateContent"}`;
    }
    case "ollama":
      return "/api/chat";
    case "ndjson":
      return "/ndjson/chat";
    default:
      return "/v1/messages";
  }
}

/** Sends a request in a dialect, to a backend or as the gateway routes it. The answer is read as it comes. */
export async function tryRequest(
  dialect: string,
  backend: string | null,
  text: string,
  signal: AbortSignal,
): Promise<{ response: Response; chunks: AsyncIterable<Uint8Array> }> {
  const body = JSON.parse(text) as Record<string, unknown>;
  const path = dialectPath(dialect, body, body.stream !== false);
  const sent = { ...body };
  if (dialect === "gemini") {
    delete sent.model;
    delete sent.stream;
  }
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (backend) headers["x-throughline-backend"] = backend;
  if (dialect === "anthropic") headers["anthropic-version"] = "2023-06-01";
  // An error is an answer here, and its bytes are shown too.
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(sent), signal });
  return { response, chunks: response.body ? readChunks(response.body) : (async function* () {})() };
}
