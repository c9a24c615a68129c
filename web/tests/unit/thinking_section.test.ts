import { flushSync, mount, unmount } from "svelte";
import { afterEach, beforeAll, describe, expect, test } from "vitest";

import ThinkingSection from "../../src/components/ThinkingSection.svelte";

interface Inputs {
  content?: string;
  streaming?: boolean;
  expanded?: boolean;
  redacted?: boolean;
  elapsed?: number;
  tokens?: number;
}

let shown: ReturnType<typeof mount> | null = null;

beforeAll(() => {
  // jsdom has no animations; a transition ends at once.
  Element.prototype.animate = () => ({ cancel() {}, finished: Promise.resolve(), currentTime: 0, startTime: 0 }) as unknown as Animation;
});

afterEach(() => {
  if (shown) void unmount(shown);
  shown = null;
  document.body.replaceChildren();
});

function show(inputs: Inputs): HTMLElement {
  shown = mount(ThinkingSection, { target: document.body, props: inputs });
  flushSync();
  return document.querySelector(".thinking-section") as HTMLElement;
}
const header = (section: HTMLElement) => section.querySelector("button.thinking-header") as HTMLButtonElement;
const summary = (section: HTMLElement) => section.querySelector(".thinking-summary")?.textContent;
const icon = (section: HTMLElement, kind: string) => section.querySelector(`.${kind}`)?.getAttribute("data-icon");
const body = (section: HTMLElement) => section.querySelector(".thinking-content");

describe("ThinkingSection", () => {
  /** Covers: S0-47, S0-49, S0-50, S0-54 */
  test("while streaming it says so, with a loader and another border", () => {
    const section = show({ content: "One", streaming: true });
    expect(summary(section)).toBe("Thinking...");
    expect(icon(section, "thinking-icon")).toBe("loader");
    expect(section.classList.contains("streaming")).toBe(true);
  });

  test("afterwards it has the brain and no streaming class", () => {
    const section = show({ content: "One" });
    expect(summary(section)).toBe("Thought process");
    expect(icon(section, "thinking-icon")).toBe("brain");
    expect(section.classList.contains("streaming")).toBe(false);
  });

  test("it begins closed, and the header opens it", () => {
    const section = show({ content: "**Bold** words" });
    expect(header(section).getAttribute("aria-expanded")).toBe("false");
    expect(icon(section, "expand-icon")).toBe("chevron-down");
    expect(body(section)).toBeNull();
    header(section).click();
    flushSync();
    expect(header(section).getAttribute("aria-expanded")).toBe("true");
    expect(icon(section, "expand-icon")).toBe("chevron-up");
    expect(body(section)?.querySelector("strong")?.textContent).toBe("Bold");
    expect(body(section)?.id).toBe(header(section).getAttribute("aria-controls"));
  });

  test("it begins open if `expanded` is set", () => {
    expect(body(show({ content: "One", expanded: true }))?.textContent).toContain("One");
  });

  /** Covers: S0-53 */
  test("without content there is no body, open or not", () => {
    expect(body(show({ expanded: true }))).toBeNull();
    expect(body(show({ expanded: true, streaming: true }))).toBeNull();
  });

  test("hidden reasoning is named once, closed and open", () => {
    const notice = "[Some reasoning was hidden for safety reasons]";
    const section = show({ redacted: true });
    expect(section.textContent?.split(notice)).toHaveLength(2);
    header(section).click();
    flushSync();
    expect(body(section)?.textContent).toContain(notice);
    expect(section.textContent?.split(notice)).toHaveLength(2);
  });

  test("time and tokens are in the header, apart from the summary", () => {
    const section = show({ content: "One", elapsed: 12_345, tokens: 1234 });
    expect(section.querySelector(".thinking-facts")?.textContent).toMatch(/1,234 tokens.*12 s/);
    expect(summary(section)).toBe("Thought process");
  });

  test("scripts and handlers in thinking never become elements", () => {
    const section = show({ content: "<img src=x onerror=alert(1)><script>alert(1)</script> [a](javascript:alert(1))", expanded: true });
    expect(body(section)?.querySelector("img, script, [onerror]")).toBeNull();
    expect(body(section)?.querySelector("a[href^='javascript']")).toBeNull();
    expect(body(section)?.textContent).toContain("<script>alert(1)</script>");
  });
});
