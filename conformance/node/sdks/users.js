// A user with the module of the page (WebCrypto, Argon2id from `hash-wasm`) against the gateway: registers,
// logs in, opens the own keys, changes the passphrase and recovers. The gateway sees auth keys and wrapped
// keys; all other keys stay here.

import { pathToFileURL } from "node:url";

import { argon2id as hashWasm } from "hash-wasm";

import { GATEWAY, TIMEOUT_MS, check, run } from "../harness.js";
import { locate } from "../readme.js";

const sealing = await import(pathToFileURL(locate("web/src/lib/sealing.mjs")));
const { PURPOSES, fromBase64Url, importKey, makeKey, toBase64Url } = sealing;

const NAME = "Zoë Reiher";

function argon2id({ password, salt, memoryKiB, iterations, parallelism }) {
  const settings = { password, salt, iterations, parallelism, memorySize: memoryKiB };
  return hashWasm({ ...settings, hashLength: 32, outputType: "binary" });
}

function randomBytes(count) {
  return crypto.getRandomValues(new Uint8Array(count));
}

/** A browser: it keeps the cookie of its session. */
class Browser {
  cookie = "";

  async send(method, path, body, status = 200) {
    const headers = { "content-type": "application/json", origin: GATEWAY };
    if (this.cookie) headers.cookie = this.cookie;
    const reply = await fetch(`${GATEWAY}${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const text = await reply.text();
    check(reply.status === status, `${method} ${path} answered ${reply.status}: ${text}`);
    const [set] = reply.headers.getSetCookie();
    if (set) this.cookie = set.split(";")[0];
    return text ? JSON.parse(text) : null;
  }

  async logIn(passphrase, status) {
    const keys = await passphraseKeys(passphrase, await this.settings());
    const body = { name: NAME, authKey: toBase64Url(keys.auth.bytes) };
    return { keys, said: await this.send("POST", "/api/auth/login", body, status) };
  }

  settings() {
    return this.send("GET", `/api/auth/kdf?name=${encodeURIComponent(NAME)}`);
  }
}

function newSettings() {
  const salt = toBase64Url(randomBytes(16));
  return { algorithm: "argon2id", memoryKiB: 65536, iterations: 3, parallelism: 1, salt };
}

async function passphraseKeys(passphrase, kdf) {
  const settings = { ...kdf, salt: fromBase64Url(kdf.salt) };
  return sealing.userKeys(await sealing.stretch(passphrase, settings, argon2id));
}

async function wrapped(key, under, purpose) {
  return toBase64Url(await sealing.wrapKey(key, under, purpose, NAME));
}

async function openMaster(said, wrapKey) {
  const bytes = fromBase64Url(said.wrappedMasterKey);
  return sealing.unwrapKey(bytes, wrapKey, PURPOSES.masterKey, said.name);
}

function checkSame(one, other, what) {
  check(toBase64Url(one) === toBase64Url(other), `${what} is another one`);
}

async function registered(browser, passphrase, code) {
  const [master, privateKey] = [await makeKey(), randomBytes(32)];
  const kdf = newSettings();
  const [keys, recovery] = [
    await passphraseKeys(passphrase, kdf),
    await sealing.userKeys(sealing.readRecoveryCode(code)),
  ];
  const body = {
    name: NAME,
    authKey: toBase64Url(keys.auth.bytes),
    kdf,
    wrappedMasterKey: await wrapped(master, keys.wrap, PURPOSES.masterKey),
    recovery: {
      authKey: toBase64Url(recovery.auth.bytes),
      wrappedMasterKey: await wrapped(master, recovery.wrap, PURPOSES.masterKey),
    },
    publicKey: toBase64Url(await sealing.publicKey(privateKey)),
    wrappedPrivateKey: await wrapped(await importKey(privateKey), master, PURPOSES.privateKey),
  };
  const made = await browser.send("POST", "/api/auth/register", body, 201);
  check(made.name === NAME, `the gateway says ${made.name}`);
  return { master, privateKey, recovery };
}

/** What one person has, over all steps. */
const person = { browser: new Browser(), other: new Browser() };

async function registers() {
  const { browser } = person;
  const made = await browser.settings();
  check(made.salt === (await browser.settings()).salt, "the made-up salt changes");
  const code = sealing.writeRecoveryCode(randomBytes(20));
  Object.assign(person, await registered(browser, "first one", code));
  await browser.send("GET", "/api/projects", undefined, 401);
}

async function logsIn() {
  const { browser, other } = person;
  await browser.logIn("another one", 401);
  const { keys, said } = await browser.logIn("first one");
  const master = await openMaster(said, keys.wrap);
  checkSame(master.bytes, person.master.bytes, "the master key");
  const own = fromBase64Url(said.wrappedPrivateKey);
  const privateKey = await sealing.unwrapKey(own, master, PURPOSES.privateKey, said.name);
  checkSame(privateKey.bytes, person.privateKey, "the private key");
  await browser.send("GET", "/api/projects");
  await other.logIn("first one");
  person.keys = keys;
}

async function changesThePassphrase() {
  const { browser, other, keys, master } = person;
  const kdf = newSettings();
  const next = await passphraseKeys("second one", kdf);
  await browser.send("POST", "/api/auth/passphrase", {
    authKey: toBase64Url(keys.auth.bytes),
    newAuthKey: toBase64Url(next.auth.bytes),
    kdf,
    wrappedMasterKey: await wrapped(master, next.wrap, PURPOSES.masterKey),
  });
  await other.send("GET", "/api/auth/session", undefined, 401);
  await browser.send("GET", "/api/auth/session");
}

async function recovers() {
  const { browser, other, recovery } = person;
  const proof = { name: NAME, authKey: toBase64Url(recovery.auth.bytes) };
  const found = await other.send("POST", "/api/auth/recover", proof);
  const master = await openMaster(found, recovery.wrap);
  checkSame(master.bytes, person.master.bytes, "the recovered master key");
  const kdf = newSettings();
  const next = await passphraseKeys("third one", kdf);
  await other.send("POST", "/api/auth/recover", {
    ...proof,
    newAuthKey: toBase64Url(next.auth.bytes),
    kdf,
    wrappedMasterKey: await wrapped(master, next.wrap, PURPOSES.masterKey),
  });
  await browser.send("GET", "/api/auth/session", undefined, 401);
  await browser.logIn("second one", 401);
  const { said } = await browser.logIn("third one");
  checkSame((await openMaster(said, next.wrap)).bytes, master.bytes, "the master key");
}

async function logsOut() {
  const { browser } = person;
  await browser.send("POST", "/api/auth/logout", undefined, 204);
  await browser.send("GET", "/api/auth/session", undefined, 401);
}

await run([
  ["a user registers", registers],
  ["the user logs in and opens the own keys", logsIn],
  ["the user changes the passphrase", changesThePassphrase],
  ["the user recovers with the code", recovers],
  ["the user logs out", logsOut],
]);
