// The chat and its thinking section.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { answered, makeConversation, openPage, say, shot, startBrowser, startServer } from "./harness.mjs";

const MARKDOWN = "I compare **two** readings.\\n\\n- the `first`\\n- the second\\n\\nDone.";
const CODE = "Use this:\\n\\n```js\\nconst legs = 1;\\n```\\n\\nand $a^2 + b^2 = c^2$, a </tag> too.";
const scenario = `
[[step]]
when = { contains = "markdown please" }
say = [{ thinking = "${MARKDOWN}" }, { text = "${CODE}" }]

[[step]]
when = { contains = "cut me" }
say = [{ thinking = "Half of a thought that goes on for a while and never reaches its end." }, { text = "Never sent." }]
fault = "cut:event=9"

[[step]]
when = { contains = "look it up" }
say = [{ thinking = "First I look." }, { tool = { name = "look", input = { where = "here" } } }]
`;

let server;
let browser;
before(async () => {
  server = await startServer({ scenario, tokensPerSecond: 40 });
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

async function open(path = "/", options) {
  const opened = await openPage(browser, server, options);
  await opened.page.goto(server.base + path);
  return opened;
}

/** Covers: S0-48, S0-49, S0-50, S0-51, S0-54, S0-55, S4-28 */
test("thinking_section_shows_its_state_while_it_streams", async () => {
  const { page, context, problems } = await open();
  await page.getByTestId("composer").fill("Why do herons stand on one leg?");
  await page.getByTestId("send").click();
  const section = page.locator(".thinking-section");
  const header = section.locator("button.thinking-header");
  await section.waitFor();
  assert.ok(await section.evaluate((element) => element.classList.contains("streaming")), "streaming border");
  assert.equal(await section.locator(".thinking-summary").textContent(), "Thinking...");
  assert.equal(await header.locator(".thinking-icon").getAttribute("data-icon"), "loader");
  const spins = await header.locator(".thinking-icon").evaluate((icon) => getComputedStyle(icon).animationName);
  assert.notEqual(spins, "none");
  assert.equal(await header.getAttribute("aria-expanded"), "false");
  assert.equal(await header.locator(".expand-icon").getAttribute("data-icon"), "chevron-down");
  const border = await section.evaluate((element) => getComputedStyle(element).borderColor);
  await answered(page);
  assert.equal(await section.locator(".thinking-summary").textContent(), "Thought process");
  assert.equal(await header.locator(".thinking-icon").getAttribute("data-icon"), "brain");
  assert.equal(await header.locator(".thinking-icon").evaluate((icon) => getComputedStyle(icon).animationName), "none");
  assert.ok(!(await section.evaluate((element) => element.classList.contains("streaming"))));
  assert.notEqual(await section.evaluate((element) => getComputedStyle(element).borderColor), border);
  assert.equal(await page.locator(".thinking-content").count(), 0, "it does not open by itself");
  const isAbove = await page.locator('[data-role="assistant"]').evaluate((message) => {
    const [thinking, text] = [message.querySelector(".thinking-section"), message.querySelector(".chat-message-text")];
    return Boolean(thinking.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING);
  });
  assert.ok(isAbove, "the thinking is above the answer");
  assert.match(await section.locator(".thinking-facts").textContent(), /\d+ tokens.*\d s/);
  assert.deepEqual(problems, []);
  await context.close();
});

/** Covers: S0-4, S0-47, S0-48, S0-52, S0-53, S0-56 */
test("thinking_section_of_a_stored_message_opens_to_markdown", async () => {
  const id = await makeConversation(server, ["markdown please"]);
  const { page, context } = await open(`/p/${id}`);
  const header = page.locator(".thinking-header");
  await header.waitFor();
  assert.equal(await header.getAttribute("aria-expanded"), "false");
  assert.equal(await page.locator(".thinking-content").count(), 0);
  await header.click();
  const body = page.locator(".thinking-content");
  await body.waitFor();
  assert.equal(await header.getAttribute("aria-expanded"), "true");
  assert.equal(await header.locator(".expand-icon").getAttribute("data-icon"), "chevron-up");
  assert.equal(await body.locator("strong").textContent(), "two");
  assert.equal(await body.locator("li").count(), 2);
  assert.match(await body.textContent(), /Done\./);
  assert.ok(await body.evaluate((element) => element.getAnimations().length > 0 || element.clientHeight > 0), "it slides");
  await page.waitForFunction(() => document.querySelector(".thinking-content").getAnimations().length === 0);
  await shot(page, "chat-thinking-open");
  await header.click();
  await body.waitFor({ state: "detached" });
  await context.close();
});

test("thinking_opens_by_itself_only_if_the_person_wants_it", async () => {
  const { page, context } = await open();
  await page.getByTestId("open-thinking").check();
  await page.getByTestId("composer").fill("Think aloud");
  await page.getByTestId("send").click();
  await page.locator(".thinking-section.streaming .thinking-content").waitFor();
  await shot(page, "chat-streaming");
  await answered(page);
  assert.equal(await page.locator(".thinking-content").count(), 1, "it stays open");
  await page.reload();
  await page.locator(".thinking-header").waitFor();
  assert.equal(await page.locator(".thinking-content").count(), 0, "stored messages are closed");
  await context.close();
});

/** Covers: S0-66, S0-67 */
for (const [model, what] of [["plain/gpt-4o", "plain model"], ["reasoner/o3", "model that hides its reasoning"]]) {
  test(`${what.replaceAll(" ", "_")}_shows_no_thinking`, async () => {
    const { page, context } = await open();
    const choice = page.getByTestId("model-choice");
    await choice.locator(`option[value="${model}"]`).waitFor({ state: "attached" });
    await choice.selectOption(model);
    await say(page, "A plain question");
    assert.equal(await page.locator(".thinking-section").count(), 0);
    assert.ok((await page.locator('[data-role="assistant"] .chat-message-text').textContent()).length > 10);
    if (model === "plain/gpt-4o") assert.equal(await page.getByTestId("thinking-choice").count(), 0);
    await context.close();
  });
}

/** Covers: S0-68 */
test("redacted_thinking_shows_its_notice", async () => {
  const notice = "[Some reasoning was hidden for safety reasons]";
  const { page, context } = await open();
  await say(page, "a redacted one");
  const section = page.locator(".thinking-section").first();
  await section.getByText(notice).waitFor();
  await section.locator(".thinking-header").click();
  await section.locator(".thinking-content").getByText(notice).waitFor();
  assert.equal(await page.getByText(notice).count(), 1);
  await context.close();
});

/** Covers: S0-69 */
test("failure_keeps_partial_thinking_and_shows_a_mark", async () => {
  const { page, context } = await open();
  await say(page, "cut me");
  const message = page.locator('[data-role="assistant"]');
  await message.getByTestId("error-mark").waitFor();
  await message.locator(".thinking-header").click();
  assert.match(await message.locator(".thinking-content").textContent(), /^\s*Half/);
  await shot(page, "chat-error");
  await page.reload();
  await page.getByTestId("error-mark").waitFor();
  await page.locator(".thinking-header").click();
  assert.match(await page.locator(".thinking-content").textContent(), /^\s*Half/);
  await context.close();
});

/** Covers: S4-10, S4-57, S4-58 */
test("signatures_never_reach_the_document", async () => {
  const look = { name: "look", description: "Looks", parameters: { type: "object", properties: { where: { type: "string" } } } };
  const id = await makeConversation(server, [
    { message: "a redacted one, think twice", thinking: "low" },
    { message: "look it up", thinking: "low", tools: [look] },
  ]);
  const nodes = (await server.api("GET", `/api/projects/${id}/nodes`)).json().nodes;
  const calls = nodes.flatMap((node) => node.contentBlocks).filter((block) => block.type === "tool_call");
  await server.api("POST", `/api/projects/${id}/chat`, { toolResults: [{ id: calls[0].id, content: "a heron" }], tools: [look] });
  const secrets = nodes.flatMap((node) => node.contentBlocks).flatMap((block) => [block.signature, block.data].filter(Boolean));
  assert.ok(secrets.length >= 3, "the conversation has signatures");
  const { page, context } = await open(`/p/${id}`);
  await page.getByTestId("tool-call").waitFor();
  for (const header of await page.locator(".thinking-header").all()) await header.click();
  await page.getByTestId("tool-call").locator("summary").click();
  assert.match(await page.getByTestId("tool-call").textContent(), /a heron/);
  const html = await page.content();
  for (const secret of secrets) assert.ok(!html.includes(secret), "a signature is in the document");
  const order = await page.locator('[data-role="assistant"]').nth(1).evaluate((message) =>
    [...message.querySelectorAll(".thinking-section, [data-testid=tool-call]")].map((part) => part.className.split(" ")[0]),
  );
  assert.deepEqual(order, ["thinking-section", "tool"]);
  await shot(page, "chat-tools");
  await context.close();
});

test("several_spans_stand_in_order_with_text_between", async () => {
  const { page, context } = await open();
  await say(page, "think twice");
  const order = await page.locator('[data-role="assistant"]').evaluate((message) =>
    [...message.querySelectorAll(".thinking-section, .chat-message-text")].map((part) => part.className.split(" ")[0]),
  );
  assert.deepEqual(order, ["thinking-section", "chat-message-text", "thinking-section", "chat-message-text"]);
  await context.close();
});

test("code_is_copied_and_coloured_maths_is_set_and_tags_stay_text", async () => {
  const id = await makeConversation(server, ["markdown please"]);
  const { page, context, problems } = await open(`/p/${id}`);
  await page.locator("pre code.coloured .hljs-keyword").waitFor();
  await page.getByTestId("copy-code").click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "const legs = 1;\n");
  await page.locator("math").waitFor();
  assert.match(await page.locator(".chat-message-text").last().textContent(), /a <\/tag> too/);
  assert.deepEqual(problems, []);
  await context.close();
});

test("image_attachment_reaches_the_model_and_is_shown_again", async () => {
  const { page, context } = await open();
  const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
  await page.getByTestId("image-input").setInputFiles({ name: "dot.png", mimeType: "image/png", buffer: png });
  await page.locator(".images img").waitFor();
  await say(page, "What is this?");
  const seen = (await (await fetch(`${server.simulatorUrl}/simulator/requests`)).json()).requests ?? [];
  const text = JSON.stringify(seen);
  assert.ok(text.includes("iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"), "the provider got the image");
  await page.reload();
  await page.locator('[data-role="user"] img.image').waitFor();
  await page.getByTestId("edit-message").click();
  await page.getByTestId("composer").fill("And now?");
  await page.getByTestId("send").click();
  await page.getByTestId("other-branches").waitFor();
  await answered(page);
  assert.equal(await page.locator('[data-role="user"] img.image').count(), 1, "an edit keeps the image");
  await context.close();
});

test("stop_ends_the_answer_and_keeps_its_beginning", async () => {
  const { page, context } = await open();
  await page.getByTestId("composer").fill("bench 2000");
  await page.getByTestId("send").click();
  await page.locator('[data-role="assistant"] .chat-message-text').waitFor();
  await page.getByTestId("stop").click();
  await answered(page);
  assert.match(await page.getByTestId("error-mark").textContent(), /Stopped/);
  assert.ok((await page.locator('[data-role="assistant"] .chat-message-text').textContent()).length > 0);
  await context.close();
});

/** Covers: S0-45 */
test("two_answers_at_once_stay_apart", async () => {
  const [one, two] = [await open(), await open()];
  for (const [{ page }, word] of [[one, "alpha"], [two, "beta"]]) {
    await page.getByTestId("open-thinking").check();
    await page.getByTestId("composer").fill(`Tell me about ${word}`);
    await page.getByTestId("send").click();
  }
  for (const [{ page, context }, word, other] of [[one, "alpha", "beta"], [two, "beta", "alpha"]]) {
    await answered(page);
    const text = await page.locator('[data-role="assistant"]').textContent();
    assert.ok(text.includes(word) && !text.includes(other), text);
    await context.close();
  }
});

/** Covers: S0-73 */
test("thinking_section_follows_the_theme", async () => {
  const id = await makeConversation(server, ["Hello"]);
  const { page, context } = await open(`/p/${id}`, { colorScheme: "light" });
  const section = page.locator(".thinking-section");
  await section.waitFor();
  const style = () => section.evaluate((element) => {
    const { backgroundColor, borderColor } = getComputedStyle(element);
    const { color, fontSize } = getComputedStyle(element.querySelector(".thinking-header"));
    return { backgroundColor, borderColor, color, fontSize };
  });
  const light = await style();
  await page.getByTestId("theme").click();
  await page.getByTestId("theme").click();
  const dark = await style();
  assert.notEqual(light.backgroundColor, dark.backgroundColor);
  assert.notEqual(light.borderColor, dark.borderColor);
  assert.notEqual(light.color, dark.color);
  assert.equal(light.fontSize, "13px");
  await section.locator(".thinking-header").hover();
  const hovered = await section.locator(".thinking-header").evaluate((header) => getComputedStyle(header).backgroundColor);
  assert.notEqual(hovered, "rgba(0, 0, 0, 0)");
  await page.reload();
  await section.waitFor();
  assert.equal((await style()).backgroundColor, dark.backgroundColor, "the choice is kept");
  await context.close();
});

test("title_is_made_by_the_model", async () => {
  const { page, context } = await open();
  await say(page, "Herons at rest");
  await page.waitForFunction(() => !["Herons at rest", "", null].includes(document.querySelector('[data-testid="title"]')?.textContent ?? null));
  const title = await page.getByTestId("title").textContent();
  const id = new URL(page.url()).pathname.split("/")[2];
  assert.equal((await server.api("GET", `/api/projects/${id}`)).json().title, title, "the server has it");
  await page.getByTestId("conversations").getByText(title).first().waitFor();
  assert.equal(await page.getByTestId("message").count(), 2, "the request for it is no message");
  await context.close();
});

test("answer_has_its_cost_and_none_without_a_price", async () => {
  for (const [provider, expected] of [["claude", 1], ["gemini", 0]]) {
    const project = await makeConversation(server, ["Tell me about herons."], { provider });
    const { page, context, problems } = await open(`/p/${project}`);
    await page.locator('[data-testid="message"][data-role="assistant"]').waitFor();
    const cost = page.getByTestId("message-cost");
    assert.equal(await cost.count(), expected, provider);
    if (expected) assert.match(await cost.textContent(), /^\$0\.0*[1-9]/);
    await shot(page, `chat-cost-${provider}`);
    assert.deepEqual(problems, []);
    await context.close();
  }
});
