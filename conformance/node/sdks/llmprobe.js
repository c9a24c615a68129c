// `llmprobe` against the gateway, over each upstream dialect.

import { run } from "../harness.js";
import { compare, probe } from "../probe.js";

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

/** The exceptions over one backend: a reason for each id. */
function exceptionsOver(backend) {
  const reasons = Object.entries(EXCEPTIONS).map(([id, by]) => [id, by.everywhere ?? by[backend]]);
  return Object.fromEntries(reasons.filter(([, reason]) => reason));
}

// The suites wait for replies most of the time, so they run side by side.
const reports = BACKENDS.map((backend) => [backend, probe(backend)]);
for (const [, report] of reports) report.catch(() => {});
await run(
  reports.map(([backend, report]) => [
    `llmprobe over ${backend}`,
    async () => compare(await report, exceptionsOver(backend)),
  ]),
);
