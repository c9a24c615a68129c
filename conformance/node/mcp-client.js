// The client that the MCP conformance suite starts, with the address of its server as the last word: a
// gateway whose model calls every tool of the server. The suite checks what the server receives.

import { startToolChat } from "./tool-chat.js";

const url = process.argv.at(-1);
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const chat = await startToolChat(`url = "${url}"`);
const { tools } = await chat.server();

/** Arguments for a schema, as a model would fill them in. */
function example({ properties = {} } = {}) {
  const values = { number: 5, integer: 3, boolean: true, string: "text", object: {}, array: [] };
  const pairs = Object.entries(properties).map(([name, { type }]) => [name, values[type] ?? "text"]);
  return Object.fromEntries(pairs);
}

const every = tools.map(({ name, parameters }) => ({ name: name.slice(2), arguments: example(parameters) }));
for (const { name, arguments: input } of context.toolCalls ?? every) {
  await chat.call(name, input, { confirmed: true });
}
process.exit(0);
