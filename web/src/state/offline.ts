// Copies of conversations in this browser, to read them without the network. A sealed conversation is stored as the
// server sends it, in its encrypted fields; so this store holds nothing that the server's database does not hold.

import type { Branch, GraphNode, Node, Project } from "../api/projects";

export interface StoredConversation {
  project: Project;
  branches: Branch[];
  graph: GraphNode[];
  nodes: Node[];
}

const NAME = "throughline";
const STORES = ["lists", "conversations"] as const;
type StoreName = (typeof STORES)[number];

let opening: Promise<IDBDatabase> | null = null;

function open(): Promise<IDBDatabase> {
  opening ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => STORES.forEach((name) => request.result.createObjectStore(name));
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opening;
}

async function access<T>(name: StoreName, mode: IDBTransactionMode, act: (store: IDBObjectStore) => IDBRequest<T>): Promise<T | undefined> {
  try {
    const store = (await open()).transaction(name, mode).objectStore(name);
    return await new Promise((resolve, reject) => {
      const request = act(store);
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  } catch {
    // A browser that stores nothing can still show everything while it is online.
    return undefined;
  }
}

/** A plain copy: proxies of the state cannot be stored. */
const plain = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

export const storeList = (projects: Project[]) => access("lists", "readwrite", (store) => store.put(plain(projects), "projects"));
export const storedList = () => access<Project[] | undefined>("lists", "readonly", (store) => store.get("projects"));
export const storeConversation = (conversation: StoredConversation) =>
  access("conversations", "readwrite", (store) => store.put(plain(conversation), conversation.project.id));
export const storedConversation = (id: string) =>
  access<StoredConversation | undefined>("conversations", "readonly", (store) => store.get(id));
export const forgetConversation = (id: string) => access("conversations", "readwrite", (store) => store.delete(id));

/** Forgets everything, for a person who logs out. */
export async function forgetAll(): Promise<void> {
  for (const name of STORES) await access(name, "readwrite", (store) => store.clear());
}
