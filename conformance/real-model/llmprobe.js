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
  "chat-logprobs-stream-parity":
    "llama.cpp's streams leave out the entries of tokens that show nothing: `</think>` and the end",
  "messages-prefill-not-echoed":
    "llama.cpp repeats the prefill in whole replies, also in its own Messages dialect; not in streams",
  "responses-chain-remembers":
    "the reply is limited to 16 tokens, and the model's thought is longer than that",
};

await run([["llmprobe over llamacpp", async () => compare(await probe("llamacpp"), EXCEPTIONS)]]);
