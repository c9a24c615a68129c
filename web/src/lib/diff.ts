// What changed between two requests of one conversation, in the order in which a provider reads them: tools, system
// text, messages, then settings. The first change is where the provider's cache ends.

import { maskMember } from "./mask";

export type Change = "same" | "added" | "removed" | "changed";

export interface DiffRow {
  /** The place in the newer request, or in the older one if it was removed. */
  path: string;
  section: Section;
  change: Change;
  /** What it is: `text`, `thinking`, `tool_use`... */
  kind: string;
  bytes: number;
  before?: string;
  after?: string;
}

export type Section = "tools" | "system" | "messages" | "settings";

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

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
type Item = { path: string; section: Section; value: Json };

/** Where each dialect keeps what comes first. */
const SECTIONS: [Section, string[]][] = [
  ["tools", ["tools"]],
  ["system", ["system", "instructions", "systemInstruction", "system_instruction"]],
  ["messages", ["messages", "input", "contents"]],
];
const PREFIX_MEMBERS = new Set(SECTIONS.flatMap(([, names]) => names));
/** Members that mark the cache, and do not change what it holds. */
const MARKS = new Set(["cache_control", "prompt_cache_breakpoint"]);
const SHOWN = 4000;

export function diffRequests(before: string, after: string): RequestDiff {
  const began = performance.now();
  const [older, newer] = [items(JSON.parse(before)), items(JSON.parse(after))];
  const rows: DiffRow[] = [];
  for (const section of ["tools", "system", "messages", "settings"] as const) {
    diffSection(
      older.filter((item) => item.section === section),
      newer.filter((item) => item.section === section),
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

function isThinking(kind: string): boolean {
  return kind === "thinking" || kind === "redacted_thinking" || kind === "reasoning";
}

function items(request: Json): Item[] {
  const list: Item[] = [];
  if (request === null || typeof request !== "object" || Array.isArray(request)) return list;
  for (const [section, names] of SECTIONS) {
    for (const name of names) if (name in request) add(list, section, name, request[name] as Json);
  }
  for (const [name, value] of Object.entries(request)) {
    if (!PREFIX_MEMBERS.has(name)) list.push({ path: name, section: "settings", value });
  }
  return list;
}

/** Adds the parts of a member: each tool, each block of the system text, each block of each message. */
function add(list: Item[], section: Section, path: string, value: Json): void {
  if (!Array.isArray(value)) {
    list.push({ path, section, value });
    return;
  }
  value.forEach((entry, at) => {
    const here = `${path}.${at}`;
    const name = section === "messages" ? contentName(entry) : null;
    const content = name === null ? null : (entry as Record<string, Json>)[name];
    if (name === null || !Array.isArray(content) || content.length === 0) {
      list.push({ path: here, section, value: entry });
      return;
    }
    // The role belongs to the first block, so that a changed role shows.
    const role = (entry as Record<string, Json>).role ?? null;
    content.forEach((block, index) => {
      list.push({ path: `${here}.${name}.${index}`, section, value: index === 0 ? withRole(block, role) : block });
    });
    const { [name]: _content, role: _role, ...rest } = entry as Record<string, Json>;
    if (Object.keys(rest).length > 0) list.push({ path: here, section, value: rest });
  });
}

function withRole(block: Json, role: Json): Json {
  return block !== null && typeof block === "object" && !Array.isArray(block) && role !== null
    ? { role, ...block }
    : block;
}

function contentName(entry: Json): "content" | "parts" | null {
  if (entry === null || typeof entry !== "object" || Array.isArray(entry)) return null;
  return "content" in entry ? "content" : "parts" in entry ? "parts" : null;
}

/** Requests grow at their end. So the equal beginning and the equal end are cut off, and the rest is aligned. */
function diffSection(older: Item[], newer: Item[], rows: DiffRow[]): void {
  let begin = 0;
  while (begin < older.length && begin < newer.length && same(older[begin]!.value, newer[begin]!.value)) {
    rows.push(row(newer[begin]!, "same"));
    begin += 1;
  }
  let tail = 0;
  while (
    tail < older.length - begin &&
    tail < newer.length - begin &&
    same(older[older.length - 1 - tail]!.value, newer[newer.length - 1 - tail]!.value)
  ) {
    tail += 1;
  }
  align(older.slice(begin, older.length - tail), newer.slice(begin, newer.length - tail), rows);
  for (const item of newer.slice(newer.length - tail)) rows.push(row(item, "same"));
}

/** Aligns what differs: equal items by their hash, items at the same place and of the same kind as changed. */
function align(older: Item[], newer: Item[], rows: DiffRow[]): void {
  const before = older.map((item) => fingerprint(item.value));
  const after = newer.map((item) => fingerprint(item.value));
  const stays = new Set(after);
  const places = new Map<string, number[]>();
  before.forEach((key, at) => {
    const list = places.get(key);
    if (list) list.push(at);
    else places.set(key, [at]);
  });
  const remove = (gone: Item) => rows.push({ ...row(gone, "removed"), before: shown(gone.value) });
  let at = 0;
  newer.forEach((item, index) => {
    const found = places.get(after[index]!)?.find((place) => place >= at);
    if (found !== undefined) {
      older.slice(at, found).forEach(remove);
      rows.push(row(item, "same"));
      at = found + 1;
      return;
    }
    const other = older[at];
    if (other !== undefined && !stays.has(before[at]!) && kindOf(other.value) === kindOf(item.value)) {
      rows.push({ ...row(item, "changed"), before: shown(other.value), after: shown(item.value) });
      at += 1;
    } else {
      rows.push({ ...row(item, "added"), after: shown(item.value) });
    }
  });
  older.slice(at).forEach(remove);
}

function row(item: Item, change: Change): DiffRow {
  const { path, section, value } = item;
  return { path, section, change, kind: kindOf(value), bytes: sizeOf(value) };
}

function kindOf(value: Json): string {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return typeof value;
  if (typeof value.type === "string") return value.type;
  if (value.thought === true) return "thinking";
  for (const name of ["text", "functionCall", "functionResponse", "function", "name", "role"]) {
    if (name in value) return name === "name" ? "tool" : name === "role" ? String(value.role) : name;
  }
  return "object";
}

/** About how many characters a value has as JSON. Writing it out would cost more than the comparison. */
function sizeOf(value: Json): number {
  if (typeof value === "string") return value.length + 2;
  if (value === null || typeof value !== "object") return String(value).length;
  let size = 2;
  if (Array.isArray(value)) for (const entry of value) size += sizeOf(entry) + 1;
  else for (const name in value) size += name.length + 4 + sizeOf(value[name] as Json);
  return size;
}

/** Whether two values are equal, except for marks of the cache. */
function same(one: Json, other: Json): boolean {
  if (one === other) return true;
  if (one === null || other === null || typeof one !== "object" || typeof other !== "object") return false;
  if (Array.isArray(one) || Array.isArray(other)) {
    if (!Array.isArray(one) || !Array.isArray(other) || one.length !== other.length) return false;
    return one.every((entry, at) => same(entry, other[at] as Json));
  }
  for (const name in one) {
    if (!MARKS.has(name) && !(name in other && same(one[name] as Json, other[name] as Json))) return false;
  }
  for (const name in other) if (!MARKS.has(name) && !(name in one)) return false;
  return true;
}

function fingerprint(value: Json): string {
  return JSON.stringify(value, (name, member) => (MARKS.has(name) ? undefined : (member as unknown)));
}

/** A value for reading. Signatures and encrypted data are never shown. */
function shown(value: Json): string {
  const text = typeof value === "string" ? value : JSON.stringify(value, maskMember, 2);
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}\u2026` : text;
}
