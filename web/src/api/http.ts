// The one place that sends requests. Errors of the server are `Problem`s; a missing network is `Unreachable`.

import type { components } from "./schema";

export type Schemas = components["schemas"];

/** An error that the server described. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly body: Partial<Schemas["ProblemBody"]> & Record<string, unknown>,
  ) {
    super([body.detail, body.hint].filter(Boolean).join(". ") || `status ${status}`);
    this.name = "Problem";
  }
}

/** The server did not answer at all. */
export class Unreachable extends Error {}

export interface Options {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Sends a request. Throws a `Problem` unless the status is a success. */
export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const { body, headers, signal } = options;
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? headers : { "content-type": "application/json", ...headers },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreachable(String(error));
  }
  if (response.ok) return response;
  throw await problem(response);
}

/** Sends a request and reads the JSON of its answer. */
export async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const response = await send(method, path, options);
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/** All entries of a list that comes in pages. */
export async function callAll<T, K extends string>(
  path: string,
  member: K,
  options: Options = {},
): Promise<{ entries: T[]; first: Record<string, unknown> }> {
  const entries: T[] = [];
  let first: Record<string, unknown> | undefined;
  for (let after: string | null | undefined = undefined; ; ) {
    const query = new URLSearchParams({ limit: "500" });
    if (after) query.set("after", after);
    const page = await call<Record<string, unknown>>("GET", `${path}${path.includes("?") ? "&" : "?"}${query}`, options);
    first ??= page;
    entries.push(...(page[member] as T[]));
    after = page.next as string | null | undefined;
    if (!after) return { entries, first };
  }
}

async function problem(response: Response): Promise<Problem> {
  const text = await response.text().catch(() => "");
  try {
    const body = JSON.parse(text) as Record<string, unknown>;
    // The gateway's own paths have another form than `/api`.
    const error = body.error as { message?: string } | undefined;
    return new Problem(response.status, error?.message ? { detail: error.message } : body);
  } catch {
    return new Problem(response.status, { detail: text.slice(0, 500) });
  }
}
