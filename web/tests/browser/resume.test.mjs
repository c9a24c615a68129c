// Nothing is lost and nothing comes twice: reloads, lost networks, two tabs, no network at all.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { answered, makeConversation, openPage, say, shot, startBrowser, startServer } from "./harness.mjs";

const WORDS = Array.from({ length: 400 }, (_, at) => `w${at}.`).join(" ");
const scenario = `
[[step]]
when = { contains = "long one" }
say = [{ thinking = "${WORDS}" }, { text = "${WORDS}" }]
`;

let server;
let browser;
before(async () => {
  server = await startServer({ scenario, tokensPerSecond: 150 });
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

async function open(path = "/") {
  const opened = await openPage(browser, server);
  await opened.page.goto(server.base + path);
  return opened;
}

/** The whole answer, each word once and in order. */
async function checkWhole(page) {
  await answered(page);
  const message = page.locator('[data-role="assistant"]').last();
  if ((await message.locator(".thinking-header").getAttribute("aria-expanded")) === "false") await message.locator(".thinking-header").click();
  assert.equal((await message.locator(".thinking-content").textContent()).trim(), WORDS);
  assert.equal((await message.locator(".chat-message-text").textContent()).trim(), WORDS);
}

async function begin(page) {
  await page.getByTestId("composer").fill("the long one");
  await page.getByTestId("send").click();
  await page.locator(".thinking-section.streaming").waitFor();
  await page.locator(".thinking-header").click();
  await page.waitForFunction(() => document.querySelector(".thinking-content")?.textContent.includes("w40."));
}

test("reload_in_the_middle_of_an_answer_resumes_it", async () => {
  const { page, context } = await open();
  await begin(page);
  await page.reload();
  await page.locator(".thinking-section").waitFor();
  await page.getByTestId("stop").waitFor();
  await checkWhole(page);
  await context.close();
});

test("lost_network_in_the_middle_of_an_answer_loses_nothing", async () => {
  const { page, context } = await open();
  await begin(page);
  await context.setOffline(true);
  await page.getByTestId("connection-lost").waitFor();
  await context.setOffline(false);
  await checkWhole(page);
  assert.equal(await page.getByTestId("connection-lost").count(), 0);
  await context.close();
});

test("second_tab_follows_the_answer_of_the_first", async () => {
  const id = await makeConversation(server, ["Hello"]);
  const { page, context } = await open(`/p/${id}`);
  const other = await context.newPage();
  await other.goto(`${server.base}/p/${id}`);
  await other.getByTestId("regenerate").waitFor();
  await page.getByTestId("composer").fill("the long one");
  await page.getByTestId("send").click();
  await page.locator(".thinking-section.streaming").waitFor();
  await other.locator(".thinking-section.streaming").waitFor();
  await checkWhole(page);
  await other.bringToFront();
  await checkWhole(other);
  await context.close();
});

test("page_of_another_machine_follows_the_answer", async () => {
  const id = await makeConversation(server, ["Hello"]);
  const { page, context } = await open(`/p/${id}`);
  await page.getByTestId("regenerate").waitFor();
  const answer = server.api("POST", `/api/projects/${id}/chat`, { message: "the long one", thinking: "low" });
  await page.getByTestId("stop").waitFor();
  await answer;
  await checkWhole(page);
  await context.close();
});

/** Covers: S0-59 */
test("stored_conversation_is_read_without_the_network", async () => {
  const { page, context } = await open();
  await say(page, "Remember herons");
  await page.evaluate(() => navigator.serviceWorker.ready);
  // The worker has to have kept the page and all its files.
  await page.waitForFunction(async () => {
    const cache = await caches.open("throughline-page-1");
    const files = await (await fetch("/assets/files.json")).json();
    const kept = (await cache.keys()).map((request) => new URL(request.url).pathname);
    return kept.includes("/") && files.every((file) => kept.includes(file));
  });
  const { pathname } = new URL(page.url());
  await server.kill();
  await page.goto(server.base + pathname);
  await page.getByTestId("offline").waitFor();
  await page.getByTestId("from-store").waitFor();
  await page.locator(".thinking-header").click();
  assert.match(await page.locator(".thinking-content").textContent(), /Remember herons/);
  assert.ok(await page.getByTestId("composer").isDisabled());
  await shot(page, "offline");
  await server.restart();
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await page.getByTestId("offline").waitFor({ state: "detached" });
  await context.close();
});

test("answer_goes_on_after_a_restart_of_the_server_as_interrupted", async () => {
  const { page, context } = await open();
  await begin(page);
  await server.kill();
  await page.getByTestId("connection-lost").waitFor();
  await server.restart();
  await page.getByTestId("error-mark").waitFor();
  const text = (await page.locator(".thinking-content").textContent()).trim();
  assert.ok(WORDS.startsWith(text) && text.length > 100, text);
  await context.close();
});
