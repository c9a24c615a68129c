// `@ag-ui/client` before 1.0, which front ends still use. 0.0.42 does not know reasoning messages,
// and 0.0.47 keeps only their text, so the gateway has to restore what they drop.

import { HttpAgent as Agent42 } from "ag-ui-client-0-0-42";
import { HttpAgent as Agent47 } from "ag-ui-client-0-0-47";

import { sdk } from "../ag-ui-conversation.js";
import * as harness from "../harness.js";

await harness.main(
  sdk("ag-ui 0.0.42", Agent42, { modern: false }),
  sdk("ag-ui 0.0.47", Agent47, { modern: false }),
);
