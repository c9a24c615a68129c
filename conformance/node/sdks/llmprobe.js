// `llmprobe`, a public conformance suite for inference engines, against the gateway: its requests
// to chat completions, Responses and Messages, over each upstream dialect. Every MUST has to hold,
// except those below. An exception that is no longer needed fails, too.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { GATEWAY, check, run } from "../harness.js";

// Functions of this dialect are strict by default, and the suite's function is not.
const NOT_STRICT = "the simulator refuses a function that is not strict without saying so";
const NO_STOP = "the dialect has no stop sequences, so the request is refused by name";

/** Why an assertion does not hold: over every upstream, or over one of them. */
const EXCEPTIONS = {
  "responses-sse-missing-done": {
    everywhere: "OpenAI's own streams do not end with `[DONE]`, so the gateway adds none",
  },
  "responses-chain-remembers": {
    everywhere: "the simulator quotes the last question and remembers no names",
  },
  "chat-logprobs-not-ignored": { chat: "the simulator accepts `logprobs` and writes none" },
  "messages-stream-chunk-schema": { a: "the suite does not know `signature_delta`" },
  "messages-prefill-status": { a: "the model takes no trailing assistant message" },
  "responses-tool-stream-status": { responses: NOT_STRICT },
  "responses-tool-result-status": { responses: NOT_STRICT },
  "responses-tool-none-status": { responses: NOT_STRICT },
  "chat-stop-string-status": { responses: NO_STOP },
  "messages-stop-echo-status": { responses: NO_STOP },
  "responses-effort-none-no-reasoning": { gemini: "the model always thinks; a loss says so" },
};

const BACKENDS = ["a", "responses", "gemini", "chat", "ollama"];

/** Runs the suite; resolves to its report. */
async function probe(backend, folder) {
  const program = join(import.meta.dirname, "../node_modules/llmprobe/bin/dist/llmprobe.mjs");
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
  check(output.startsWith("{"), `there is no report: ${errors.slice(-500)}`);
  return JSON.parse(output).conformance;
}

/** Compares the failed assertions with the exceptions. */
function compare(backend, conformance) {
  const failed = new Map();
  for (const result of conformance.results) {
    for (const failure of result.failures.filter(({ severity }) => severity === "MUST")) {
      failed.set(failure.id, `${result.id}: ${failure.label}: ${failure.message}`);
    }
  }
  const problems = [];
  for (const [id, message] of failed) {
    const reasons = EXCEPTIONS[id] ?? {};
    if (!reasons.everywhere && !reasons[backend]) problems.push(`${id}: ${message}`);
  }
  for (const [id, reasons] of Object.entries(EXCEPTIONS)) {
    if ((reasons.everywhere || reasons[backend]) && !failed.has(id)) {
      problems.push(`${id} holds now; remove its exception`);
    }
  }
  check(problems.length === 0, problems.join("\n        "));
  check(conformance.total > 100, `only ${conformance.total} assertions were checked`);
}

const folder = mkdtempSync(join(tmpdir(), "llmprobe-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
// The suites wait for replies most of the time, so they run side by side.
const reports = BACKENDS.map((backend) => [backend, probe(backend, folder)]);
for (const [, report] of reports) report.catch(() => {});
await run(
  reports.map(([backend, report]) => [
    `llmprobe over ${backend}`,
    async () => compare(backend, await report),
  ]),
);
