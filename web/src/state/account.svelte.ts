// The user of this browser and the keys that the passphrase opens. The passphrase is used here and never sent.

import * as accounts from "../api/accounts";
import type { Node, Project } from "../api/projects";
import * as sealing from "../lib/sealing.mjs";
import type { StretchRequest } from "../lib/argon2.worker";
import { forgetTabKeys, loadTabKeys, storeTabKeys } from "./tab_keys";
import { forgetAll } from "./offline";

const { PURPOSES, fromBase64Url, toBase64Url } = sealing;

/** An open key of a sealed project, and the ones before it. */
interface ChatKeys {
  present: sealing.Key;
  all: sealing.Key[];
}

class Account {
  /** Whether the server has been asked. */
  known = $state(false);
  user = $state.raw<accounts.User | null>(null);
  hasUsers = $state(false);
  unlocked = $state(false);
  private master: sealing.Key | null = null;
  private privateKey: Uint8Array | null = null;
  private chatKeys = new Map<string, ChatKeys>();

  /** Whether the server wants a log-in before anything else. */
  get mustLogIn(): boolean {
    return this.known && this.hasUsers && !this.user;
  }

  async load(): Promise<void> {
    const { user, hasUsers } = await accounts.session();
    this.user = user;
    this.hasUsers = hasUsers;
    if (user && !this.unlocked) {
      const bytes = await loadTabKeys(user.name);
      if (bytes) await this.open(user, await sealing.importKey(bytes)).catch(() => this.lock());
    }
    this.known = true;
  }

  /** Makes a user with new keys; returns the recovery code, which is shown once. */
  async signUp(name: string, passphrase: string): Promise<string> {
    const wanted = name.trim().normalize("NFC");
    const [master, privateBytes] = [await sealing.makeKey(), random(32)];
    const code = random(20);
    const kdf = newSettings();
    const keys = await passphraseKeys(passphrase, kdf);
    const recovery = await sealing.userKeys(code);
    await accounts.register({
      name: wanted,
      authKey: toBase64Url(keys.auth.bytes),
      kdf,
      wrappedMasterKey: await wrap(master, keys.wrap, PURPOSES.masterKey, wanted),
      recovery: {
        authKey: toBase64Url(recovery.auth.bytes),
        wrappedMasterKey: await wrap(master, recovery.wrap, PURPOSES.masterKey, wanted),
      },
      publicKey: toBase64Url(await sealing.publicKey(privateBytes)),
      wrappedPrivateKey: await wrap(await sealing.importKey(privateBytes), master, PURPOSES.privateKey, wanted),
    });
    const user = await accounts.logIn({ name: wanted, authKey: toBase64Url(keys.auth.bytes) });
    await this.enter(user, master);
    return sealing.writeRecoveryCode(code);
  }

  async logIn(name: string, passphrase: string): Promise<void> {
    const keys = await passphraseKeys(passphrase, await accounts.kdf(name.trim()));
    const user = await accounts.logIn({ name: name.trim(), authKey: toBase64Url(keys.auth.bytes) });
    await this.enter(user, await openMaster(user, keys.wrap));
  }

  /** Opens the keys of the present session. Nothing is sent. */
  async unlock(passphrase: string): Promise<void> {
    const { user } = this;
    if (!user?.kdf) throw new Error("no session");
    const keys = await passphraseKeys(passphrase, user.kdf);
    await this.enter(user, await openMaster(user, keys.wrap));
  }

  async recover(name: string, code: string, passphrase: string): Promise<void> {
    const recovery = await sealing.userKeys(sealing.readRecoveryCode(code));
    const proof = { name: name.trim(), authKey: toBase64Url(recovery.auth.bytes) };
    const found = await accounts.recover(proof);
    const master = await openMaster(found, recovery.wrap);
    const changed = await newPassphrase(passphrase, master, found.name);
    await this.enter(await accounts.recover({ ...proof, ...changed }), master);
  }

  async changePassphrase(present: string, next: string): Promise<void> {
    const { user } = this;
    if (!user?.kdf) throw new Error("no session");
    const keys = await passphraseKeys(present, user.kdf);
    const master = await openMaster(user, keys.wrap);
    const changed = await newPassphrase(next, master, user.name);
    await this.enter(await accounts.changePassphrase({ authKey: toBase64Url(keys.auth.bytes), ...changed }), master);
  }

