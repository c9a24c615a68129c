// The examples of docs/front-ends.md over every upstream: the script of the page in one file, with
// just enough of a document for it, the program for AG-UI, and the commands that resume a stream.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createContext, runInContext } from "node:vm";

import { HttpAgent } from "@ag-ui/client";

import * as harness from "../harness.js";
import { read, recipe } from "../readme.js";

const { GATEWAY, check } = harness;

/** An element that keeps its children, its text and its listeners. */
class Element {
  children = [];
  textContent = "";
  value = "";

  constructor(tag) {
    this.tag = tag;
  }

  append(child) {
    this.children.push(child);
  }

  addEventListener(name, listener) {
    this[`on${name}`] = listener;
  }

  /** The texts of all elements below with this tag. */
  texts(tag) {
    return this.children.flatMap((child) => [
      ...(child.tag === tag ? [child.textContent] : []),
      ...child.texts(tag),
    ]);
  }
}

/**
 * `fetch` as a browser runs it for a page of another origin: it asks the server first, and the page
 * gets only replies that the server allows it to read.
 */
function fetchFrom(origin) {
  const allowed = (reply) => {
    const allowedOrigin = reply.headers.get("access-control-allow-origin");
    if (allowedOrigin !== origin && allowedOrigin !== "*") throw new TypeError("Failed to fetch");
    return reply;
  };
  return async (url, options) => {
    const preflight = {
      origin,
      "access-control-request-method": options.method,
      "access-control-request-headers": Object.keys(options.headers).join(","),
    };
    allowed(await fetch(url, { method: "OPTIONS", headers: preflight }));
    return allowed(await fetch(url, { ...options, headers: { ...options.headers, origin } }));
  };
}

/** The page, with its functions and its elements. A page that was opened as a file has no origin. */
function openPage(protocol) {
  const origin = protocol === "file:" ? "null" : "http://pages.example";
  const [, script] = read("docs/front-ends/page.html").match(/<script>([^]*?)<\/script>/);
  const elements = Object.fromEntries(
    ["chat", "form", "question"].map((id) => [id, new Element(id)]),
  );
  const context = createContext({
    Response,
    URLSearchParams,
    TextDecoderStream,
    fetch: fetchFrom(origin),
    location: { protocol, origin, search: `?gateway=${GATEWAY}&model=claude-opus-5` },
    document: {
      createElement: (tag) => new Element(tag),
      getElementById: (id) => elements[id],
    },
  });
  runInContext(`${script}\nthis.ask = ask;`, context);
  return { ask: context.ask, chat: elements.chat };
}

/** Two turns: both show thinking and text, and the second sends the first one back. */
async function pageInOneFile(upstream, protocol) {
  const page = openPage(protocol);
  for (const turn of [1, 2]) {
    await page.ask(`Ponder number ${turn}, please.`);
    const thoughts = page.chat.texts("span").filter((text) => text.trim());
    const answers = page.chat.children.filter((child) => child.tag === "div");
    const errors = answers.flatMap((answer) =>
      answer.children.filter((child) => child.className === "error"),
    );
    check(errors.length === 0, `turn ${turn}: the page shows ${JSON.stringify(errors)}`);
    check(thoughts.length === turn, `turn ${turn}: the page shows ${thoughts.length} thoughts`);
    const texts = answers.at(-1).children.filter((child) => child.className === "text");
    const shown = texts.map((child) => child.textContent).join("");
    check(shown, `turn ${turn}: the page shows no answer`);
  }
  const bodies = await upstream.received();
  check(bodies.length === 2, `the upstream got ${bodies.length} requests`);
  check(
    JSON.stringify(bodies[1]).includes("number 1"),
    "the second request has no history",
  );
}

/** The program for AG-UI, which ends without an error and reads an answer. */
async function agUiProgram(upstream) {
  const { command } = recipe("ag-ui", GATEWAY, "docs/front-ends.md");
  const body = command.replace(/^import .*\n/gm, "");
  const written = [];
  const stream = { write: (text) => written.push(text) };
  const program = new Function(
    "HttpAgent",
    "process",
    "console",
    `return (async () => { ${body}\nreturn newMessages; })();`,
  );
  const messages = await program(
    HttpAgent,
    { stdout: stream, stderr: stream },
    { error: () => {} },
  );
  const roles = messages.map((message) => message.role);
  check(roles.includes("reasoning"), `no reasoning in ${JSON.stringify(messages)}`);
  check(roles.includes("assistant"), `no answer in ${JSON.stringify(messages)}`);
  check(written.join("").trim(), "nothing was written");
  await upstream.received();
}

/** The commands that cut a stream and read on. Their output is the whole stream. */
async function resumedStream(upstream) {
  const { command } = recipe("resume", GATEWAY, "docs/front-ends.md");
  const folder = mkdtempSync(join(tmpdir(), "resume-"));
  const shown = execFileSync("bash", ["-c", command], { cwd: folder, encoding: "utf8" });
  rmSync(folder, { recursive: true });
  const lines = shown.trim().split("\n").map((line) => JSON.parse(line));
  const cursors = lines.map(({ seq }) => seq);
  const rise = cursors.every((seq, at) => at === 0 || seq > cursors[at - 1]);
  check(rise, `the cursors of the joined stream are ${cursors}`);
  check(lines.at(-1).type === "done", `the last line is ${JSON.stringify(lines.at(-1))}`);
  await upstream.received();
}

await harness.runOverEach("front-end examples", async (upstream) => {
  for (const protocol of ["file:", "http:"]) await pageInOneFile(upstream, protocol);
  await agUiProgram(upstream);
  await resumedStream(upstream);
});
