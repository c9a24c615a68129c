// Rooms: members, live thinking, approvals, errors, hooks, and a lost connection.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { BINARY, focusOn, openPage, shot, startBrowser, startServer } from "./harness.mjs";

const LONG = Array.from({ length: 40 }, (_, at) => `Step ${at} of the long thought.`).join(" ");
const scenario = `
[[step]]
when = { contains = "think for long" }
say = [{ thinking = "${LONG}" }, { text = "The long answer." }]

[[step]]
when = { contains = "ask each other" }
say = [{ text = "@tutor and @critic, please ask each other again." }]
`;

let server;
let browser;
before(async () => {
  const config = `
[[mcp]]
name = "calc"
command = ["${BINARY}", "simulate-mcp"]
approve = ["echo"]
[hooks]
allow_private = true
attempts = 1
`;
  server = await startServer({ scenario, tokensPerSecond: 40, config });
  browser = await startBrowser();
  for (const [id, tools] of [["tutor", []], ["critic", []], ["counter", ["calc"]]]) {
    const made = await server.api("POST", "/api/channels", { id, tools, thinkingBudget: 2048 });
    assert.equal(made.status, 201, made.text);
  }
});
after(async () => {
  await browser?.close();
  await server?.close();
});

async function makeRoom(title, ...members) {
  const room = (await server.api("POST", "/api/rooms", { title })).json();
  for (const channel of members) {
    const bound = await server.api("POST", `/api/rooms/${room.id}/channels`, { channel, category: "intelligence" });
    assert.equal(bound.status, 200, bound.text);
  }
  return room.id;
}

async function open(path, options) {
  const opened = await openPage(browser, server, options);
  await opened.page.addInitScript(() => localStorage.setItem("throughline.name", "ada"));
  await opened.page.goto(server.base + path);
  return opened;
}

async function say(page, text) {
  await page.getByTestId("composer").fill(text);
  await page.getByTestId("send").click();
}
const messages = (page, role) => page.locator(`[data-testid="message"][data-role="${role}"][data-node]`);

test("room_is_made_and_gets_a_new_member_that_answers", async () => {
  const { page, context, problems } = await open("/");
  await page.getByTestId("new-room").click();
  await page.waitForURL(/\/rooms\/room_/);
  await page.getByTestId("rename-room").click();
  await page.getByTestId("room-title").fill("Physics");
  await page.keyboard.press("Enter");
  await page.getByTestId("rooms").getByText("Physics").waitFor();
  await page.getByTestId("add-member").click();
  await page.getByTestId("member-id").fill("guide");
  const model = page.getByTestId("member-model");
  await model.selectOption("gemini/gemini-3-pro");
  await page.getByTestId("member-prompt").fill("Be brief.");
  await page.getByTestId("member-budget").fill("1024");
  await shot(page, "room-add-member");
  await page.getByTestId("member-add").click();
  const member = page.getByTestId("members").locator('[data-channel="guide"]');
  await member.waitFor();
  assert.match(await member.textContent(), /answers.*gemini \/ gemini-3-pro/s);
  const channel = (await server.api("GET", "/api/channels/guide")).json();
  assert.deepEqual([channel.provider, channel.model, channel.systemPrompt, channel.thinkingBudget], ["gemini", "gemini-3-pro", "Be brief.", 1024]);
  await say(page, "@guide, why is the sky blue?");
  await messages(page, "assistant").waitFor();
  assert.deepEqual(await page.getByTestId("author").allTextContents(), ["ada", "guide"]);
  await page.getByTestId("people").getByText("ada").waitFor();
  await page.getByTestId("remove-member").click();
  await member.waitFor({ state: "detached" });
  assert.deepEqual(problems, []);
  await context.close();
});

test("thinking_of_a_member_is_shown_while_it_happens", async () => {
  const id = await makeRoom("Live", "tutor");
  const { page, context, problems } = await open(`/rooms/${id}`);
  await page.evaluate(() => {
    globalThis.shift = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (!entry.hadRecentInput) globalThis.shift += entry.value;
    }).observe({ type: "layout-shift", buffered: false });
  });
  await say(page, "@tutor, think for long");
  await page.getByTestId("activity").getByText("tutor is thinking").waitFor();
  const section = page.locator(".thinking-section.streaming");
  await section.locator(".thinking-header").click();
  await page.locator(".thinking-content").getByText("Step 3").waitFor();
  await shot(page, "room-thinking");
  await messages(page, "assistant").waitFor();
  assert.equal(await page.getByTestId("activity").textContent(), "");
  assert.equal((await page.locator(".thinking-content").textContent()).trim(), LONG, "what a person opened stays open");
  assert.equal(await page.locator(".thinking-summary").textContent(), "Thought process");
  assert.ok((await page.evaluate(() => globalThis.shift)) < 0.05, "nothing jumps");
  assert.doesNotMatch(await page.content(), /signature/i);
  assert.deepEqual(problems, []);
  await context.close();
});

