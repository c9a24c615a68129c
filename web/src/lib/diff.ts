// What changed between two requests of one conversation, by their shapes: the parts of a request in the order in which a
// provider reads them, with fingerprints and without contents. The first change is where the provider's cache ends.

import { maskMember } from "./mask";

export type Change = "same" | "added" | "removed" | "changed";

export type Section = "tools" | "system" | "messages" | "settings";

/** A part of a request, as `/admin/turns/{id}` lists it in `shape`. */
export interface Part {
  path: string;
  section: Section;
  /** What it is: `text`, `thinking`, `tool_use`... */
  kind: string;
  role?: string;
  bytes: number;
  /** Equal parts have equal fingerprints. Sealed conversations have none. */
  fingerprint?: string;
  /** How many more parts of a long request it stands for. */
  more?: number;
}

export interface DiffRow extends Part {
  /** `path` is the place in the newer request, or in the older one if the part was removed. */
  change: Change;
  /** The place in the older request, if it has the part in another form. */
  before?: string;
}

export interface RequestDiff {
  rows: DiffRow[];
  /** Index of the first row that the cache cannot have; `null` if nothing before the settings changed. */
  cachedUntil: number | null;
  /** Index of the first changed row, if signed thinking comes after it. */
  signedChange: number | null;
  counts: Record<Change, number>;
  /** Milliseconds. */
  took: number;
}

const SECTIONS = ["tools", "system", "messages", "settings"] as const;
const SHOWN = 4000;

/** Whether two requests can be compared: every part has a fingerprint. */
export function comparable(shape: readonly Part[] | undefined): shape is readonly Part[] {
  return shape !== undefined && shape.every((part) => part.fingerprint !== undefined);
}

export function diffShapes(before: readonly Part[], after: readonly Part[]): RequestDiff {
  const began = performance.now();
  const rows: DiffRow[] = [];
  for (const section of SECTIONS) {
    diffSection(
      before.filter((part) => part.section === section),
      after.filter((part) => part.section === section),
      rows,
    );
  }
  const first = rows.findIndex((row) => row.change !== "same" && row.section !== "settings");
  const cachedUntil = first < 0 ? null : first;
  const counts = { same: 0, added: 0, removed: 0, changed: 0 };
  for (const row of rows) counts[row.change] += 1;
  return { rows, cachedUntil, signedChange: signedChange(rows), counts, took: performance.now() - began };
}

/**
 * A signature holds for everything before it. So the first change or removal matters if signed thinking follows it.
 * What is new at the end changes nothing.
 */
function signedChange(rows: readonly DiffRow[]): number | null {
  const first = rows.findIndex(
    (row, at) =>
      row.section !== "settings" &&
      row.change !== "same" &&
      (row.change !== "added" || rows.slice(at + 1).some((later) => later.change === "same" && later.section !== "settings")),
  );
  if (first < 0) return null;
  const follows = rows.slice(first).some((row) => row.change !== "removed" && isThinking(row.kind));
  return follows ? first : null;
}

export function isThinking(kind: string): boolean {
  return kind === "thinking" || kind === "redacted_thinking" || kind === "reasoning";
}

/** Requests grow at their end. So the equal beginning and the equal end are cut off, and the rest is aligned. */
function diffSection(older: Part[], newer: Part[], rows: DiffRow[]): void {
  const same = (one: Part | undefined, other: Part | undefined) => one?.fingerprint === other?.fingerprint;
  const shortest = Math.min(older.length, newer.length);
  let begin = 0;
  while (begin < shortest && same(older[begin], newer[begin])) begin += 1;
  let tail = 0;
  while (tail < shortest - begin && same(older[older.length - 1 - tail], newer[newer.length - 1 - tail])) tail += 1;
  const equal = (part: Part) => rows.push({ ...part, change: "same" });
  newer.slice(0, begin).forEach(equal);
  align(older.slice(begin, older.length - tail), newer.slice(begin, newer.length - tail), rows);
  newer.slice(newer.length - tail).forEach(equal);
}

/** Aligns what differs: equal parts by their fingerprint, parts at the same place and of the same kind as changed. */
function align(older: Part[], newer: Part[], rows: DiffRow[]): void {
  const stays = new Set(newer.map((part) => part.fingerprint));
  const places = new Map<string | undefined, number[]>();
  older.forEach(({ fingerprint }, at) => {
    const list = places.get(fingerprint);
    if (list) list.push(at);
    else places.set(fingerprint, [at]);
  });
  const remove = (gone: Part) => rows.push({ ...gone, change: "removed", before: gone.path });
  let at = 0;
  for (const part of newer) {
    const found = places.get(part.fingerprint)?.find((place) => place >= at);
    if (found !== undefined) {
      older.slice(at, found).forEach(remove);
      rows.push({ ...part, change: "same" });
      at = found + 1;
      continue;
    }
    const other = older[at];
    if (other !== undefined && !stays.has(other.fingerprint) && other.kind === part.kind) {
      rows.push({ ...part, change: "changed", before: other.path });
      at += 1;
    } else {
      rows.push({ ...part, change: "added" });
    }
  }
  older.slice(at).forEach(remove);
}

/** What a body has at a path, for reading. Signatures and encrypted data are never shown. */
export function contentAt(body: unknown, path: string): string | null {
  let value = body;
  for (const step of path.split(".")) {
    if (value === null || typeof value !== "object") return null;
    value = (value as Record<string, unknown>)[step];
  }
  if (value === undefined) return null;
  const text = typeof value === "string" ? value : JSON.stringify(value, maskMember, 2);
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}\u2026` : text;
}

/** A body as a value; `null` if the server has none, or only its beginning. */
export function parseBody(body: string | undefined): unknown {
  try {
    return body === undefined ? null : JSON.parse(body);
  } catch {
    return null;
  }
}

export interface SectionSize {
  section: Section;
  parts: number;
  bytes: number;
  /** About how many tokens: the share of the bytes in what the provider counted. */
  tokens: number | null;
}

/** How much of a request is tools, system text, messages and settings. */
export function sectionSizes(shape: readonly Part[], inputTokens: number): SectionSize[] {
  const counted = shape.filter((part) => part.section !== "settings").reduce((sum, part) => sum + part.bytes, 0);
  return SECTIONS.flatMap((section) => {
    const parts = shape.filter((part) => part.section === section);
    if (parts.length === 0) return [];
    const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
    const tokens = section === "settings" || counted === 0 || inputTokens === 0 ? null : Math.round((bytes / counted) * inputTokens);
    const count = parts.reduce((sum, part) => sum + 1 + (part.more ?? 0), 0);
    return [{ section, parts: count, bytes, tokens }];
  });
}
