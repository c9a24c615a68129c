// Runs `llmprobe`, a public conformance suite for inference engines: its requests to chat completions,
// Responses and Messages. Every MUST has to hold, except those of a list. An exception that is no longer
// needed fails, too.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { GATEWAY, check } from "./harness.js";

/** Runs the suite; resolves to its report. */
export async function probe(backend) {
  const folder = mkdtempSync(join(tmpdir(), "llmprobe-"));
  const program = join(import.meta.dirname, "node_modules/llmprobe/bin/dist/llmprobe.mjs");
  const options = ["--api-key", "conformance", "--model", "gpt-5.2"];
  const child = spawn(
    process.execPath,
    [program, `${GATEWAY}/b/${backend}/v1`, ...options, "--no-bench", "--no-save", "--json"],
    // It keeps a library of its runs in the home folder.
    { env: { ...process.env, HOME: folder }, stdio: ["ignore", "pipe", "pipe"] },
  );
  let [output, errors] = ["", ""];
  child.stdout.on("data", (text) => (output += text));
  child.stderr.on("data", (text) => (errors += text));
  await new Promise((resolve) => child.on("close", resolve));
  rmSync(folder, { recursive: true, force: true });
  check(output.startsWith("{"), `there is no report: ${errors.slice(-500)}`);
  return JSON.parse(output).conformance;
}

/** Compares the failed assertions with `exceptions`, a reason for each id. */
export function compare(conformance, exceptions) {
  const failed = new Map();
  for (const result of conformance.results) {
    for (const failure of result.failures.filter(({ severity }) => severity === "MUST")) {
      failed.set(failure.id, `${result.id}: ${failure.label}: ${failure.message}`);
    }
  }
  const problems = [];
  for (const [id, message] of failed) {
    if (!exceptions[id]) problems.push(`${id}: ${message}`);
  }
  for (const id of Object.keys(exceptions)) {
    if (!failed.has(id)) problems.push(`${id} holds now; remove its exception`);
  }
  check(problems.length === 0, problems.join("\n        "));
  check(conformance.total > 100, `only ${conformance.total} assertions were checked`);
}