test("room_goes_on_after_a_lost_connection_without_loss_or_repetition", async () => {
  const id = await makeRoom("Lost", "tutor");
  const { page, context } = await open(`/rooms/${id}`);
  await say(page, "@tutor, think for long");
  await page.locator(".thinking-header").click();
  await page.locator(".thinking-content").getByText("Step 2").waitFor();
  await context.setOffline(true);
  await page.getByTestId("connection-lost").waitFor();
  await server.api("POST", `/api/rooms/${id}/messages`, { participant: "bob", content: "Said meanwhile" });
  await context.setOffline(false);
  await page.getByTestId("connection-lost").waitFor({ state: "detached" });
  await messages(page, "assistant").waitFor();
  assert.deepEqual(await page.getByTestId("author").allTextContents(), ["ada", "bob", "tutor"]);
  assert.equal((await page.locator(".thinking-content").textContent()).trim(), LONG);
  await page.reload();
  await messages(page, "assistant").waitFor();
  assert.deepEqual(await page.getByTestId("author").allTextContents(), ["ada", "bob", "tutor"]);
  await context.close();
});

test("two_tabs_and_a_phone_follow_an_answer_and_a_reload_resumes_it", async () => {
  const id = await makeRoom("Followed", "tutor");
  const { page, context } = await open(`/rooms/${id}`);
  const tab = await context.newPage();
  await tab.goto(`${server.base}/rooms/${id}`);
  const phone = await open(`/rooms/${id}`, { viewport: { width: 375, height: 700 }, hasTouch: true, isMobile: true });
  await say(page, "@tutor, think for long");
  const pages = [page, tab, phone.page];
  for (const one of pages) {
    await one.bringToFront();
    await one.locator(".thinking-section.streaming .thinking-header").click();
    await one.locator(".thinking-content").getByText("Step 2").waitFor();
  }
  await shot(phone.page, "phone-room-thinking");
  await page.bringToFront();
  await page.reload();
  await page.locator(".thinking-section.streaming .thinking-header").click();
  await page.locator(".thinking-content").getByText("Step 2").waitFor();
  for (const one of pages) {
    await one.bringToFront();
    await messages(one, "assistant").waitFor();
    assert.equal((await one.locator(".thinking-content").textContent()).trim(), LONG, "nothing is lost or repeated");
    assert.deepEqual(await one.getByTestId("author").allTextContents(), ["ada", "tutor"]);
    assert.match(await one.getByTestId("message").last().textContent(), /The long answer\./);
  }
  await context.close();
  await phone.context.close();
});

test("room_is_used_with_the_keyboard_alone", async () => {
  const id = await makeRoom("Keys", "counter");
  const { page, context } = await open(`/rooms/${id}`);
  await page.getByTestId("composer").waitFor();
  await focusOn(page, "composer");
  await page.keyboard.type("@counter Use the tool calc__echo");
  await page.keyboard.press("Enter");
  await page.getByTestId("approve").waitFor();
  await focusOn(page, "approve");
  await page.keyboard.press("Enter");
  await messages(page, "assistant").waitFor();
  await focusOn(page, "add-member");
  await page.keyboard.press("Enter");
  await page.getByTestId("member-id").waitFor();
  await page.keyboard.press("Escape");
  await page.getByTestId("member-id").waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => document.activeElement?.dataset.testid), "add-member", "the focus goes back");
  await context.close();
});

for (const [decision, expected] of [["approve", /hello|text|echo/i], ["deny", /denied|refused|not approved/i]]) {
  test(`tool_call_waits_until_a_person_decides_to_${decision}`, async () => {
    const id = await makeRoom(`Tools ${decision}`, "counter");
    const { page, context } = await open(`/rooms/${id}`);
    await say(page, "@counter Use the tool calc__echo");
    await page.getByTestId("approval").waitFor();
    await page.getByTestId("activity").getByText("counter waits for an approval").waitFor();
    assert.match(await page.getByTestId("approval").textContent(), /counter wants to use the tool .*echo/);
    if (decision === "approve") await shot(page, "room-approval");
    await page.reload();
    await page.getByTestId(decision).click();
    await messages(page, "assistant").waitFor();
    assert.equal(await page.getByTestId("approval").count(), 0);
    await page.getByTestId("tool-call").locator("summary").click();
    assert.match(await page.getByTestId("tool-call").locator("pre").last().textContent(), expected);
    await context.close();
  });
}

