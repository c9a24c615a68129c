// The two pictures of the README. Copy them from target/screenshots when the page has changed.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { openPage, say, shot, startBrowser, startServer } from "./harness.mjs";

const THINKING =
  "The person asks about herons, but the habit is common to many wading birds.\\n\\nThree reasons come up in the literature: **heat**, **camouflage** and **fatigue**. Heat is measured best: flamingos stand on one leg more often in cold water, and blood vessels in the leg exchange heat.\\n\\nI should say which reason is well supported, and that the others are guesses.";
const ANSWER =
  "Mostly to keep warm.\\n\\n1. **Heat.** A leg in cold water loses much of it. Tucking one leg into the feathers halves the loss.\\n2. **Rest.** The joint locks when the body is above the foot, so standing on one leg takes almost no muscle.\\n3. **Cover.** One leg looks more like a reed than two. This one is a guess.";
const scenario = `
[[step]]
when = { contains = "on one leg", nth = 2 }
say = [{ text = "Herons on one leg" }]

[[step]]
when = { contains = "on one leg" }
say = [{ thinking = "${THINKING}" }, { text = "${ANSWER}" }]
`;

let server;
let browser;
before(async () => {
  server = await startServer({ scenario, tokensPerSecond: 400, config: "[debug_log]\nenabled = true\nfull_body = true\n" });
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const SIZE = { viewport: { width: 1200, height: 840 }, colorScheme: "light" };

test("readme_shows_the_chat", async () => {
  const { page, context } = await openPage(browser, server, SIZE);
  await page.goto(server.base);
  await say(page, "Why do herons stand on one leg?");
  await page.locator(".thinking-header").click();
  await page.waitForFunction(() => document.querySelector(".thinking-content")?.getAnimations().length === 0);
  assert.match(await page.locator(".thinking-content").textContent(), /camouflage/);
  await page.getByTestId("conversations").getByText("Herons on one leg").waitFor();
  await page.mouse.move(0, 0);
  await page.waitForFunction(() => document.querySelectorAll('[data-testid="conversations"] li').length > 0);
  await page.locator("header .name").focus();
  await shot(page, "readme-chat");
  await context.close();
});

test("readme_shows_the_inspector", async () => {
  const ask = async (messages, backend, stream = false) => {
    const body = { stream, model: "claude-opus-5", max_tokens: 4000, thinking: { type: "adaptive", display: "summarized" }, messages };
    const headers = { "anthropic-version": "2023-06-01", ...(backend ? { "x-throughline-backend": backend } : {}) };
    const reply = await server.api("POST", "/v1/messages", body, headers);
    assert.equal(reply.status, 200, reply.text);
    return stream ? messages : [...messages, { role: "assistant", content: reply.json().content }];
  };
  let messages = await ask([{ role: "user", content: "Why one leg?" }]);
  messages = await ask([...messages, { role: "user", content: "And two?" }]);
  await ask([...messages, { role: "user", content: "And none?" }], "other", true);
  const { page, context } = await openPage(browser, server, SIZE);
  await page.goto(`${server.base}/inspector`);
  await page.getByTestId("turn").first().click();
  await page.getByText("cached prefix ends here").waitFor();
  await page.mouse.move(0, 0);
  await shot(page, "readme-inspector");
  await context.close();
});
