// The open master key of this tab, so that a reload does not ask for the passphrase again. It is in the tab's session
// storage, encrypted under a key that the browser keeps and that no script can read out. Closing the tab, locking or
// logging out ends it.

const NAME = "throughline.keys";
const DATABASE = "throughline-tab";

interface Stored {
  id: string;
  user: string;
  nonce: number[];
  sealed: number[];
}

export async function storeTabKeys(user: string, master: Uint8Array<ArrayBuffer>): Promise<void> {
  try {
    const id = crypto.randomUUID();
    const key = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt", "decrypt"]);
    const nonce = crypto.getRandomValues(new Uint8Array(12));
    const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce }, key, master);
    await withStore("readwrite", (store) => store.put(key, id));
    const stored: Stored = { id, user, nonce: [...nonce], sealed: [...new Uint8Array(sealed)] };
    sessionStorage.setItem(NAME, JSON.stringify(stored));
  } catch {
    // Then a reload asks for the passphrase.
  }
}

export async function loadTabKeys(user: string): Promise<Uint8Array<ArrayBuffer> | null> {
  try {
    const text = sessionStorage.getItem(NAME);
    if (!text) return null;
    const stored = JSON.parse(text) as Stored;
    if (stored.user !== user) return null;
    const key = await withStore<CryptoKey | undefined>("readonly", (store) => store.get(stored.id));
    if (!key) return null;
    const settings = { name: "AES-GCM", iv: new Uint8Array(stored.nonce) };
    return new Uint8Array(await crypto.subtle.decrypt(settings, key, new Uint8Array(stored.sealed)));
  } catch {
    return null;
  }
}

export function forgetTabKeys(): void {
  try {
    const text = sessionStorage.getItem(NAME);
    sessionStorage.removeItem(NAME);
    if (text) void withStore("readwrite", (store) => store.delete((JSON.parse(text) as Stored).id)).catch(() => {});
  } catch {
    // There was nothing to forget.
  }
}

async function withStore<T>(mode: IDBTransactionMode, act: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const database = await new Promise<IDBDatabase>((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("keys");
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  try {
    return await new Promise<T>((resolve, reject) => {
      const request = act(database.transaction("keys", mode).objectStore("keys"));
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  } finally {
    database.close();
  }
}
