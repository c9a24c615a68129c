// `ai` with `@ai-sdk/openai-compatible` (chat completions) over upstreams of
// other dialects. It sends back the text of the reasoning, without a signature.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

import { sdk } from "../ai-conversation.js";
import * as harness from "../harness.js";

const provider = createOpenAICompatible({
  name: "throughline",
  baseURL: `${harness.GATEWAY}/v1`,
  apiKey: "conformance",
  includeUsage: true,
});

await harness.main(
  sdk({
    name: "@ai-sdk/openai-compatible",
    dialect: "openai_chat",
    model: "gpt-5.2",
    returnsSignatures: false,
    conversation: (model) => ({
      model: provider(model),
      providerOptions: { throughline: { reasoningEffort: "medium" } },
      signature: () => undefined,
    }),
  }),
);
