// The formats of docs/sealing.md with WebCrypto, for browsers: fields of chats, wrapped keys, shared
// keys, keys of a user. It uses nothing but standard globals. Argon2id, which WebCrypto lacks, is a
// function that the caller brings.
//
// Bytes are `Uint8Array`, names are strings. What does not open throws a `SealingError`.

const { subtle } = globalThis.crypto;

const MAGIC = [0x54, 0x4c];
const VERSION = 1;
const SECRET_KEY = 1;
const PUBLIC_KEY = 2;
// Magic, version, suite and key id; then the nonce ends the head.
const BOUND = 20;
const HEAD = 32;
const TAG = 16;
const POINT = 32;

export const LABELS = {
  field: "throughline field v1",
  wrappedKey: "throughline wrapped key v1",
  sharedKey: "throughline shared key v1",
};

/** The bytes before a private key of X25519 in PKCS #8, the only form that WebCrypto imports. */
const PKCS8 = fromHex("302e020100300506032b656e04220420");

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U";
const CODE_SYMBOLS = 32;

/** What may be wrapped, and under which key. */
export const PURPOSES = {
  /** A user's master key, under the wrap key of a passphrase or of a recovery code. */
  masterKey: "master key",
  /** The key of a chat, under the master key. */
  chatKey: "chat key",
  /** A user's private key, under the master key. */
  privateKey: "private key",
  /** The previous key of a chat, under the next one. */
  previousChatKey: "previous chat key",
};

/** Limits of the settings of a passphrase; a server that asks for less is not trusted. */
const LIMITS = {
  memoryKiB: [65536, 1048576],
  iterations: [3, 64],
  parallelism: [1, 16],
  salt: [16, 64],
};

/**
 * Why something does not open. `code` is `foreign`, `truncated`, `unknown_version`, `unknown_suite`,
 * `wrong_key` or `altered`; for settings `refused`; for recovery codes `symbol`, `length` or `check`.
 */
export class SealingError extends Error {
  constructor(code) {
    super(MESSAGES[code]);
    this.name = "SealingError";
    this.code = code;
  }
}

const MESSAGES = {
  foreign: "not an envelope: the magic bytes are missing",
  truncated: "the envelope is incomplete",
  unknown_version: "unknown version of the envelope",
  unknown_suite: "unknown suite of the envelope",
  wrong_key: "sealed under another key",
  altered: "changed after sealing, or moved here from elsewhere",
  refused: "the settings of the passphrase are too weak or too costly, or it is empty",
  symbol: "a character that is not part of a recovery code",
  length: "symbols are missing, or there are too many",
  check: "the last symbol does not match the others; a symbol is wrong",
};

/**
 * A secret key, imported once: its bytes, its check (the key id of envelopes) and a handle for HKDF.
 *
 * @typedef {{ bytes: Uint8Array, check: Uint8Array, material: CryptoKey }} Key
 */

/** @returns {Promise<Key>} */
export async function importKey(bytes) {
  if (bytes.length !== 32) throw new RangeError(`a key has 32 bytes, not ${bytes.length}`);
  const hmac = { name: "HMAC", hash: "SHA-256" };
  const signing = await subtle.importKey("raw", bytes, hmac, false, ["sign"]);
  const mac = await subtle.sign("HMAC", signing, utf8("throughline key check"));
  return { bytes, check: new Uint8Array(mac, 0, 16), material: await importMaterial(bytes) };
}

/** A new random key, for a chat or as a master key. */
export function makeKey() {
  return importKey(randomBytes(32));
}

/** Seals a field of a chat. `path` is `{ chat, node, field }`; a field of the chat itself has the node "". */
export function sealField(key, path, plaintext, nonce = randomBytes(12)) {
  return seal(SECRET_KEY, key.material, key.check, LABELS.field, parts(path), nonce, plaintext);
}

/** Opens a field that was sealed under this key at this path. */
export async function openField(key, path, envelope) {
  const { keyId, rest } = readHead(envelope, SECRET_KEY);
  checkKey(keyId, key.check);
  return open(envelope, key.material, LABELS.field, parts(path), rest);
}

/** Wraps the key `key` under the key `under`. `purpose` is one of `PURPOSES`. */
export function wrapKey(key, under, purpose, name, nonce = randomBytes(12)) {
  const bound = [purpose, name];
  return seal(SECRET_KEY, under.material, under.check, LABELS.wrappedKey, bound, nonce, key.bytes);
}

