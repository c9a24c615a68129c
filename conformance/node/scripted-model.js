// A model that calls the tools of a queue, with exactly these arguments: a small server of the chat
// dialect. Simulated providers write their arguments in TOML, which has no `null`.

import { createServer } from "node:http";

/** Starts the model. `calls` is a queue of `{ name, arguments }`. It answers when the queue is empty. */
export function startModel(calls) {
  return new Promise((resolve) => {
    const server = createServer((request, reply) => {
      request.resume();
      if (request.method !== "POST") return reply.writeHead(404).end();
      const call = calls.shift();
      const delta = call ? { tool_calls: [write(call)] } : { content: "Done." };
      const stop = delta.content ? "stop" : "tool_calls";
      reply.writeHead(200, { "content-type": "text/event-stream" });
      for (const choice of [
        { index: 0, delta: { role: "assistant", ...delta }, finish_reason: null },
        { index: 0, delta: {}, finish_reason: stop },
      ]) {
        const chunk = { id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [choice] };
        reply.write(`data: ${JSON.stringify(chunk)}\n\n`);
      }
      reply.end("data: [DONE]\n\n");
    }).listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`));
    server.unref();
  });
}

let made = 0;

function write({ name, arguments: input }) {
  made += 1;
  return { index: 0, id: `call_${made}`, type: "function", function: { name, arguments: JSON.stringify(input) } };
}