  /** Forgets all keys of this tab. The session goes on. */
  lock(): void {
    this.master = null;
    this.privateKey = null;
    this.chatKeys.clear();
    this.unlocked = false;
    forgetTabKeys();
  }

  async logOut(): Promise<void> {
    await accounts.logOut();
    this.lock();
    this.user = null;
    await forgetAll();
  }

  /** A key for a new sealed project, and what the server may know of it. */
  async newChatKey(): Promise<{ key: sealing.Key; check: string; headers: Record<string, string> }> {
    const key = await sealing.makeKey();
    return { key, check: toBase64Url(key.check), headers: header(key) };
  }

  /** Stores the key of a project for its owner, wrapped under the master key. */
  async keepChatKey(project: string, key: sealing.Key): Promise<void> {
    const { master, user } = this;
    if (!master || !user) throw new Error("locked");
    await accounts.addMember(project, user.name, await wrap(key, master, PURPOSES.chatKey, project));
    this.chatKeys.set(project, { present: key, all: [key] });
  }

  /** The keys of a sealed project; `null` while locked. */
  async openChat(project: string): Promise<ChatKeys | null> {
    const open = this.chatKeys.get(project);
    if (open) return open;
    const { master, privateKey } = this;
    if (!master || !privateKey) return null;
    const own = await accounts.ownKey(project);
    if (!own.wrappedKey) return null;
    const envelope = fromBase64Url(own.wrappedKey);
    // The owner's copy is under the master key, a member's is sealed to the public key: the suite says which.
    const present =
      envelope[3] === 1
        ? await sealing.unwrapKey(envelope, master, PURPOSES.chatKey, project)
        : await sealing.openSharedKey(envelope, project, privateKey);
    const all = [present];
    for (const previous of own.previousKeys ?? []) {
      const under = all.at(-1) as sealing.Key;
      all.push(await sealing.unwrapKey(fromBase64Url(previous.previous), under, PURPOSES.previousChatKey, project));
    }
    const keys = { present, all };
    this.chatKeys.set(project, keys);
    return keys;
  }

  /** The header that lets the server use the key for one request. */
  headers(project: string): Record<string, string> {
    const keys = this.chatKeys.get(project);
    return keys ? header(keys.present) : {};
  }

  /** Shares a project with another user; returns the fingerprint of that user's key. */
  async share(project: string, name: string): Promise<string> {
    const keys = await this.openChat(project);
    if (!keys) throw new Error("locked");
    const other = await accounts.user(name.trim());
    const publicBytes = fromBase64Url(other.publicKey);
    await accounts.addMember(project, other.name, toBase64Url(await sealing.shareKey(keys.present, project, publicBytes)));
    return fingerprintOf(other.publicKey);
  }

  /** Removes a person, and changes the key so that later messages stay unreadable for them. */
  async unshare(project: string, name: string): Promise<void> {
    const keys = await this.openChat(project);
    const { master, user } = this;
    if (!keys || !master || !user) throw new Error("locked");
    await accounts.removeMember(project, name);
    const next = await sealing.makeKey();
    const wrappedKeys: Record<string, string> = {};
    for (const member of await accounts.members(project)) {
      wrappedKeys[member.name] = member.owner
        ? await wrap(next, master, PURPOSES.chatKey, project)
        : toBase64Url(await sealing.shareKey(next, project, fromBase64Url(member.publicKey)));
    }
    const previous = await wrap(keys.present, next, PURPOSES.previousChatKey, project);
    await accounts.nextKey(project, { keyCheck: toBase64Url(next.check), wrappedKeys, previous }, header(keys.present));
    this.chatKeys.set(project, { present: next, all: [next, ...keys.all] });
  }

  private async enter(user: accounts.User, master: sealing.Key): Promise<void> {
    // A session's answer repeats everything, also after a recovery.
    const { user: session, hasUsers } = await accounts.session();
    this.hasUsers = hasUsers;
    await this.open(session ?? user, master);
    await storeTabKeys(user.name, master.bytes);
  }

