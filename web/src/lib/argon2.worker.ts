// Stretches a passphrase beside the page: it takes about a second of one core.

import { argon2id } from "hash-wasm";

export interface StretchRequest {
  password: Uint8Array;
  salt: Uint8Array;
  memoryKiB: number;
  iterations: number;
  parallelism: number;
}

addEventListener("message", async (event: MessageEvent<StretchRequest>) => {
  const { memoryKiB, ...settings } = event.data;
  try {
    postMessage(await argon2id({ ...settings, memorySize: memoryKiB, hashLength: 32, outputType: "binary" }));
  } catch (error) {
    postMessage(String(error));
  }
});
