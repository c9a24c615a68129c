// The vectors of docs/sealing.md with WebCrypto, in both directions. The module under test is the one
// that the page uses, so it has no API of Node. Argon2id comes from `hash-wasm`.
//
// First every vector of the repository opens, or fails with its error. Then this script makes new
// ones from random keys, and the program in CONFORMANCE_SEALING, which uses the crate of the server,
// has to open them.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join as joinPath } from "node:path";
import { pathToFileURL } from "node:url";

import { argon2id as hashWasm } from "hash-wasm";

import { TIMEOUT_MS, check, run } from "../harness.js";
import { locate, read } from "../readme.js";

const sealing = await import(pathToFileURL(locate("web/src/lib/sealing.mjs")));
const { fromHex, importKey, join, toHex } = sealing;

function argon2id({ password, salt, memoryKiB, iterations, parallelism }) {
  const settings = { password, salt, iterations, parallelism, memorySize: memoryKiB };
  return hashWasm({ ...settings, hashLength: 32, outputType: "binary" });
}

/** One vector. All its bytes are hexadecimal digits. */
class Vector {
  constructor(name, members) {
    this.name = name;
    this.members = members;
    this.opens = members.error === undefined;
  }

  bytes(member) {
    return fromHex(this.members[member]);
  }

  /** A name, which is stored as the digits of its UTF-8. */
  text(member) {
    return new TextDecoder().decode(this.bytes(member));
  }

  expect(member, actual) {
    const [expected, shown] = [this.members[member], toHex(actual)];
    check(shown === expected, `${this.name}: \`${member}\` is ${shown} here, not ${expected}`);
  }

  expectBinding(label, parts) {
    for (const [member, value] of Object.entries(binding(label, parts, this.bytes("envelope")))) {
      check(this.members[member] === value, `${this.name}: \`${member}\` is ${value} here`);
    }
  }

  /** Checks that the work gives a member, or is refused with the vector's error. */
  async expectOpened(member, work) {
    let opened;
    try {
      opened = await work();
    } catch (error) {
      if (!(error instanceof sealing.SealingError)) throw error;
      const expected = this.members.error;
      check(error.code === expected, `${this.name}: ${error.code}, not ${expected}`);
      return;
    }
    check(this.opens, `${this.name}: it opened`);
    this.expect(member, opened);
  }

  async expectUserKeys(root) {
    for (const [member, value] of Object.entries(await shownUserKeys(root))) {
      check(this.members[member] === value, `${this.name}: \`${member}\` is ${value} here`);
    }
  }
}

async function checkField(it) {
  const key = await importKey(it.bytes("key"));
  const path = { chat: it.text("chat"), node: it.text("node"), field: it.text("field") };
  it.expect("keyId", key.check);
  it.expectBinding(sealing.LABELS.field, [path.chat, path.node, path.field]);
  await it.expectOpened("plaintext", () => sealing.openField(key, path, it.bytes("envelope")));
  if (it.opens) {
    const made = await sealing.sealField(key, path, it.bytes("plaintext"), it.bytes("nonce"));
    it.expect("envelope", made);
  }
}

async function checkWrappedKey(it) {
  const [purpose, name] = [it.members.purpose, it.text("name")];
  check(Object.values(sealing.PURPOSES).includes(purpose), `unknown purpose ${purpose}`);
  const under = await importKey(it.bytes("under"));
  it.expect("keyId", under.check);
  it.expectBinding(sealing.LABELS.wrappedKey, [purpose, name]);
  await it.expectOpened("key", async () => {
    return (await sealing.unwrapKey(it.bytes("envelope"), under, purpose, name)).bytes;
  });
  if (it.opens) {
    const key = await importKey(it.bytes("key"));
    it.expect("envelope", await sealing.wrapKey(key, under, purpose, name, it.bytes("nonce")));
  }
}