/** Opens a wrapped key. */
export async function unwrapKey(envelope, under, purpose, name) {
  const { keyId, rest } = readHead(envelope, SECRET_KEY);
  checkKey(keyId, under.check);
  return openedKey(await open(envelope, under.material, LABELS.wrappedKey, [purpose, name], rest));
}

/** The public half of a private key of X25519, which is any 32 random bytes. */
export async function publicKey(privateKey) {
  const key = await importPrivate(privateKey, true);
  return fromBase64Url((await subtle.exportKey("jwk", key)).x);
}

/** Identifies a public key. Two people compare it to be sure of each other's keys. */
export async function fingerprint(publicKeyBytes) {
  const bytes = join(["throughline public key v1", publicKeyBytes]);
  return new Uint8Array(await subtle.digest("SHA-256", bytes), 0, 16);
}

/** Seals the key of a chat to another user's public key. */
export async function shareKey(
  key,
  chat,
  recipient,
  ephemeral = randomBytes(32),
  nonce = randomBytes(12),
) {
  const once = await publicKey(ephemeral);
  const material = await importMaterial(await agree(ephemeral, recipient));
  const bound = [once, recipient, chat];
  const id = await fingerprint(recipient);
  return seal(PUBLIC_KEY, material, id, LABELS.sharedKey, bound, nonce, key.bytes, once);
}

/** Opens the key of a chat that was shared with the owner of a private key. */
export async function openSharedKey(envelope, chat, privateKey) {
  const { keyId, rest } = readHead(envelope, PUBLIC_KEY);
  const own = await publicKey(privateKey);
  checkKey(keyId, await fingerprint(own));
  if (rest.length < POINT + TAG) throw new SealingError("truncated");
  const once = rest.subarray(0, POINT);
  let secret;
  try {
    secret = await agree(privateKey, once);
  } catch {
    throw new SealingError("altered");
  }
  const bound = [once, own, chat];
  const material = await importMaterial(secret);
  return openedKey(await open(envelope, material, LABELS.sharedKey, bound, rest.subarray(POINT)));
}

/** The secret that a private and a public key agree on. */
export async function agree(privateKey, publicKeyBytes) {
  const own = await importPrivate(privateKey, false);
  const other = await subtle.importKey("raw", publicKeyBytes, "X25519", false, []);
  const secret = await subtle.deriveBits({ name: "X25519", public: other }, own, 256);
  const bytes = new Uint8Array(secret);
  // The standard demands an error for such keys; not every implementation has one.
  if (bytes.every((byte) => byte === 0)) throw new Error("the public key is not usable");
  return bytes;
}

/**
 * The root of a passphrase. `settings` is `{ memoryKiB, iterations, parallelism, salt }`. `argon2id`
 * gets them with `password` and returns 32 bytes of Argon2id, version 1.3.
 */
export async function stretch(passphrase, settings, argon2id) {
  for (const [name, [least, most]] of Object.entries(LIMITS)) {
    const value = name === "salt" ? settings.salt.length : settings[name];
    if (!(value >= least && value <= most)) throw new SealingError("refused");
  }
  if (!passphrase) throw new SealingError("refused");
  return argon2id({ ...settings, password: utf8(passphrase.normalize("NFC")) });
}

/** The two keys of a user, from the root of a passphrase or from the bytes of a recovery code. */
export async function userKeys(root) {
  const material = await importMaterial(root);
  const derive = async (label) => {
    return importKey(new Uint8Array(await subtle.deriveBits(hkdf([label]), material, 256)));
  };
  return {
    auth: await derive("throughline auth key v1"),
    wrap: await derive("throughline wrap key v1"),
  };
}

/** Writes the 20 bytes of a recovery code in groups of four symbols; the last is the check symbol. */
export function writeRecoveryCode(bytes) {
  if (bytes.length !== 20) throw new RangeError(`a code has 20 bytes, not ${bytes.length}`);
  const number = BigInt(`0x${toHex(bytes)}`);
  let symbols = "";
  for (let at = CODE_SYMBOLS - 1; at >= 0; at -= 1) {
    symbols += CROCKFORD[Number((number >> BigInt(5 * at)) & 31n)];
  }
  return [...symbols.match(/.{4}/g), CROCKFORD[Number(number % 37n)]].join("-");
}