test("loop_guard_is_explained", async () => {
  const id = await makeRoom("Loop", "tutor", "critic");
  const { page, context } = await open(`/rooms/${id}`);
  await say(page, "@tutor, ask each other");
  const guard = page.locator('[data-testid="room-error"][data-kind="loop_guard"]').first();
  await guard.waitFor();
  assert.match(await guard.textContent(), /have answered each other too often/);
  await shot(page, "room-loop-guard");
  await context.close();
});

test("hooks_are_added_replayed_and_removed", async () => {
  const id = await makeRoom("Hooks", "tutor");
  const { page, context } = await open(`/rooms/${id}`);
  await page.getByTestId("add-hook").click();
  await page.getByTestId("hook-trigger").selectOption("after_response");
  assert.equal(await page.getByTestId("hook-blocking").count(), 0, "it cannot block");
  // Nothing listens at the simulator's unknown path, so the call fails.
  await page.getByTestId("hook-url").fill(`${server.simulatorUrl}/no-such-path`);
  await page.getByTestId("hook-secret").fill("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
  await page.getByTestId("hook-add").click();
  await page.getByTestId("hooks").getByText("after an answer").waitFor();
  assert.doesNotMatch(await page.content(), /whsec_/);
  await say(page, "@tutor, hello");
  await messages(page, "assistant").waitFor();
  await page.waitForFunction(async (path) => (await (await fetch(path)).json()).dead.length > 0, `/api/rooms/${id}/hooks/dead`);
  await page.reload();
  await page.getByTestId("dead-calls").getByText("1 attempt").waitFor();
  await shot(page, "room-hooks");
  const replayed = page.waitForResponse((response) => response.url().endsWith("/replay"));
  await page.getByTestId("replay").click();
  assert.equal((await replayed).status(), 202);
  await page.getByTestId("remove-hook").click();
  await page.getByTestId("remove-hook").waitFor({ state: "detached" });
  await context.close();
});

test("two_people_see_each_other", async () => {
  const id = await makeRoom("Two", "tutor");
  const first = await open(`/rooms/${id}`);
  const second = await open(`/rooms/${id}`);
  await second.page.getByTestId("participant").fill("");
  await say(second.page, "Hello ada");
  await second.page.getByText("Write your name first.").waitFor();
  await second.page.keyboard.type("bob");
  await second.page.getByTestId("send").click();
  await first.page.getByText("Hello ada").waitFor();
  await first.page.getByTestId("people").getByText("bob").waitFor();
  assert.deepEqual(await first.page.getByTestId("author").allTextContents(), ["bob"]);
  await first.context.close();
  await second.context.close();
});

test("deleted_room_leaves_its_conversation", async () => {
  const id = await makeRoom("Gone");
  const { page, context } = await open(`/rooms/${id}`);
  await page.getByTestId("delete-room").click();
  await page.getByTestId("delete-room-sure").click();
  await page.waitForURL(server.base + "/");
  await page.goto(`${server.base}/rooms/${id}`);
  await page.getByText("There is nothing at this address.").waitFor();
  await context.close();
});

test("cost_of_a_room_and_of_its_members_is_shown", async () => {
  const room = await makeRoom("Costs", "tutor", "critic");
  const { page, context, problems } = await open(`/rooms/${room}`);
  const total = page.getByTestId("room-cost");
  await total.getByText("$0").waitFor();
  await say(page, "@tutor What does this cost?");
  await messages(page, "assistant").first().waitFor();
  await total.getByText(/\$0\.0*[1-9]/).waitFor();
  const shown = await total.textContent();
  const { total: dollars, channels } = (await server.api("GET", `/api/rooms/${room}/cost`)).json();
  assert.ok(dollars > 0 && channels.tutor === dollars, JSON.stringify(channels));
  assert.ok(Math.abs(Number(shown.split("$")[1]) / dollars - 1) < 0.05, `${shown} is not ${dollars}`);
  assert.match(await page.locator('[data-channel="tutor"]').textContent(), /\$0\.0*[1-9]/);
  assert.match(await messages(page, "assistant").first().getByTestId("message-cost").textContent(), /^\$0\.0*[1-9]/);
  await shot(page, "room-cost");
  assert.deepEqual(problems, []);
  await context.close();
});
