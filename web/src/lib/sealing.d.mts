// Types of sealing.mjs.

export interface Key {
  bytes: Uint8Array<ArrayBuffer>;
  check: Uint8Array<ArrayBuffer>;
  material: CryptoKey;
}

export interface FieldPath {
  chat: string;
  node: string;
  field: string;
}

export interface PassphraseSettings {
  memoryKiB: number;
  iterations: number;
  parallelism: number;
  salt: Uint8Array;
}

export type Bytes = Uint8Array<ArrayBuffer>;
export type Argon2id = (settings: PassphraseSettings & { password: Uint8Array }) => Promise<Uint8Array>;

export class SealingError extends Error {
  readonly code: string;
}
export const PURPOSES: Record<"masterKey" | "chatKey" | "privateKey" | "previousChatKey", string>;
export function importKey(bytes: Uint8Array): Promise<Key>;
export function makeKey(): Promise<Key>;
export function sealField(key: Key, path: FieldPath, plaintext: Uint8Array): Promise<Bytes>;
export function openField(key: Key, path: FieldPath, envelope: Uint8Array): Promise<Bytes>;
export function wrapKey(key: Key, under: Key, purpose: string, name: string): Promise<Bytes>;
export function unwrapKey(envelope: Uint8Array, under: Key, purpose: string, name: string): Promise<Key>;
export function publicKey(privateKey: Uint8Array): Promise<Bytes>;
export function fingerprint(publicKey: Uint8Array): Promise<Bytes>;
export function shareKey(key: Key, chat: string, recipient: Uint8Array): Promise<Bytes>;
export function openSharedKey(envelope: Uint8Array, chat: string, privateKey: Uint8Array): Promise<Key>;
export function stretch(passphrase: string, settings: PassphraseSettings, argon2id: Argon2id): Promise<Uint8Array>;
export function userKeys(root: Uint8Array): Promise<{ auth: Key; wrap: Key }>;
export function writeRecoveryCode(bytes: Uint8Array): string;
export function readRecoveryCode(text: string): Bytes;
export function toHex(bytes: Uint8Array): string;
export function toBase64Url(bytes: Uint8Array): string;
export function fromBase64Url(text: string): Bytes;
