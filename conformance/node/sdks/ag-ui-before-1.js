// `@ag-ui/client` of before 1.0, which front ends still have. 0.0.42 knows no reasoning messages and
// 0.0.47 keeps their text alone, so the gateway has to remember what they cannot.

import { HttpAgent as Agent42 } from "ag-ui-client-0-0-42";
import { HttpAgent as Agent47 } from "ag-ui-client-0-0-47";

import { sdk } from "../ag-ui-conversation.js";
import * as harness from "../harness.js";

await harness.main(
  sdk("ag-ui 0.0.42", Agent42, { modern: false }),
  sdk("ag-ui 0.0.47", Agent47, { modern: false }),
);
