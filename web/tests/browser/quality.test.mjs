// What holds for every view: accessibility in both themes, phones, the keyboard alone, speed, headers.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";

import { answered, focusOn, makeConversation, openPage, shot, startBrowser, startServer } from "./harness.mjs";

const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const THOUGHT = Array.from({ length: 900 }, (_, at) => `Step ${at}: the heron lifts one leg and **keeps** the other one in the cold water, as it did before.`).join("\\n\\n");
// One paragraph without any line break, which a page that renders whole paragraphs again would choke on.
const PARAGRAPH = THOUGHT.replaceAll("\\n\\n", " ");
const scenario = `
[[step]]
when = { contains = "a very long thought" }
say = [{ thinking = "${THOUGHT}" }, { text = "Done thinking." }]
[[step]]
when = { contains = "a single paragraph" }
say = [{ thinking = "${PARAGRAPH}" }, { text = "Done thinking." }]
`;

let server;
let browser;
let project;
let room;
before(async () => {
  server = await startServer({ scenario, tokensPerSecond: 0, config: "[debug_log]\nenabled = true\nfull_body = true\n" });
  browser = await startBrowser();
  project = await makeConversation(server, ["Why one leg? a redacted one", "And two? think twice"], { title: "Herons" });
  const question = (await server.api("GET", `/api/projects/${project}/nodes`)).json().nodes[2].id;
  await server.api("POST", `/api/projects/${project}/edit`, { nodeId: question, message: "And three?", branch: "three" });
  await server.api("POST", "/api/channels", { id: "tutor", thinkingBudget: 2048 });
  room = (await server.api("POST", "/api/rooms", { title: "Herons, talked over" })).json().id;
  await server.api("POST", `/api/rooms/${room}/channels`, { channel: "tutor", category: "intelligence" });
  await server.api("POST", `/api/rooms/${room}/hooks`, { trigger: "before_message", url: "https://example.com/hook", secret: "a secret", blocking: true });
  await server.api("POST", `/api/rooms/${room}/messages`, { participant: "ada", content: "@tutor, why one leg?" });
});
after(async () => {
  await browser?.close();
  await server?.close();
});

const VIEWS = {
  start: { path: () => "/", ready: (page) => page.getByTestId("conversations").locator("li").first().waitFor() },
  chat: {
    path: () => `/p/${project}`,
    ready: async (page) => {
      await page.getByTestId("regenerate").waitFor();
      for (const header of await page.locator(".thinking-header").all()) await header.click();
    },
  },
  graph: {
    path: () => `/p/${project}`,
    ready: async (page) => {
      await page.getByTestId("other-branches").click();
      await page.getByTestId("graph").waitFor();
    },
  },
  "inspector-list": { path: () => "/inspector", ready: (page) => page.getByTestId("turn").first().waitFor() },
  "inspector-detail": {
    path: () => "/inspector",
    ready: async (page) => {
      const { turns } = (await server.api("GET", "/admin/turns?limit=100&bodies=false")).json();
      const grown = turns.find((turn, at) => turn.client_dialect === "conversation" && turns.slice(at + 1).some((other) => other.lineage === turn.lineage));
      await page.locator(`[data-turn="${grown.id}"]`).click();
      await page.getByText("cached prefix ends here").waitFor();
      await page.getByTestId("turn-plan").click();
      await page.getByTestId("plan-result").waitFor();
    },
  },
  "inspector-backends": { path: () => "/inspector", ready: (page) => page.getByTestId("tab-backends").click() },
  "inspector-numbers": { path: () => "/inspector", ready: (page) => page.getByTestId("tab-numbers").click() },
  "inspector-memory": { path: () => "/inspector", ready: (page) => page.getByTestId("tab-memory").click() },
  "inspector-try": {
    path: () => "/inspector",
    ready: async (page) => {
      await page.getByTestId("tab-tryIt").click();
      await page.getByTestId("try-send").click();
      await page.getByTestId("try-events").waitFor();
    },
  },
  room: {
    path: () => `/rooms/${room}`,
    ready: async (page) => {
      await page.getByTestId("message").nth(1).locator(".thinking-header").click();
      await page.getByTestId("hooks").locator("li").waitFor({ state: "attached" });
    },
  },
  "room-details": {
    path: () => `/rooms/${room}`,
    ready: async (page) => {
      const toggle = page.getByTestId("room-details");
      if (await toggle.isVisible()) await toggle.click();
      await page.getByTestId("add-member").click();
      await page.getByTestId("member-id").waitFor();
    },
  },
  unlock: { path: () => "/unlock", ready: (page) => page.getByTestId("user-name").waitFor() },
};