/** Reads a recovery code as a person types it; returns its bytes. */
export function readRecoveryCode(text) {
  const letters = [...text.toUpperCase().replaceAll(/[\s-]/g, "")];
  const values = letters.map((letter) => {
    const value = CROCKFORD.indexOf({ O: "0", I: "1", L: "1" }[letter] ?? letter);
    if (value < 0) throw new SealingError("symbol");
    return value;
  });
  if (values.length !== CODE_SYMBOLS + 1) throw new SealingError("length");
  const check = values.pop();
  if (values.some((value) => value > 31)) throw new SealingError("check");
  const number = values.reduce((sum, value) => sum * 32n + BigInt(value), 0n);
  if (Number(number % 37n) !== check) throw new SealingError("check");
  return fromHex(number.toString(16).padStart(40, "0"));
}

/** The parts of a list, each after its length in four bytes. */
export function join(list) {
  const all = list.map((part) => (typeof part === "string" ? utf8(part) : part));
  const bytes = new Uint8Array(all.reduce((size, part) => size + 4 + part.length, 0));
  let at = 0;
  for (const part of all) {
    new DataView(bytes.buffer).setUint32(at, part.length);
    bytes.set(part, at + 4);
    at += 4 + part.length;
  }
  return bytes;
}

export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** Base64url without padding, as the API writes bytes. */
export function toBase64Url(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function fromBase64Url(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
}

function parts({ chat, node, field }) {
  return [chat, node, field];
}

async function seal(suite, material, keyId, label, bound, nonce, plaintext, between = new Uint8Array()) {
  const head = concat([Uint8Array.from([...MAGIC, VERSION, suite]), keyId]);
  const cipher = await deriveCipher(material, label, bound, "encrypt");
  const settings = gcm(nonce, head, bound);
  const sealed = await subtle.encrypt(settings, cipher, plaintext);
  return concat([head, nonce, between, new Uint8Array(sealed)]);
}

function readHead(envelope, suite) {
  if (MAGIC.some((byte, at) => at < envelope.length && envelope[at] !== byte)) {
    throw new SealingError("foreign");
  }
  if (envelope.length < 3) throw new SealingError("truncated");
  if (envelope[2] !== VERSION) throw new SealingError("unknown_version");
  if (envelope.length < 4) throw new SealingError("truncated");
  if (envelope[3] !== suite) throw new SealingError("unknown_suite");
  if (envelope.length < HEAD + TAG) throw new SealingError("truncated");
  return { keyId: envelope.subarray(4, BOUND), rest: envelope.subarray(HEAD) };
}

function checkKey(found, expected) {
  if (found.some((byte, at) => byte !== expected[at])) throw new SealingError("wrong_key");
}

async function open(envelope, material, label, bound, ciphertext) {
  const cipher = await deriveCipher(material, label, bound, "decrypt");
  const settings = gcm(envelope.subarray(BOUND, HEAD), envelope.subarray(0, BOUND), bound);
  try {
    return new Uint8Array(await subtle.decrypt(settings, cipher, ciphertext));
  } catch {
    throw new SealingError("altered");
  }
}

async function openedKey(bytes) {
  if (bytes.length !== 32) throw new SealingError("altered");
  return importKey(bytes);
}

function gcm(nonce, head, bound) {
  return { name: "AES-GCM", iv: nonce, additionalData: concat([head, join(bound)]) };
}

function deriveCipher(material, label, bound, use) {
  const aes = { name: "AES-GCM", length: 256 };
  return subtle.deriveKey(hkdf([label, ...bound]), material, aes, false, [use]);
}

function hkdf(info) {
  return { name: "HKDF", hash: "SHA-256", salt: new Uint8Array(), info: join(info) };
}

function importMaterial(secret) {
  return subtle.importKey("raw", secret, "HKDF", false, ["deriveKey", "deriveBits"]);
}

function importPrivate(bytes, extractable) {
  return subtle.importKey("pkcs8", concat([PKCS8, bytes]), "X25519", extractable, ["deriveBits"]);
}

function randomBytes(length) {
  return globalThis.crypto.getRandomValues(new Uint8Array(length));
}

function concat(list) {
  const bytes = new Uint8Array(list.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of list) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

function utf8(text) {
  return new TextEncoder().encode(text);
}
