// Processes of the program under test, for scripts that need a gateway or a simulator of their own.
// They end with the script. CONFORMANCE_BINARY is the program.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const START_TIMEOUT_MS = 20_000;

const children = [];
/** A folder for files of this script, which is removed at its end. */
export const folder = mkdtempSync(join(tmpdir(), "conformance-"));
// `harness.run` exits, so this is the only place that sees the end.
process.on("exit", () => {
  for (const child of children) child.kill();
  rmSync(folder, { recursive: true, force: true });
});

/** Writes a file into the folder; returns its path. */
export function write(name, text) {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

/** Starts a gateway with this configuration; resolves to its address when it is ready. Each has a name. */
export function startGateway(configuration, name = "throughline") {
  const config = write(`${name}.toml`, configuration);
  return start("/readyz", ["serve", "--config", config, "--data-dir", join(folder, `${name}-data`)]);
}

/** Starts a simulator with these options; resolves to its address when it is ready. */
export function startSimulator(...options) {
  return start("/simulator/requests", ["simulate", ...options]);
}

/** Starts the program on a free port and waits until `GET path` succeeds. */
async function start(path, words) {
  const address = `127.0.0.1:${await freePort()}`;
  const child = spawn(process.env.CONFORMANCE_BINARY, [...words, "--listen", address], {
    env: { PATH: process.env.PATH },
    stdio: ["ignore", "ignore", "pipe"],
  });
  children.push(child);
  let log = "";
  child.stderr.on("data", (text) => (log += text));
  const deadline = Date.now() + START_TIMEOUT_MS;
  for (;;) {
    const ready = await fetch(`http://${address}${path}`).catch(() => null);
    if (ready?.ok) return address;
    if (Date.now() > deadline || child.exitCode !== null) {
      throw new Error(`\`${words[0]}\` did not start: ${log}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
