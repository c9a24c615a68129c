// `@modelcontextprotocol/server-everything`, the reference MCP server, over standard streams and over HTTP.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { dirname, join } from "node:path";

import * as harness from "../harness.js";
import { startToolChat } from "../tool-chat.js";

const resolve = createRequire(import.meta.url).resolve;
const server = join(dirname(resolve("@modelcontextprotocol/server-everything/package.json")), "dist", "index.js");

async function check(lines, transport) {
  const chat = await startToolChat(lines);
  const { state, tools, transport: shown } = await chat.server();
  harness.check(state === "connected" && shown === transport, `the server is ${state} over ${shown}`);
  const echo = tools.find(({ name }) => name === "s/echo");
  harness.check(echo?.parameters.properties.message, `its tools are ${JSON.stringify(tools)}`);
  const result = await chat.result("echo", { message: "good morning" });
  harness.check(!result.isError && result.content.includes("good morning"), JSON.stringify(result));
  const image = tools.find(({ name }) => /image/i.test(name));
  const shot = await chat.result(image.name.slice(2), {});
  harness.check(shot.content.some?.(({ type }) => type === "media"), JSON.stringify(shot).slice(0, 300));
  const wrong = await chat.result("echo", {});
  harness.check(wrong.isError, `a call without its argument gave ${JSON.stringify(wrong)}`);
}

async function overHttp() {
  const port = await new Promise((done) => {
    const free = createServer().listen(0, "127.0.0.1", () => {
      const { port } = free.address();
      free.close(() => done(port));
    });
  });
  const env = { PATH: process.env.PATH, PORT: String(port) };
  const child = spawn(process.execPath, [server, "streamableHttp"], { env, stdio: "ignore" });
  process.on("exit", () => child.kill());
  for (let tries = 0; tries < 200; tries += 1) {
    if (await fetch(`http://127.0.0.1:${port}/mcp`).catch(() => null)) break;
    await new Promise((next) => setTimeout(next, 50));
  }
  await check(`url = "http://127.0.0.1:${port}/mcp"`, "http");
}

await harness.run([
  ["mcp server-everything over standard streams", () => check(`command = ${JSON.stringify([process.execPath, server])}`, "stdio")],
  ["mcp server-everything over HTTP", overHttp],
]);
