// `ai` with `@ai-sdk/anthropic` over upstreams of other dialects.

import { createAnthropic } from "@ai-sdk/anthropic";

import { sdk } from "../ai-conversation.js";
import * as harness from "../harness.js";

const provider = createAnthropic({ baseURL: `${harness.GATEWAY}/v1`, apiKey: "conformance" });

await harness.main(
  sdk({
    name: "@ai-sdk/anthropic",
    dialect: "anthropic",
    model: "claude-opus-5",
    conversation: (model) => ({
      model: provider(model),
      providerOptions: {
        anthropic: { thinking: { type: "adaptive", display: "summarized" } },
      },
      signature: ({ anthropic }) => anthropic?.signature ?? anthropic?.redactedData,
    }),
  }),
);