for (const colorScheme of ["light", "dark"]) {
  for (const [name, view] of Object.entries(VIEWS)) {
    test(`${name}_is_accessible_in_${colorScheme}`, async () => {
      const { page, context, problems } = await openPage(browser, server, { colorScheme, reducedMotion: "reduce" });
      await page.goto(server.base + view.path());
      await view.ready(page);
      await page.waitForFunction(() => document.getAnimations().every((animation) => animation.playState !== "running"));
      await page.evaluate(AXE);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
      const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`);
      assert.deepEqual(found, []);
      assert.deepEqual(problems, []);
      await shot(page, `${name}-${colorScheme}`);
      await context.close();
    });
  }
}

for (const [name, view] of Object.entries(VIEWS)) {
  test(`${name}_fits_a_phone`, async () => {
    const { page, context } = await openPage(browser, server, { viewport: { width: 375, height: 700 }, hasTouch: true, isMobile: true });
    await page.goto(server.base + view.path());
    if (name === "start") await page.getByTestId("menu").click();
    await view.ready(page);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 375, `the page is ${width} wide`);
    await shot(page, `phone-${name}`);
    await context.close();
  });
}

test("chat_is_used_with_the_keyboard_alone", async () => {
  const { page, context } = await openPage(browser, server);
  await page.goto(server.base);
  await page.getByTestId("composer").waitFor();
  await focusOn(page, "composer");
  await page.keyboard.type("Typed by hand");
  await page.keyboard.press("Enter");
  await answered(page);
  await page.keyboard.press("Control+Home");
  await page.evaluate(() => document.activeElement?.blur());
  await focusOn(page, "edit-message");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("Typed again");
  await page.keyboard.press("Enter");
  await page.getByTestId("other-branches").waitFor();
  await answered(page);
  await page.evaluate(() => document.querySelector("main").focus());
  await focusOn(page, "thinking-header");
  await page.keyboard.press("Enter");
  await page.locator(".thinking-content").waitFor();
  await context.close();
});

test("inspector_is_used_with_the_keyboard_alone", async () => {
  const { page, context } = await openPage(browser, server);
  await page.goto(`${server.base}/inspector`);
  await page.getByTestId("turn").nth(2).waitFor();
  await focusOn(page, "turn-filter");
  await page.keyboard.type("conversation");
  await focusOn(page, "turn");
  await page.keyboard.press("Enter");
  await page.getByTestId("turn-detail").waitFor();
  const [first] = [new URL(page.url()).search];
  await page.keyboard.press("ArrowDown");
  await page.waitForFunction((before) => location.search !== before, first);
  await focusOn(page, "turn-plan");
  await page.keyboard.press("Enter");
  await page.getByTestId("plan-result").waitFor();
  await page.evaluate(() => document.activeElement?.blur());
  await focusOn(page, "tab-turns");
  await page.keyboard.press("ArrowRight");
  await page.getByTestId("backends").waitFor();
  await focusOn(page, "switch-other");
  await page.keyboard.press("Enter");
  await page.getByTestId("switch-claude").waitFor();
  await focusOn(page, "switch-claude");
  await page.keyboard.press("Enter");
  await page.getByTestId("switch-other").waitFor();
  await context.close();
});

/**
 * Records how long tasks of the page's main thread take, in processor time: on a busy machine, the time that
 * other programs take in between says nothing about the page.
 */
async function recordTasks(page) {
  const session = await page.context().newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  await session.send("Tracing.start", { transferMode: "ReportEvents", categories: "toplevel,__metadata" });
  return {
    end: async () => {
      const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
      await session.send("Tracing.end");
      await complete;
      const mains = new Set(events.filter((event) => event.name === "thread_name" && event.args.name === "CrRendererMain").map((event) => `${event.pid} ${event.tid}`));
      const tasks = events.filter((event) => event.ph === "X" && /RunTask/.test(event.name) && mains.has(`${event.pid} ${event.tid}`));
      assert.ok(tasks.length > 100, `only ${tasks.length} tasks were recorded`);
      const times = tasks.map((task) => (task.tdur ?? 0) / 1000);
      return { longest: Math.max(...times), all: times.reduce((sum, time) => sum + time, 0) };
    },
  };
}

/**
 * A sixtieth of a second has 16.7 ms; the rest is for painting. A busy machine draws fewer frames, but the main thread
 * needs no more processor time for it.
 */
const MAX_FRAME_MS = 10;

for (const thought of ["a very long thought", "a single paragraph"]) {
  test(`${thought.replaceAll(" ", "_")}_of_100_kb_streams_at_60_frames_without_long_tasks`, async () => {
    const slow = await startServer({ scenario, tokensPerSecond: 2500 });
    try {
      const { page, context } = await openPage(browser, slow);
      await page.goto(slow.base);
      await page.getByTestId("open-thinking").check();
      await page.evaluate(() => {
        globalThis.frames = [];
        globalThis.shifts = [];
        new PerformanceObserver((list) => {
          for (const { value, sources } of list.getEntries()) {
            const moved = sources.map(({ node, previousRect: from, currentRect: to }) => `${node?.className ?? node?.nodeName} ${from.x},${from.y} > ${to.x},${to.y}`);
            globalThis.shifts.push({ value, moved: moved.join("; ") });
          }
        }).observe({ type: "layout-shift" });
      });
      await page.getByTestId("composer").fill(thought);
      await page.getByTestId("send").click();
      await page.locator(".thinking-content").waitFor();
      await page.waitForFunction(() => document.getAnimations().every((animation) => animation.effect.getTiming().iterations === Infinity || animation.playState !== "running"));
      await page.evaluate(() => {
        globalThis.shifts = [];
        const step = (time) => {
          if (!document.querySelector(".thinking-section.streaming")) return;
          globalThis.frames.push(time);
          requestAnimationFrame(step);
        };
        requestAnimationFrame(step);
      });
      const tasks = await recordTasks(page);
      await page.waitForFunction(() => !document.querySelector(".thinking-section.streaming"), null, { timeout: 90_000 });
      const { longest, all } = await tasks.end();
      const { frames, seconds, shifts, characters, nodes } = await page.evaluate(() => ({
        shifts: globalThis.shifts,
        frames: globalThis.frames.length,
        seconds: (globalThis.frames.at(-1) - globalThis.frames[0]) / 1000,
        characters: document.querySelector(".thinking-content").textContent.length,
        nodes: document.querySelectorAll("*").length,
      }));
      const perFrame = all / Math.max(frames, seconds * 60);
      console.log(
        `${thought}: ${(frames / seconds).toFixed(1)} frames per second, ${perFrame.toFixed(1)} ms of processor time per frame, ` +
          `longest task ${longest.toFixed(1)} ms, layout shift ${shifts.reduce((sum, one) => sum + one.value, 0).toFixed(6)}, ${characters} characters, ${nodes} elements`,
      );
      assert.ok(characters > 80_000, `${characters} characters`);
      assert.ok(longest < 50, `a task took ${longest} ms`);
      assert.ok(perFrame < MAX_FRAME_MS, `a frame took ${perFrame} ms`);
      // Digits that change in the header count as a millionth.
      const shift = shifts.reduce((sum, one) => sum + one.value, 0);
      assert.ok(shift < 0.0001, `something jumps: ${JSON.stringify(shifts)}`);
      assert.ok(nodes < 4000, `${nodes} elements`);
      await context.close();
    } finally {
      await slow.close();
    }
  });
}

test("stored_thinking_of_100_kb_opens_whole", async () => {
  const id = await makeConversation(server, ["a very long thought"]);
  const { page, context } = await openPage(browser, server);
  await page.goto(`${server.base}/p/${id}`);
  const header = page.locator(".thinking-header");
  await header.click();
  await page.waitForFunction(() => document.querySelector(".thinking-content")?.textContent.includes("Step 899:"));
  const length = await page.locator(".thinking-content").evaluate((body) => body.textContent.length);
  assert.ok(length > 80_000, `${length} characters`);
  await context.close();
});

test("api_types_are_current", async () => {
  const script = new URL("../../scripts/types.mjs", import.meta.url).pathname;
  const child = spawn(process.execPath, [script, "--check", `${server.base}/api/openapi.json`], { stdio: "inherit" });
  const code = await new Promise((resolve) => child.once("exit", resolve));
  assert.equal(code, 0, "run `npm run types`");
});

test("page_is_served_with_tags_and_a_strict_policy", async () => {
  const html = { accept: "text/html" };
  for (const path of ["/", "/p/project_1", "/rooms/1", "/inspector", "/unlock"]) {
    const reply = await server.api("GET", path, undefined, html);
    assert.equal(reply.status, 200, path);
    assert.match(reply.headers.get("content-type"), /text\/html/);
    const policy = reply.headers.get("content-security-policy");
    assert.match(policy, /default-src 'none'/);
    assert.doesNotMatch(policy, /unsafe-inline|https?:/);
    assert.doesNotMatch(reply.text, /<script>|<style|style=|https?:\/\//);
    const again = await server.api("GET", path, undefined, { ...html, "if-none-match": reply.headers.get("etag") });
    assert.equal(again.status, 304, path);
  }
  const [, script] = /src="(\/assets\/[^"]+\.js)"/.exec((await server.api("GET", "/", undefined, html)).text);
  const reply = await server.api("GET", script);
  assert.match(reply.headers.get("cache-control"), /immutable/);
  assert.equal(reply.headers.get("content-encoding"), "gzip");
  assert.match((await server.api("GET", "/")).text, /^Throughline is running/, "clients that probe get text");
  assert.equal((await server.api("GET", "/assets/none.js", undefined, html)).status, 404);
});
