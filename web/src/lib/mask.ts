// Signatures and encrypted data are no use to a reader, so they are not shown: only how long they are.

const NAMES = "signature|thoughtSignature|thought_signature|encrypted_content|data";
const IN_TEXT = new RegExp(`"(${NAMES})"\\s*:\\s*"([^"\\\\]{16,})"`, "g");
const NAME = new RegExp(`^(?:${NAMES})$`);

const masked = (value: string) => `(${value.length} characters)`;

/** JSON or a stream of JSON, without its signatures. */
export function maskText(text: string): string {
  return text.replace(IN_TEXT, (_all, name: string, value: string) => `"${name}":"${masked(value)}"`);
}

/** A replacer for `JSON.stringify` that does the same. */
export function maskMember(name: string, member: unknown): unknown {
  return typeof member === "string" && NAME.test(name) ? masked(member) : member;
}