async function checkSharedKey(it) {
  const [owner, ephemeral] = [it.bytes("recipientPrivate"), it.bytes("ephemeralPrivate")];
  const [recipient, once] = [await sealing.publicKey(owner), await sealing.publicKey(ephemeral)];
  const chat = it.text("chat");
  it.expect("recipientPublic", recipient);
  it.expect("ephemeralPublic", once);
  it.expect("keyId", await sealing.fingerprint(recipient));
  it.expect("sharedSecret", await sealing.agree(owner, once));
  it.expectBinding(sealing.LABELS.sharedKey, [once, recipient, chat]);
  await it.expectOpened("key", async () => {
    return (await sealing.openSharedKey(it.bytes("envelope"), chat, owner)).bytes;
  });
  if (it.opens) {
    const key = await importKey(it.bytes("key"));
    const made = await sealing.shareKey(key, chat, recipient, ephemeral, it.bytes("nonce"));
    it.expect("envelope", made);
  }
}

async function checkPassphrase(it) {
  const settings = { ...it.members, salt: it.bytes("salt") };
  await it.expectOpened("root", () => sealing.stretch(it.text("passphrase"), settings, argon2id));
  if (it.opens) await it.expectUserKeys(it.bytes("root"));
}

async function checkRecoveryCode(it) {
  await it.expectOpened("bytes", () => sealing.readRecoveryCode(it.members.code));
  if (!it.opens) return;
  const written = sealing.writeRecoveryCode(it.bytes("bytes"));
  check(written === it.members.written, `${it.name}: written as ${written}`);
  await it.expectUserKeys(it.bytes("bytes"));
}

/** Checks the vectors of a list; there must be some that open, and some that do not. */
async function checkList(name, list, checkOne) {
  for (const opens of [true, false]) {
    const some = list.some((vector) => (vector.error === undefined) === opens);
    check(some, `${name}: no vector ${opens ? "opens" : "fails"}`);
  }
  for (const [index, vector] of list.entries()) {
    await checkOne(new Vector(`${name} ${index}`, vector));
  }
}

/** The lists that a page needs. The others are the server's own. */
async function checkKeys() {
  const vectors = JSON.parse(read("docs/sealing-key-vectors.json"));
  await checkList("wrappedKeys", vectors.wrappedKeys, checkWrappedKey);
  await checkList("sharedKeys", vectors.sharedKeys, checkSharedKey);
  await checkList("passphrases", vectors.passphrases, checkPassphrase);
  await checkList("recoveryCodes", vectors.recoveryCodes, checkRecoveryCode);
}

