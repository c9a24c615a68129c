// Fails if the page's first load has more JavaScript than its budget: all scripts that `/` loads before a
// person does anything, compressed with gzip.

import { readFile, stat } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const BUDGET = 150 * 1024;
const dist = fileURLToPath(new URL("../dist/", import.meta.url));

const manifest = JSON.parse(await readFile(`${dist}.vite/manifest.json`, "utf8"));
const files = new Set(["theme.js"]);
/** Adds a chunk and everything that it imports at once; dynamic imports are loaded later. */
function add(name) {
  const chunk = manifest[name];
  if (files.has(chunk.file)) return;
  files.add(chunk.file);
  for (const next of chunk.imports ?? []) add(next);
}
add("index.html");
// What every chat loads a moment later counts too.
for (const name of Object.keys(manifest)) {
  if (/routes\/Chat\.svelte$/.test(name)) add(name);
}
let total = 0;
for (const file of files) {
  const size = gzipSync(await readFile(dist + file), { level: 9 }).length;
  total += size;
  console.log(`${String(size).padStart(8)}  ${file} (${(await stat(dist + file)).size})`);
}
console.log(`${String(total).padStart(8)}  of ${BUDGET}`);
if (total > BUDGET) {
  console.error("the first load has too much JavaScript");
  process.exit(1);
}
