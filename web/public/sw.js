// Keeps the page for times without a network: its document and its files, never an answer of the API.

const CACHE = "throughline-page-1";
const PAGES = /^\/(?:$|p\/|rooms\/|inspector$|unlock$)/;
const FILES = /^\/(?:assets\/|theme\.js$|icon\.svg$)/;

addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll(["/theme.js", "/icon.svg"]))
      .then(() => fetch("/", { headers: { accept: "text/html" } }))
      .then((page) => keepPage(page))
      .then(() => skipWaiting()),
  );
});

addEventListener("activate", (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name))))
      .then(() => clients.claim()),
  );
});

addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== location.origin) return;
  if (event.request.mode === "navigate" && PAGES.test(url.pathname)) event.respondWith(page(event.request));
  else if (FILES.test(url.pathname)) event.respondWith(file(event.request));
});

/** The newest page if there is a network, else the kept one. */
async function page(request) {
  try {
    const answer = await fetch(request);
    if (answer.ok) await keepPage(answer.clone());
    return answer;
  } catch (error) {
    const kept = await (await caches.open(CACHE)).match("/");
    if (kept) return kept;
    throw error;
  }
}

/** Names of files change with their contents, so a kept one is always right. */
async function file(request) {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(request);
  if (kept) return kept;
  const answer = await fetch(request);
  if (answer.ok) await cache.put(request, answer.clone());
  return answer;
}

/** Keeps the page with every file that it may load, and drops the files of the page before it. */
async function keepPage(answer) {
  const cache = await caches.open(CACHE);
  const text = await answer.clone().text();
  const before = await cache.match("/");
  if (before && (await before.text()) === text) return;
  await cache.put("/", answer);
  const list = await fetch("/assets/files.json").then((files) => (files.ok ? files.json() : []), () => []);
  const wanted = new Set(list.map((name) => new URL(name, location.origin).href));
  for (const kept of await cache.keys()) {
    if (kept.url.includes("/assets/") && !wanted.has(kept.url)) await cache.delete(kept);
  }
  for (const url of wanted) if (!(await cache.match(url))) await cache.add(url).catch(() => {});
}
