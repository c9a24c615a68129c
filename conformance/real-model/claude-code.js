// Claude Code with the real model: one conversation of two turns over each backend. Its own prompt and
// tools do not fit into the model's context, so it gets a short prompt and no tools.

import { Agent, script } from "../agents.js";
import { GATEWAY, check, http, run } from "../harness.js";

const SHORT = ["--system-prompt", "You are a helpful assistant.", "--tools", ""];
const PRINT = ["--disable-slash-commands", "--output-format", "stream-json", "--verbose", "-p"];

/** Asks a question; returns the gateway's report of the turn. */
async function ask(agent, backend, ...question) {
  const printed = await agent.run(`${GATEWAY}/b/${backend}`, [...SHORT, ...PRINT, ...question]);
  const events = printed.trim().split("\n").map((line) => JSON.parse(line));
  const blocks = events.flatMap(({ type, message }) => (type === "assistant" ? message.content : []));
  for (const kind of ["thinking", "text"]) {
    const shown = blocks.map((block) => block[kind] ?? "").join("");
    check(shown.trim(), `Claude Code shows no ${kind}: ${printed.slice(-500)}`);
    check(!shown.includes("think>"), `the ${kind} has a tag: ${shown}`);
  }
  const { turns } = await http("GET", `${GATEWAY}/admin/turns?limit=1`);
  check(turns[0].end === "completed", `the turn ended as ${turns[0].end}`);
  return turns[0];
}

function promptTokens({ usage }) {
  return usage.input + (usage.cache_read ?? 0) + (usage.cache_write ?? 0);
}

async function twoTurns(backend) {
  const agent = new Agent("claude-code", "claude", script("@anthropic-ai", "claude-code", "cli-wrapper.cjs"));
  try {
    const first = await ask(agent, backend, "What is a cat?");
    const second = await ask(agent, backend, "And what does it eat?", "--continue");
    const fates = second.blocks.map(({ fate }) => fate);
    check(fates.join() === "sent", `the fates of thinking are [${fates}]`);
    // The reasoning is a part of the output, so the next prompt must contain it too.
    const [before, written, after] = [promptTokens(first), first.usage.output, promptTokens(second)];
    check(
      after > before + written,
      `the prompts have ${before} and ${after} tokens, and the first reply ${written}`,
    );
    console.log(`        prompt tokens: ${before}, ${written} of the reply, then ${after}`);
  } finally {
    agent.remove();
  }
}

const { backends } = await http("GET", `${GATEWAY}/admin/backends`);
await run(backends.map(({ name }) => [`Claude Code over ${name}`, () => twoTurns(name)]));