  private async open(user: accounts.User, master: sealing.Key): Promise<void> {
    const wrapped = fromBase64Url(user.wrappedPrivateKey);
    this.privateKey = (await sealing.unwrapKey(wrapped, master, PURPOSES.privateKey, user.name)).bytes;
    this.master = master;
    this.user = user;
    this.chatKeys.clear();
    this.unlocked = true;
  }
}

export const account = new Account();

/** The title of a project, opened if it is sealed and its key is at hand. */
export async function openTitle(project: Project): Promise<string | null> {
  if (project.title) return project.title;
  if (!project.encrypted_title) return null;
  try {
    const keys = await account.openChat(project.id);
    if (!keys) return null;
    return (await openText(keys.all, { chat: project.id, node: "", field: "title" }, project.encrypted_title)) || null;
  } catch {
    return null;
  }
}

/** A node with its plain fields, opened in the page. Throws if the key does not fit. */
export async function openNode(project: string, node: Node): Promise<Node> {
  if (!node.encrypted_content_blocks && !node.encrypted_content) return node;
  const keys = await account.openChat(project);
  if (!keys) return node;
  const open = (field: string, sealed: string) => openText(keys.all, { chat: project, node: node.id, field }, sealed);
  const blocks = node.encrypted_content_blocks;
  const content = node.encrypted_content;
  return {
    ...node,
    content: content ? await open("content", content) : node.content,
    contentBlocks: blocks ? (JSON.parse(await open("content_blocks", blocks)) as Node["contentBlocks"]) : node.contentBlocks,
  };
}

/** What two people compare to be sure of each other's keys. */
export async function fingerprintOf(publicKey: string): Promise<string> {
  const bytes = await sealing.fingerprint(fromBase64Url(publicKey));
  return (sealing.toHex(bytes).match(/.{4}/g) ?? []).join(" ");
}

async function openText(keys: sealing.Key[], path: sealing.FieldPath, sealed: string): Promise<string> {
  const envelope = fromBase64Url(sealed);
  const id = sealing.toHex(envelope.subarray(4, 20));
  const key = keys.find((one) => sealing.toHex(one.check) === id) ?? (keys[0] as sealing.Key);
  return new TextDecoder().decode(await sealing.openField(key, path, envelope));
}

function header(key: sealing.Key): Record<string, string> {
  return { "x-throughline-chat-key": toBase64Url(key.bytes) };
}

function random(length: number): Uint8Array<ArrayBuffer> {
  return crypto.getRandomValues(new Uint8Array(length));
}

function newSettings(): accounts.Kdf {
  return { algorithm: "argon2id", memoryKiB: 65536, iterations: 3, parallelism: 1, salt: toBase64Url(random(16)) };
}

async function passphraseKeys(passphrase: string, kdf: accounts.Kdf) {
  const settings = { ...kdf, salt: fromBase64Url(kdf.salt) };
  return sealing.userKeys(await sealing.stretch(passphrase, settings, stretchInWorker));
}

/** Argon2id in a worker, which is loaded only now. */
function stretchInWorker({ password, salt, memoryKiB, iterations, parallelism }: StretchRequest): Promise<Uint8Array> {
  const worker = new Worker(new URL("../lib/argon2.worker.ts", import.meta.url), { type: "module" });
  return new Promise<Uint8Array>((resolve, reject) => {
    worker.onmessage = (event: MessageEvent<Uint8Array | string>) =>
      typeof event.data === "string" ? reject(new Error(event.data)) : resolve(event.data);
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage({ password, salt, memoryKiB, iterations, parallelism } satisfies StretchRequest);
  }).finally(() => worker.terminate());
}

async function newPassphrase(passphrase: string, master: sealing.Key, name: string) {
  const kdf = newSettings();
  const keys = await passphraseKeys(passphrase, kdf);
  const wrappedMasterKey = await wrap(master, keys.wrap, PURPOSES.masterKey, name);
  return { newAuthKey: toBase64Url(keys.auth.bytes), kdf, wrappedMasterKey };
}

async function wrap(key: sealing.Key, under: sealing.Key, purpose: string, name: string): Promise<string> {
  return toBase64Url(await sealing.wrapKey(key, under, purpose, name));
}

function openMaster(user: accounts.User, wrapKey: sealing.Key): Promise<sealing.Key> {
  return sealing.unwrapKey(fromBase64Url(user.wrappedMasterKey), wrapKey, PURPOSES.masterKey, user.name);
}
