// `@ag-ui/client` over upstreams of all dialects. A warning of its checks fails the turn, and so
// does an encrypted value that the agent does not send back.

import { HttpAgent } from "@ag-ui/client";

import { sdk } from "../ag-ui-conversation.js";
import * as harness from "../harness.js";

await harness.main(sdk("ag-ui", HttpAgent, { modern: true }));
