// Projects, branches, nodes and runs: the calls of docs/conversations.md.

import { FinalError, type RunLine } from "../lib/follow";
import { readChunks, readLines } from "../lib/lines";
import { Problem, call, callAll, send, type Schemas } from "./http";

export type Project = Schemas["ProjectView"];
export type Branch = Schemas["BranchView"];
export type Node = Schemas["NodeView"];
export type GraphNode = Schemas["GraphNode"];
export type Provider = Schemas["ProviderView"];
export type Model = Schemas["ModelView"];
export type Run = Schemas["RunView"];

/** The key of a sealed project, for requests that need it. */
export type KeyHeader = Record<string, string>;

const at = (project: string, rest = "") => `/api/projects/${encodeURIComponent(project)}${rest}`;

export const providers = () => call<Schemas["ProviderList"]>("GET", "/api/providers").then((list) => list.providers);

export async function list(query = ""): Promise<Project[]> {
  const path = query ? `/api/projects?q=${encodeURIComponent(query)}` : "/api/projects";
  return (await callAll<Project, "projects">(path, "projects")).entries;
}

export const searchContents = (query: string) =>
  call<Schemas["ProjectList"]>("GET", `/api/projects?q=${encodeURIComponent(query)}&in=content`).then((found) => found.projects);

export const create = (body: Partial<Schemas["NewProject"]>, headers?: KeyHeader) =>
  call<Project>("POST", "/api/projects", { body, headers });

export const read = (project: string) => call<Project>("GET", at(project));

export const rename = (project: string, title: string, headers?: KeyHeader) =>
  call<Project>("PATCH", at(project), { body: { title }, headers });

export const remove = (project: string) => call<void>("DELETE", at(project));

export const restore = (project: string) => call<Project>("POST", at(project, "/restore"));

export async function graph(project: string): Promise<{ nodes: GraphNode[]; branches: Branch[] }> {
  const { entries, first } = await callAll<GraphNode, "nodes">(at(project, "/graph"), "nodes");
  return { nodes: entries, branches: first.branches as Branch[] };
}

export const history = (project: string, branch: string, after?: string | null) => {
  const query = new URLSearchParams({ branch, order: "desc", limit: "100" });
  if (after) query.set("after", after);
  return call<Schemas["HistoryPage"]>("GET", at(project, `/nodes?${query}`));
};

export const node = (project: string, id: string) => call<Node>("GET", at(project, `/nodes/${encodeURIComponent(id)}`));

export const branch = (project: string, body: Partial<Schemas["NewBranch"]>) =>
  call<Branch>("POST", at(project, "/branches"), { body });

export const merge = (project: string, body: Partial<Schemas["Merge"]>, headers?: KeyHeader) =>
  call<Schemas["Merged"]>("POST", at(project, "/merge"), { body: { strategy: "ours", ...body }, headers });

export type TurnKind = "chat" | "edit" | "regenerate";

export interface Begun {
  run: string;
  node: string;
  lines: AsyncIterable<RunLine>;
}

/** Begins a turn. The same `clientRequestId` again reads the same run. */
export async function begin(
  project: string,
  kind: TurnKind,
  body: Record<string, unknown>,
  headers: KeyHeader,
  signal: AbortSignal,
): Promise<Begun> {
  const response = await send("POST", at(project, `/${kind}?format=ndjson`), { body, headers, signal });
  return {
    run: response.headers.get("x-throughline-run") ?? "",
    node: response.headers.get("x-throughline-node") ?? "",
    lines: runLines(response),
  };
}

/** The lines of a run after a number. */
export async function events(run: string, after: number, headers: KeyHeader, signal: AbortSignal): Promise<AsyncIterable<RunLine>> {
  try {
    return runLines(await send("GET", `/api/runs/${run}/events?format=ndjson&after=${after}`, { headers, signal }));
  } catch (error) {
    // The server knows better than another try would.
    if (error instanceof Problem && error.status < 500 && error.status !== 429) throw new FinalError(error.message, { cause: error });
    throw error;
  }
}

export const run = (id: string) => call<Run>("GET", `/api/runs/${id}`);

export const stop = (id: string, headers?: KeyHeader) => call<Run>("POST", `/api/runs/${id}/stop`, { headers });

async function* runLines(response: Response): AsyncGenerator<RunLine> {
  if (!response.body) return;
  for await (const line of readLines(readChunks(response.body))) {
    if (line) yield JSON.parse(line) as RunLine;
  }
}
