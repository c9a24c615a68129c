// A gateway with one MCP server, and turns in which its model calls tools of that server.

import { startGateway } from "./processes.js";
import { startModel } from "./scripted-model.js";

let started = 0;

/** Starts a gateway. `server` has the lines of its `[[mcp]]` table. */
export async function startToolChat(server) {
  started += 1;
  const calls = [];
  const model = await startModel(calls);
  const address = await startGateway(`
[[backend]]
name = "model"
dialect = "openai_chat"
base_url = "${model}/v1"
default_model = "m"

[[mcp]]
name = "s"
${server}
`, `tools-${started}`);
  return new ToolChat(`http://${address}`, calls);
}

class ToolChat {
  constructor(url, calls) {
    Object.assign(this, { url, calls });
  }

  async send(path, body) {
    const method = body === undefined ? "GET" : "POST";
    const headers = { "content-type": "application/json" };
    const reply = await fetch(this.url + path, { method, headers, body: JSON.stringify(body) });
    if (!reply.ok) throw new Error(`${path} answered ${reply.status}: ${await reply.text()}`);
    return reply;
  }

  /** The server as `GET /api/tools` shows it. */
  async server() {
    const { servers } = await (await this.send("/api/tools")).json();
    return servers[0];
  }

  /** Lets the model call a tool. Returns the lines of the answer. `input` answers what the tool asks. */
  async call(tool, input, answer = {}) {
    const { tools } = await this.server();
    const named = tools.find(({ name }) => name === `s/${tool}`);
    this.calls.push({ name: named?.modelName ?? `s__${tool}`, arguments: input });
    this.project ??= (await (await this.send("/api/projects", { title: "Tools" })).json()).id;
    const reply = await this.send(`/api/projects/${this.project}/chat`, { message: "Go.", tools: ["s"] });
    const run = reply.headers.get("x-throughline-run");
    const lines = [];
    let rest = "";
    for await (const piece of reply.body.pipeThrough(new TextDecoderStream())) {
      const pieces = (rest + piece).split("\n");
      rest = pieces.pop();
      for (const line of pieces.filter((text) => text.trim()).map((text) => JSON.parse(text))) {
        lines.push(line);
        for (const call of line.type === "approval_needed" ? line.calls : []) {
          await this.send(`/api/runs/${run}/approvals/${call.id}`, { approve: true, input: answer });
        }
      }
    }
    return lines;
  }

  /** As `call`, and returns the result alone. */
  async result(tool, input, answer) {
    const lines = await this.call(tool, input, answer);
    return lines.find(({ type }) => type === "tool_result");
  }
}
