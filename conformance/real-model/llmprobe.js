// `llmprobe` against the gateway, over the real model.

import { run } from "../harness.js";
import { compare, probe } from "../probe.js";

const EXCEPTIONS = {};

await run([["llmprobe over llamacpp", async () => compare(await probe("llamacpp"), EXCEPTIONS)]]);
