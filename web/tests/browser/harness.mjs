// Starts simulators, a gateway and a browser for the tests of the page. Everything runs on this machine.

import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

/** The program that is tested. */
export const BINARY = process.env.WEB_TEST_BINARY ?? fileURLToPath(new URL("../../../target/debug/throughline", import.meta.url));
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** Where screenshots are kept. */
export const SHOTS = process.env.SCREENSHOTS ?? fileURLToPath(new URL("../../../target/screenshots/", import.meta.url));
const READY_MS = 20_000;

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function run(folder, name, ...args) {
  const child = spawn(BINARY, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  const lines = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => lines.push(String(text)));
  return { name, child, lines };
}

async function answers(url, program) {
  for (const end = Date.now() + READY_MS; Date.now() < end; ) {
    if (program.child.exitCode !== null) break;
    const isReady = await fetch(url).then((reply) => reply.ok, () => false);
    if (isReady) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${program.name} does not answer: ${program.lines.join("")}`);
}

const backend = (name, dialect, port, model, more = "") => `
[[backend]]
name = "${name}"
dialect = "${dialect}"
base_url = "http://127.0.0.1:${port}"
api_key = "${name}"
default_model = "${model}"
${more}`;

/** A gateway with five backends over two simulators that do not read each other's thinking. */
export async function startServer({ scenario = "", tokensPerSecond = 60, config = "", prefixBinding = false } = {}) {
  const folder = await mkdtemp(join(tmpdir(), "throughline-web-"));
  await writeFile(join(folder, "scenario.toml"), scenario);
  const [first, second, port] = [await freePort(), await freePort(), await freePort()];
  const simulator = (at, identity) => {
    const args = ["simulate", "--listen", `127.0.0.1:${at}`, "--identity", identity, "--tokens-per-second", String(tokensPerSecond)];
    if (scenario) args.push("--scenario", join(folder, "scenario.toml"));
    if (prefixBinding) args.push("--prefix-binding");
    return run(folder, `simulator ${identity}`, ...args);
  };
  const programs = [simulator(first, "a"), simulator(second, "b")];
  const toml = `listen = "127.0.0.1:${port}"
data_dir = "${join(folder, "data")}"
${config}
${backend("claude", "anthropic", first, "claude-opus-5")}
${backend("other", "anthropic", second, "claude-opus-5")}
${backend("openai", "openai_responses", first, "gpt-5.2")}
${backend("gemini", "gemini", first, "gemini-3-pro")}
${backend("plain", "openai_chat", first, "gpt-4o", 'variant = "openai"')}
${backend("reasoner", "openai_chat", first, "o3", 'variant = "openai"')}
[route]
default = "claude"
`;
  await writeFile(join(folder, "throughline.toml"), toml);
  const start = async () => {
    const gateway = run(folder, "gateway", "serve", "--config", join(folder, "throughline.toml"));
    programs.push(gateway);
    await answers(`http://127.0.0.1:${port}/healthz`, gateway);
    return gateway;
  };
  await Promise.all(programs.map((program, at) => answers(`http://127.0.0.1:${[first, second][at]}/simulator/requests`, program)));
  let gateway = await start();
  const end = (program) =>
    new Promise((resolve) => {
      if (program.child.exitCode !== null) return resolve();
      program.child.once("exit", resolve);
      program.child.kill("SIGKILL");
    });
  const base = `http://127.0.0.1:${port}`;
  const simulatorUrl = `http://127.0.0.1:${first}`;
  return {
    base,
    port,
    simulatorUrl,
    pid: () => gateway.child.pid,
    kill: () => end(gateway),
    restart: async () => {
      gateway = await start();
    },
    api: async (method, path, body, headers = {}) => {
      const reply = await fetch(base + path, {
        method,
        headers: { "content-type": "application/json", ...headers },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
      const text = await reply.text();
      return { status: reply.status, headers: reply.headers, text, json: () => JSON.parse(text) };
    },
    close: async () => {
      await Promise.all(programs.map(end));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export async function startBrowser() {
  return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
}

/** A page that fails its test if a script fails or the content policy is broken. */
export async function openPage(browser, server, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, reducedMotion: "no-preference", ...options });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server.base });
  const page = await context.newPage();
  const problems = watch(page, server);
  page.setDefaultTimeout(15_000);
  return { context, page, problems };
}

/** Collects what must not happen: errors of scripts, broken policies, requests to other servers. */
export function watch(page, server) {
  const problems = [];
  page.on("pageerror", (error) => problems.push(`script: ${error.message}`));
  page.on("console", (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) problems.push(`policy: ${message.text()}`);
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(server.base) && !/^(data|blob):/.test(url)) problems.push(`foreign request: ${url}`);
  });
  return problems;
}

export async function shot(page, name, options = {}) {
  // What slides in is shown at its place. The loader turns for ever.
  await page.waitForFunction(() =>
    document.getAnimations().every((animation) => animation.playState !== "running" || animation.effect?.getTiming().iterations === Infinity),
  );
  await mkdir(SHOTS, { recursive: true });
  await page.screenshot({ path: join(SHOTS, `${name}.png`), ...options });
}

/** Presses Tab until an element with this test id or class has the focus. */
export async function focusOn(page, name, limit = 60) {
  const focused = () => page.evaluate(() => `${document.activeElement?.dataset.testid ?? ""} ${document.activeElement?.className ?? ""}`);
  for (let at = 0; at < limit; at += 1) {
    await page.keyboard.press("Tab");
    if ((await focused()).split(/\s+/).includes(name)) return;
  }
  throw new Error(`Tab does not reach ${name}`);
}

/** Sends a message and waits until its answer is stored. */
export async function say(page, text) {
  await page.getByTestId("composer").fill(text);
  await page.getByTestId("send").click();
  await answered(page);
}

/** Waits until no answer is being written. */
export async function answered(page) {
  await page.getByTestId("send").waitFor();
  await page.locator('[data-testid="message"][data-role="assistant"][data-node]').last().waitFor();
}

/** A new conversation of the API, with its messages answered. */
export async function makeConversation(server, messages, more = {}) {
  const project = (await server.api("POST", "/api/projects", { title: "Made for a test", ...more })).json();
  for (const message of messages) {
    const body = typeof message === "string" ? { message, thinking: "low" } : message;
    const reply = await server.api("POST", `/api/projects/${project.id}/chat`, body);
    if (reply.status !== 200) throw new Error(`chat answered ${reply.status}: ${reply.text}`);
  }
  return project.id;
}
