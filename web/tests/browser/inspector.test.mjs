// The inspector, over turns that a client of the gateway has made.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";

import { openPage, shot, startBrowser, startServer } from "./harness.mjs";

const FULL = "[debug_log]\nenabled = true\nfull_body = true\n";
const LONG = "You answer questions about birds. ".repeat(200);

let server;
let browser;
let signed;
before(async () => {
  server = await startServer({ tokensPerSecond: 300, config: FULL });
  browser = await startBrowser();
  await converse();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

function request(messages, system = LONG) {
  return {
    model: "claude-opus-5",
    max_tokens: 4000,
    system: [{ type: "text", text: system, cache_control: { type: "ephemeral" } }],
    thinking: { type: "adaptive", display: "summarized" },
    messages,
    metadata: { user_id: "inspector-test" },
  };
}
const send = async (body, backend) => {
  const headers = { "anthropic-version": "2023-06-01", ...(backend ? { "x-throughline-backend": backend } : {}) };
  const reply = await server.api("POST", "/v1/messages", body, headers);
  assert.equal(reply.status, 200, reply.text);
  return reply.json();
};

/** Three requests: a second one that grows, and a third one at a backend that cannot read the thinking. */
async function converse() {
  const first = [{ role: "user", content: [{ type: "text", text: "Why one leg?" }] }];
  const answer = await send(request(first));
  const second = [...first, { role: "assistant", content: answer.content }, { role: "user", content: [{ type: "text", text: "And two?" }] }];
  const next = await send(request(second));
  const third = [...second, { role: "assistant", content: next.content }, { role: "user", content: [{ type: "text", text: "And three?" }] }];
  await send(request(third), "other");
  signed = answer.content.find((block) => block.type === "thinking").signature;
}

async function open(path = "/inspector") {
  const opened = await openPage(browser, server);
  await opened.page.goto(server.base + path);
  await opened.page.getByTestId("turn").first().waitFor();
  return opened;
}

test("turn_shows_the_fate_of_each_block_with_its_reason", async () => {
  const { page, context, problems } = await open();
  await page.getByTestId("turn").first().click();
  const blocks = page.getByTestId("turn-detail").getByTestId("blocks").first();
  await blocks.waitFor();
  assert.match(await blocks.textContent(), /Left out: another provider made it, and this one would refuse its signature/);
  assert.match(await blocks.textContent(), /messages\.1\.content\.0/);
  assert.match(await page.getByTestId("turn-way").textContent(), /anthropic.*→.*anthropic.*passed through/s);
  assert.match(await page.getByTestId("turn-cost").textContent(), /^\$0\.0*[1-9]/);
  assert.match(await page.getByTestId("waterfall").textContent(), /Waiting for the reply.*Answer/s);
  assert.ok(!(await page.content()).includes(signed), "a signature is in the document");
  await page.getByText("cached prefix ends here").waitFor();
  await shot(page, "inspector-turn");
  assert.deepEqual(problems, []);
  await context.close();
});

test("diff_marks_the_end_of_the_cached_prefix", async () => {
  const { page, context } = await open();
  await page.getByTestId("turn").nth(1).click();
  const diff = page.getByTestId("turn-diff");
  await diff.getByText("cached prefix ends here").waitFor();
  assert.equal(await diff.getByText("signed prefix changed here").count(), 0, "a request that only grows keeps its prefix");
  await diff.scrollIntoViewIfNeeded();
  await shot(page, "inspector-diff");
  await context.close();
});

test("diff_marks_a_changed_signed_prefix", async () => {
  const first = [{ role: "user", content: [{ type: "text", text: "Signed prefix?" }] }];
  const answer = await send(request(first));
  const second = [...first, { role: "assistant", content: answer.content }, { role: "user", content: [{ type: "text", text: "And now?" }] }];
  await send(request(second));
  const tool = { name: "look", description: "Looks", input_schema: { type: "object", properties: {} } };
  await send({ ...request(second), tools: [tool] });
  const { page, context } = await open();
  await page.getByTestId("turn").first().click();
  const diff = page.getByTestId("turn-diff");
  await diff.getByText("signed prefix changed here").waitFor();
  await diff.getByText("cached prefix ends here").waitFor();
  await shot(page, "inspector-signed");
  await context.close();
});

test("filter_shows_only_turns_that_fit", async () => {
  const { page, context } = await open();
  await page.getByTestId("turn-filter").fill("other anthropic");
  await page.waitForFunction(() => document.querySelectorAll('[data-testid="turn"]').length === 1);
  await page.getByTestId("turn-filter").fill("no such thing");
  await page.getByText("No turn fits the filter.").waitFor();
  await context.close();
});

test("new_turns_appear_as_they_end", async () => {
  const { page, context } = await open();
  const count = await page.getByTestId("turn").count();
  await send(request([{ role: "user", content: "A live one" }]));
  await page.waitForFunction((before) => document.querySelectorAll('[data-testid="turn"]').length === before + 1, count);
  await context.close();
});

test("plan_shows_what_another_backend_would_get_and_sends_it_there", async () => {
  const { page, context } = await open();
  await page.getByTestId("turn-filter").fill("claude-opus-5 claude");
  const grown = (await server.api("GET", "/admin/turns?limit=50")).json().turns.find((turn) => turn.backend === "claude" && turn.blocks.length > 0);
  await page.locator(`[data-turn="${grown.id}"]`).click();
  await page.getByTestId("plan-backend").selectOption("gemini");
  await page.getByTestId("turn-plan").click();
  const result = page.getByTestId("plan-result");
  await result.waitFor();
  assert.match(await result.textContent(), /On gemini the request goes to claude-opus-5, translated\./);
  assert.match(await result.textContent(), /Left out/);
  await page.getByTestId("plan-send").click();
  await result.getByTestId("try-status").waitFor();
  assert.match(await result.getByTestId("try-status").textContent(), /Status 200/);
  await page.waitForFunction(() => document.querySelector('[data-testid="try-raw"]')?.textContent.length > 100);
  const sent = (await server.api("GET", "/admin/turns?limit=5")).json().turns;
  assert.ok(sent.some((turn) => turn.backend === "gemini"));
  await context.close();
});

test("backends_are_switched", async () => {
  const { page, context } = await open();
  await page.getByTestId("tab-backends").click();
  await page.getByTestId("switch-other").click();
  await page.getByTestId("switch-claude").waitFor();
  await shot(page, "inspector-backends");
  assert.equal((await server.api("GET", "/admin/backends")).json().active, "other");
  await page.getByTestId("switch-claude").click();
  await page.getByTestId("switch-other").waitFor();
  await context.close();
});

test("numbers_show_cache_reads_and_latencies_by_model", async () => {
  const { page, context } = await open();
  await page.getByTestId("tab-numbers").click();
  const row = page.getByTestId("by-model").locator("tbody tr", { hasText: "claude-opus-5 claude" });
  await row.waitFor();
  assert.match(await row.getByTestId("model-cost").textContent(), /^\$0\.0*[1-9]/);
  const share = Number(/(\d+) %/.exec(await row.textContent())[1]);
  assert.ok(share > 0 && share < 100, `cache share ${share}`);
  assert.match(await page.getByTestId("latency-total").textContent(), /ms|s/);
  await shot(page, "inspector-numbers");
  await page.getByTestId("tab-memory").click();
  await page.getByTestId("memory").getByText("Blocks").waitFor();
  await shot(page, "inspector-memory");
  await context.close();
});

for (const dialect of ["anthropic", "openai_chat", "openai_responses", "gemini", "ollama", "ndjson"]) {
  test(`try_it_sends_${dialect}_and_shows_events_beside_bytes`, async () => {
    const { page, context } = await open();
    await page.getByTestId("tab-tryIt").click();
    await page.getByTestId("try-dialect").selectOption(dialect);
    await page.getByTestId("try-send").click();
    await page.getByTestId("try-status").waitFor();
    assert.match(await page.getByTestId("try-status").textContent(), /Status 200/);
    await page.waitForFunction(() => document.querySelectorAll('[data-testid="try-events"] li').length > 3);
    await page.getByTestId("try-send").waitFor();
    if (dialect === "anthropic") await shot(page, "inspector-try");
    await context.close();
  });
}

test("shapes_are_shown_and_compared_without_contents", async () => {
  const quiet = await startServer({ tokensPerSecond: 0 });
  try {
    const ask = async (body) => {
      const reply = await quiet.api("POST", "/v1/messages", body, { "anthropic-version": "2023-06-01" });
      assert.equal(reply.status, 200, reply.text);
      return reply.json();
    };
    const first = [{ role: "user", content: [{ type: "text", text: "Not to be kept" }] }];
    await ask(request(first));
    const { page, context, problems } = await openPage(browser, quiet);
    await page.goto(`${quiet.base}/inspector`);
    await page.getByTestId("turn").first().click();
    await page.getByText("The gateway keeps shapes while an operator reads turns").waitFor();
    assert.ok(await page.getByTestId("turn-plan").isDisabled());
    // Now an operator reads turns.
    const answer = await ask(request(first));
    const second = [...first, { role: "assistant", content: answer.content }, { role: "user", content: [{ type: "text", text: "Not to be kept either" }] }];
    await ask(request(second));
    await ask({ ...request(second), tools: [{ name: "look", description: "Looks", input_schema: { type: "object", properties: {} } }] });
    const { turns } = (await quiet.api("GET", "/admin/turns?bodies=false")).json();
    const show = (turn) => page.locator(`[data-turn="${turn.id}"]`).click();
    await show(turns[1]);
    const shape = page.getByTestId("shape");
    await shape.getByText("System text").waitFor();
    assert.match(await shape.textContent(), /Messages\s*4\s*[\d.]+ k?B\s*≈ [\d,]+/);
    const diff = page.getByTestId("turn-diff");
    await diff.getByText("cached prefix ends here").waitFor();
    assert.equal(await diff.getByText("signed prefix changed here").count(), 0);
    await page.getByText("parts, with their places").click();
    assert.match(await page.getByTestId("shape-parts").textContent(), /messages\.1\.content\.0\s*assistant: thinking/);
    await shot(page, "inspector-shape");
    await show(turns[0]);
    await diff.getByText("signed prefix changed here").waitFor();
    assert.equal(await diff.locator("details").count(), 0, "there is no content to show");
    assert.ok(!(await page.content()).includes("Not to be kept"));
    assert.ok(!(await quiet.api("GET", "/admin/turns")).text.includes("Not to be kept"));
    assert.deepEqual(problems, []);
    await context.close();
  } finally {
    await quiet.close();
  }
});

test("bodies_of_2_mb_are_compared_in_less_than_50_ms", async () => {
  const turn = (at) => [
    { role: "user", content: [{ type: "text", text: `Question ${at} ${"word ".repeat(500)}` }] },
    { role: "assistant", content: [{ type: "text", text: `Answer ${at} ${"word ".repeat(1500)}` }] },
  ];
  const messages = [...Array.from({ length: 210 }, (_, at) => turn(at)).flat(), { role: "user", content: [{ type: "text", text: "And now?" }] }];
  assert.ok(JSON.stringify(messages).length > 2_000_000);
  await send(request(messages));
  await send(request([...messages.slice(0, -1), { role: "user", content: [{ type: "text", text: "Now really?" }] }]));
  const { page, context } = await open();
  await page.getByTestId("turn").first().click();
  const diff = page.getByTestId("turn-diff");
  const summary = diff.getByText("compared in");
  await summary.waitFor();
  const took = Number(/compared in ([\d.]+) ms/.exec(await summary.textContent())[1]);
  console.log(`two bodies of 2 MB compared in ${took} ms`);
  assert.ok(took < 50, `${took} ms`);
  await diff.locator("summary").first().click();
  await diff.getByText("Now really?").waitFor();
  await context.close();
});

test("thousand_turns_add_less_than_30_mib_to_the_server", async () => {
  const busy = await startServer({ tokensPerSecond: 0 });
  const memory = async () => Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${busy.pid()}/status`, "utf8"))[1]) / 1024;
  try {
    const one = (at) => busy.api("POST", "/v1/messages", { ...request([{ role: "user", content: `Question ${at}` }], "Be brief."), thinking: undefined }, { "anthropic-version": "2023-06-01" });
    for (let at = 0; at < 1000; at += 20) await Promise.all(Array.from({ length: 20 }, (_, index) => one(at + index)));
    const before = await memory();
    const { page, context } = await openPage(browser, busy);
    await page.goto(`${busy.base}/inspector`);
    await page.getByTestId("turn").first().waitFor();
    assert.ok((await page.getByTestId("turn").count()) < 60, "only rows on the screen exist");
    await page.keyboard.press("Tab");
    await page.getByTestId("turn").first().focus();
    await page.keyboard.press("End");
    await page.getByTestId("turn-detail").waitFor();
    const grown = (await memory()) - before;
    console.log(`the inspector adds ${grown.toFixed(1)} MiB`);
    assert.ok(grown < 30, `${grown} MiB`);
    await context.close();
  } finally {
    await busy.close();
  }
});
