import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

// The gateway that the development server forwards to.
const gateway = process.env.GATEWAY ?? "http://127.0.0.1:8484";
const paths = ["/api", "/admin", "/v1", "/v1beta", "/ndjson", "/runs", "/b", "/healthz", "/metrics"];
const proxy = Object.fromEntries(
  paths.map((path) => [
    path,
    {
      target: gateway,
      changeOrigin: true,
      // The gateway compares `Origin` with its own address.
      configure: (server: { on(event: string, call: (request: { removeHeader(name: string): void }) => void): void }) =>
        server.on("proxyReq", (request) => request.removeHeader("origin")),
    },
  ]),
);

/** Lists all files for the service worker, which keeps them for times without a network. */
function fileList(): Plugin {
  return {
    name: "file-list",
    generateBundle(_options, bundle) {
      const files = Object.keys(bundle).filter((name) => name.startsWith("assets/"));
      this.emitFile({ type: "asset", fileName: "assets/files.json", source: JSON.stringify(files.map((name) => `/${name}`).sort()) });
    },
  };
}

/** Writes a compressed copy beside each file, which the program embeds too. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    async closeBundle() {
      const folder = this.environment.config.build.outDir;
      for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(js|css|html|svg|json)$/.test(entry.name)) continue;
        const path = join(entry.parentPath, entry.name);
        const bytes = await readFile(path);
        if (bytes.length > 1000) await writeFile(`${path}.gz`, gzipSync(bytes, { level: 9 }));
      }
    },
  };
}

export default defineConfig(({ mode }) => ({
  plugins: [svelte(), fileList(), compressed()],
  // Tests mount components, so they need the browser's half of Svelte.
  resolve: mode === "test" ? { conditions: ["browser"] } : {},
  build: {
    target: "es2022",
    // The inspector's code is loaded with its page; nothing else is worth a request of its own.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    manifest: true,
  },
  worker: { format: "es" as const },
  server: { proxy },
  preview: { proxy },
  test: { environment: "jsdom", include: ["tests/unit/**/*.test.ts"] },
}));
