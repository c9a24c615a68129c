// Words for what the gateway did, shared by the parts of the inspector.

import type { Block, Loss } from "../api/admin";
import { strings } from "../strings";

const words = strings.inspector;

/** What happened to a block, and why, as one sentence. */
export function fateOf(block: Block): { fate: string; why: string } {
  const fate = words.fates[block.fate] ?? block.fate;
  const why = block.reason
    ? (words.reasons[block.reason] ?? block.reason)
    : block.fate === "sent"
      ? words.sentPlain
      : block.fate === "restored"
        ? words.restoredPlain
        : "";
  return { fate, why };
}

export function lossOf(loss: Loss): string {
  const { kind, ...rest } = loss;
  const details = Object.entries(rest).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [String(kind ?? ""), ...details].filter(Boolean).join(", ").replaceAll("_", " ");
}

/** A short count of what happened to the blocks of a turn. */
export function blockSummary(blocks: readonly Block[]): string {
  const counts = new Map<string, number>();
  for (const block of blocks) counts.set(block.fate, (counts.get(block.fate) ?? 0) + 1);
  return [...counts].map(([fate, count]) => `${count} ${(words.fates[fate] ?? fate).toLowerCase()}`).join(", ");
}
