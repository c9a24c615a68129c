// Branches: locks, edits, siblings, the graph, merges, and offers after a conflict.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { answered, makeConversation, openPage, say, shot, startBrowser, startServer } from "./harness.mjs";

let server;
let browser;
before(async () => {
  server = await startServer({ tokensPerSecond: 200 });
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
const texts = (page, role) => page.locator(`[data-role="${role}"] .chat-message-text`).allTextContents();

/** Covers: S4-35 */
test("branch_bar_shows_the_lock_read_only", async () => {
  const id = await makeConversation(server, ["One"]);
  const { page, context } = await open(`/p/${id}`);
  const lock = page.getByTestId("branch-bar").getByTestId("branch-lock");
  await lock.waitFor();
  assert.match(await lock.textContent(), /claude \/ claude-opus-5/);
  assert.equal(await lock.locator("input, select, button").count(), 0);
  await context.close();
});

test("edit_makes_a_branch_and_nothing_is_deleted", async () => {
  const id = await makeConversation(server, ["First question", "Second question"]);
  const { page, context } = await open(`/p/${id}`);
  await page.getByTestId("edit-message").nth(1).click();
  assert.equal(await page.getByTestId("composer").inputValue(), "Second question");
  await page.getByTestId("composer").fill("Another second question");
  await page.getByTestId("send").click();
  await page.getByTestId("sibling-previous").first().waitFor();
  await answered(page);
  assert.deepEqual(await texts(page, "user"), ["First question", "Another second question"]);
  const elsewhere = page.getByTestId("other-branches");
  assert.equal((await elsewhere.textContent()).trim(), "2 messages on other branches");
  await page.getByTestId("sibling-previous").click();
  await page.getByText("Second question", { exact: true }).waitFor();
  assert.equal((await page.getByTestId("sibling-count").first().textContent()).trim(), "1 of 2");
  await page.getByTestId("sibling-next").click();
  await page.getByText("Another second question", { exact: true }).waitFor();
  await shot(page, "branches");
  await context.close();
});

test("regenerate_makes_a_sibling_that_can_be_turned_back", async () => {
  const id = await makeConversation(server, ["A question"]);
  const { page, context } = await open(`/p/${id}`);
  await page.getByTestId("regenerate").click();
  await page.getByTestId("sibling-count").waitFor();
  await answered(page);
  assert.equal((await page.getByTestId("sibling-count").textContent()).trim(), "2 of 2");
  assert.equal((await page.getByTestId("other-branches").textContent()).trim(), "1 message on other branches");
  await page.getByTestId("sibling-previous").click();
  await page.getByText("An earlier version, on no branch").waitFor();
  assert.equal((await page.getByTestId("sibling-count").textContent()).trim(), "1 of 2");
  await say(page, "Go on from the earlier one");
  assert.deepEqual(await texts(page, "user"), ["A question", "Go on from the earlier one"]);
  const branches = (await server.api("GET", `/api/projects/${id}/branches`)).json().branches;
  assert.equal(branches.length, 2);
  await context.close();
});

test("new_branch_has_its_own_model", async () => {
  const id = await makeConversation(server, ["A question"]);
  const { page, context } = await open(`/p/${id}`);
  await page.getByTestId("new-branch").click();
  await page.getByTestId("branch-name").fill("With Gemini");
  await page.getByTestId("model-choice").selectOption("gemini/gemini-3-pro");
  await shot(page, "new-branch");
  await page.getByTestId("submit").click();
  await page.getByText("gemini / gemini-3-pro").waitFor();
  await say(page, "And now?");
  const nodes = (await server.api("GET", `/api/projects/${id}/nodes?branch=with-gemini`)).json().nodes;
  assert.equal(nodes.at(-1).modelUsed, "gemini-3-pro");
  await context.close();
});

test("another_model_becomes_an_offer_to_branch", async () => {
  const id = await makeConversation(server, ["A question"]);
  const { page, context } = await open(`/p/${id}`);
  await page.getByTestId("branch-lock").waitFor();
  await page.getByTestId("model-choice").selectOption("openai/gpt-5.2");
  await page.getByTestId("composer").fill("Ask the other one");
  await page.getByTestId("send").click();
  const offer = page.getByTestId("branch-offer");
  await offer.waitFor();
  assert.match(await offer.textContent(), /locked to claude \/ claude-opus-5/);
  await shot(page, "branch-offer");
  await offer.click();
  await page.getByText("openai / gpt-5.2").waitFor();
  await answered(page);
  assert.deepEqual(await texts(page, "user"), ["A question", "Ask the other one"]);
  await context.close();
});

test("stale_head_becomes_an_offer_to_branch", async () => {
  const id = await makeConversation(server, ["A question"]);
  const { page, context } = await open(`/p/${id}`);
  await page.getByTestId("regenerate").waitFor();
  // The page would notice the other writer by itself; here it is kept from asking.
  await page.route(`**/api/projects/${id}`, (route) => route.abort());
  await server.api("POST", `/api/projects/${id}/chat`, { message: "From elsewhere" });
  await page.getByTestId("composer").fill("From here");
  await page.getByTestId("send").click();
  await page.getByTestId("branch-offer").waitFor();
  await page.unroute(`**/api/projects/${id}`);
  await page.getByTestId("branch-offer-accept").click();
  await page.getByTestId("branch-offer").waitFor({ state: "detached" });
  await answered(page);
  await page.getByTestId("other-branches").waitFor();
  assert.deepEqual(await texts(page, "user"), ["A question", "From here"]);
  await context.close();
});

test("graph_is_used_with_the_keyboard", async () => {
  const id = await makeConversation(server, ["First", "Second"]);
  const question = (await server.api("GET", `/api/projects/${id}/nodes`)).json().nodes[2].id;
  await server.api("POST", `/api/projects/${id}/edit`, { nodeId: question, message: "Other second", branch: "other" });
  const { page, context } = await open(`/p/${id}`);
  await page.getByTestId("branch-graph").click();
  const graph = page.getByTestId("graph");
  await graph.waitFor();
  const width = await graph.evaluate((svg) => svg.getBoundingClientRect().width);
  const tip = graph.locator('[aria-current="true"]');
  await tip.focus();
  await page.keyboard.press("+");
  assert.ok((await graph.evaluate((svg) => svg.getBoundingClientRect().width)) > width, "it is larger");
  await shot(page, "branch-graph");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await graph.waitFor({ state: "detached" });
  await page.getByText("Other second", { exact: true }).waitFor();
  await context.close();
});

test("merge_adds_the_result_of_another_branch", async () => {
  const id = await makeConversation(server, ["First", "Second"]);
  const question = (await server.api("GET", `/api/projects/${id}/nodes`)).json().nodes[2].id;
  await server.api("POST", `/api/projects/${id}/edit`, { nodeId: question, message: "Other second", branch: "other" });
  const { page, context } = await open(`/p/${id}`);
  await page.getByTestId("merge").click();
  await page.getByTestId("merge-summary").fill("Both ways end at the same place.");
  await page.getByTestId("merge-submit").click();
  await page.getByText("Both ways end at the same place.").waitFor();
  await page.getByText("Merged from another branch").waitFor();
  await context.close();
});

test("search_finds_titles_and_messages", async () => {
  await makeConversation(server, ["Something about cormorants"], { title: "Birds of the coast" });
  const { page, context } = await open("/");
  await page.getByTestId("conversations").getByText("Birds of the coast").waitFor();
  for (const query of ["COAST", "cormorants"]) {
    await page.getByTestId("search").fill(query);
    await page.waitForFunction(() => document.querySelectorAll('[data-testid="conversations"] li').length === 1);
    assert.match(await page.getByTestId("conversations").textContent(), /Birds of the coast/);
  }
  await page.getByTestId("search").fill("nothing has this");
  await page.getByText("Nothing found.").waitFor();
  await context.close();
});
