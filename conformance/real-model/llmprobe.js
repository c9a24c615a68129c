// `llmprobe` against the gateway, over the real model.

import { run } from "../harness.js";
import { compare, probe } from "../probe.js";

const ALWAYS_CALLS = "the template's examples make the model call again instead of answering";

const EXCEPTIONS = {
  "responses-sse-missing-done":
    "OpenAI's own streams do not end with `[DONE]`, so the gateway adds none",
  "chat-tool-result-continues": ALWAYS_CALLS,
  "responses-tool-result-continues": ALWAYS_CALLS,
  "messages-tool-result-continues": ALWAYS_CALLS,
  "responses-effort-none-no-reasoning": "the server's grammar makes the model think always",
};

await run([["llmprobe over llamacpp", async () => compare(await probe("llamacpp"), EXCEPTIONS)]]);
