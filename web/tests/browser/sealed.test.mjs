// Users and sealed conversations. What must not leave the page is searched in all traffic and in the database.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { answered, openPage, say, shot, startBrowser, startServer } from "./harness.mjs";

const PASSPHRASE = "four herons stand in tall reeds";
const NEXT = "five storks walk over wet meadows";
const SECRET = "the code word is cormorant";

let server;
let browser;
let code;
before(async () => {
  server = await startServer({ tokensPerSecond: 100 });
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** Everything that a page sends: addresses, headers and bodies. */
function recorded(page) {
  const sent = [];
  page.on("request", (request) => sent.push([request.url(), JSON.stringify(request.headers()), request.postData() ?? ""].join("\n")));
  return sent;
}
function checkAbsent(sent, ...words) {
  const forms = words.flatMap((word) => [word, encodeURIComponent(word), Buffer.from(word).toString("base64"), Buffer.from(word).toString("base64url")]);
  for (const text of sent) for (const form of forms) assert.ok(!text.includes(form), `sent: ${form}`);
}
const cookies = async (context) => (await context.cookies()).map(({ name, value }) => `${name}=${value}`).join("; ");
async function logIn(page, name, passphrase) {
  await page.goto(`${server.base}/unlock`);
  await page.getByTestId("log-in").click();
  await page.getByTestId("user-name").fill(name);
  await page.getByTestId("passphrase").fill(passphrase);
  await page.getByTestId("submit").click();
  await page.getByTestId("composer").waitFor();
}
async function signUp(page, name, passphrase) {
  await page.goto(`${server.base}/unlock`);
  await page.getByTestId("sign-up").click();
  await page.getByTestId("user-name").fill(name);
  await page.getByTestId("passphrase").fill(passphrase);
  await page.getByTestId("submit").click();
  const shown = await page.getByTestId("recovery-code").textContent();
  await shot(page, "recovery-code", { mask: [page.getByTestId("recovery-code")] });
  await page.getByTestId("code-done").click();
  await page.getByTestId("composer").waitFor();
  return shown.trim();
}

let project;
test("sealed_conversation_round_trip", async () => {
  const { page, context, problems } = await openPage(browser, server);
  const sent = recorded(page);
  code = await signUp(page, "Ada", PASSPHRASE);
  assert.match(code, /^([0-9A-Z]{4}-){8}[0-9A-Z*~$=]$/);
  await page.getByTestId("new-sealed").click();
  await page.getByTestId("composer").fill(SECRET);
  await page.getByTestId("send").click();
  await page.getByTestId("server-sees").getByText("can read this conversation while the answer or the title is written").waitFor();
  await answered(page);
  await page.getByTestId("server-sees").getByText("cannot read it").waitFor();
  project = new URL(page.url()).pathname.split("/")[2];
  const kept = (await server.api("GET", `/api/projects/${project}`, undefined, { cookie: await cookies(context) })).json();
  assert.equal(kept.title, null);
  assert.ok(kept.encrypted_title, "the model's title is sealed");
  await page.waitForFunction((secret) => ![secret, "", "Sealed conversation"].includes(document.querySelector('[data-testid="title"]')?.textContent ?? ""), SECRET);
  await shot(page, "sealed");
  await page.reload();
  await page.getByText(SECRET, { exact: true }).first().waitFor();
  await page.locator(".thinking-header").click();
  assert.match(await page.locator(".thinking-content").textContent(), /cormorant/);
  checkAbsent(sent, PASSPHRASE, code);
  assert.deepEqual(problems, []);
  await page.getByTestId("lock").click();
  await page.getByText("This conversation is sealed.").waitFor();
  assert.ok(!(await page.content()).includes("cormorant"), "a locked page shows nothing");
  await page.reload();
  await page.getByTestId("unlock").click();
  await page.getByTestId("passphrase").fill("a wrong one");
  await page.getByTestId("submit").click();
  await page.getByTestId("error").waitFor();
  await page.getByTestId("passphrase").fill(PASSPHRASE);
  await page.getByTestId("submit").click();
  await page.getByText(SECRET, { exact: true }).first().waitFor();
  checkAbsent(sent, PASSPHRASE, code);
  await context.close();
});

test("copy_in_the_browser_is_sealed_too", async () => {
  const { page, context } = await openPage(browser, server);
  await logIn(page, "Ada", PASSPHRASE);
  await page.goto(`${server.base}/p/${project}`);
  await page.getByText(SECRET, { exact: true }).first().waitFor();
  const stored = await page.waitForFunction(
    (id) =>
      new Promise((resolve) => {
        const request = indexedDB.open("throughline", 1);
        request.onsuccess = () => {
          const get = request.result.transaction("conversations").objectStore("conversations").get(id);
          get.onsuccess = () => resolve(get.result ? JSON.stringify(get.result) : null);
        };
      }),
    project,
  );
  const text = await stored.jsonValue();
  assert.ok(text.includes("encrypted_thinking_content"));
  assert.ok(!text.includes("cormorant"), "plain text is stored");
  await context.close();
});

test("page_without_a_session_asks_for_a_log_in", async () => {
  const { page, context } = await openPage(browser, server);
  await page.goto(server.base);
  await page.getByTestId("user-name").waitFor();
  assert.equal(new URL(page.url()).pathname, "/unlock");
  await shot(page, "log-in");
  await context.close();
});

test("shared_conversation_is_read_by_another_user_until_removed", async () => {
  const [ada, bob] = [await openPage(browser, server), await openPage(browser, server)];
  await signUp(bob.page, "Bob", NEXT);
  await logIn(ada.page, "Ada", PASSPHRASE);
  await ada.page.goto(`${server.base}/p/${project}`);
  await ada.page.getByTestId("share").click();
  await ada.page.getByTestId("share-name").fill("bob");
  await ada.page.getByTestId("share-submit").click();
  await ada.page.getByTestId("members").getByText("Bob").waitFor();
  await shot(ada.page, "share");
  await bob.page.goto(`${server.base}/p/${project}`);
  await bob.page.getByText(SECRET, { exact: true }).first().waitFor();
  await say(bob.page, "Bob says hello");
  await ada.page.getByTestId("remove-member").click();
  await ada.page.getByText("the key was changed").waitFor();
  await bob.page.reload();
  await bob.page.getByText("There is nothing at this address.").waitFor();
  await ada.page.reload();
  await ada.page.getByText("Bob says hello", { exact: true }).waitFor();
  await ada.page.getByText(SECRET, { exact: true }).first().waitFor();
  await say(ada.page, "Under the new key");
  await ada.page.reload();
  await ada.page.getByText("Under the new key", { exact: true }).waitFor();
  await ada.context.close();
  await bob.context.close();
});

test("recovery_code_sets_a_new_passphrase", async () => {
  const { page, context } = await openPage(browser, server);
  const sent = recorded(page);
  await page.goto(`${server.base}/unlock`);
  await page.getByTestId("recover").click();
  await page.getByTestId("user-name").fill("ada");
  await page.getByTestId("recovery-code").fill(code.toLowerCase().replaceAll("-", " "));
  await page.getByTestId("passphrase").fill(NEXT);
  await page.getByTestId("submit").click();
  await page.getByTestId("composer").waitFor();
  await page.goto(`${server.base}/p/${project}`);
  await page.getByText(SECRET, { exact: true }).first().waitFor();
  checkAbsent(sent, NEXT, code);
  await page.goto(`${server.base}/unlock`);
  await page.locator("details summary").click();
  await page.getByTestId("present-passphrase").fill(NEXT);
  await page.getByTestId("new-passphrase").fill(`${NEXT} again`);
  await page.getByTestId("change-passphrase").click();
  await page.getByText("The passphrase was changed.").waitFor();
  await page.getByTestId("log-out").click();
  await page.getByTestId("user-name").waitFor();
  await logIn(page, "Ada", `${NEXT} again`);
  await context.close();
});