/** Makes fields and keys from random values; the crate must open them, and refuse altered ones. */
async function checkMade() {
  const program = process.env.CONFORMANCE_SEALING;
  check(program, "CONFORMANCE_SEALING names no program; build the example `check_vectors`");
  const folder = mkdtempSync(joinPath(tmpdir(), "sealing-"));
  try {
    const files = [];
    for (const [name, vectors] of Object.entries({ fields: await madeFields(), keys: await madeKeys() })) {
      files.push(joinPath(folder, `${name}.json`));
      writeFileSync(files.at(-1), JSON.stringify(vectors));
    }
    const crate = spawnSync(program, files, { encoding: "utf8", timeout: 2 * TIMEOUT_MS });
    check(crate.status === 0, `the crate disagrees:\n${crate.stdout}${crate.stderr}`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function madeFields() {
  const vectors = [];
  for (const size of [0, 1, 15, 16, 17, 1000, 60_000]) {
    const key = await sealing.makeKey();
    const plaintext = random(size);
    const path = { chat: `chat-${size}`, node: "knoten-ü", field: "thinking_content" };
    const envelope = await sealing.sealField(key, path, plaintext);
    const parts = [path.chat, path.node, path.field];
    const [chat, node, field] = parts.map(hexOfText);
    vectors.push(
      ...withAltered({
        key: toHex(key.bytes),
        keyId: toHex(key.check),
        ...{ chat, node, field },
        ...binding(sealing.LABELS.field, parts, envelope),
        nonce: toHex(envelope.subarray(20, 32)),
        envelope: toHex(envelope),
        plaintext: toHex(plaintext),
      }),
    );
  }
  return vectors;
}

async function madeKeys() {
  const [key, under] = [await sealing.makeKey(), await sealing.makeKey()];
  const wrappedKeys = [];
  for (const purpose of Object.values(sealing.PURPOSES)) {
    const envelope = await sealing.wrapKey(key, under, purpose, "åda");
    wrappedKeys.push(
      ...withAltered({
        purpose,
        name: hexOfText("åda"),
        under: toHex(under.bytes),
        keyId: toHex(under.check),
        key: toHex(key.bytes),
        ...binding(sealing.LABELS.wrappedKey, [purpose, "åda"], envelope),
        nonce: toHex(envelope.subarray(20, 32)),
        envelope: toHex(envelope),
      }),
    );
  }
  const sharedKeys = withAltered(await madeSharedKey(key));
  const passphrases = [await madePassphrase()];
  const recoveryCodes = [await madeRecoveryCode()];
  return { managedChatKeys: [], wrappedKeys, sharedKeys, passphrases, recoveryCodes, authRecords: [] };
}

async function madeSharedKey(key) {
  const [owner, ephemeral] = [random(32), random(32)];
  const [recipient, once] = [await sealing.publicKey(owner), await sealing.publicKey(ephemeral)];
  const envelope = await sealing.shareKey(key, "chat-1", recipient, ephemeral);
  return {
    chat: hexOfText("chat-1"),
    key: toHex(key.bytes),
    recipientPrivate: toHex(owner),
    recipientPublic: toHex(recipient),
    keyId: toHex(await sealing.fingerprint(recipient)),
    ephemeralPrivate: toHex(ephemeral),
    ephemeralPublic: toHex(once),
    ...binding(sealing.LABELS.sharedKey, [once, recipient, "chat-1"], envelope),
    nonce: toHex(envelope.subarray(20, 32)),
    envelope: toHex(envelope),
  };
}

async function madePassphrase() {
  const passphrase = "une nuit d'e\u0301te\u0301";
  const settings = { memoryKiB: 66_000, iterations: 3, parallelism: 1 };
  const salt = random(16);
  const root = await sealing.stretch(passphrase, { ...settings, salt }, argon2id);
  const keys = await shownUserKeys(root);
  return { passphrase: hexOfText(passphrase), ...settings, salt: toHex(salt), ...keys };
}

async function madeRecoveryCode() {
  const bytes = random(20);
  const written = sealing.writeRecoveryCode(bytes);
  const code = written.toLowerCase();
  return { code, bytes: toHex(bytes), written, ...(await shownUserKeys(bytes)) };
}

async function shownUserKeys(root) {
  const { auth, wrap } = await sealing.userKeys(root);
  return { authKey: toHex(auth.bytes), wrapKey: toHex(wrap.bytes) };
}

function binding(label, parts, envelope) {
  const aad = toHex(envelope.subarray(0, 20)) + toHex(join(parts));
  return { info: toHex(join([label, ...parts])), aad };
}

/** A vector, and the same one with another last byte. */
function withAltered(vector) {
  const envelope = fromHex(vector.envelope);
  envelope[envelope.length - 1] ^= 1;
  return [vector, { ...vector, envelope: toHex(envelope), error: "altered" }];
}

function hexOfText(text) {
  return toHex(new TextEncoder().encode(text));
}

function random(size) {
  return globalThis.crypto.getRandomValues(new Uint8Array(size));
}

const FIELDS = JSON.parse(read("docs/sealing-vectors.json"));
await run([
  ["WebCrypto opens the vectors of fields", () => checkList("field", FIELDS, checkField)],
  ["WebCrypto opens the vectors of keys", checkKeys],
  ["WebCrypto makes vectors that the crate opens", checkMade],
]);
