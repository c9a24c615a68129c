// Markdown to safe HTML. Maths and code become elements that `enhance` completes when their libraries have loaded.

import DOMPurify from "dompurify";
import { Marked, type TokenizerAndRendererExtension } from "marked";

const escape = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

/** `$$...$$` and `\[...\]` as a block, `$...$` and `\(...\)` in a line. */
const blockMaths: TokenizerAndRendererExtension = {
  name: "blockMaths",
  level: "block",
  start: (source) => source.match(/\$\$|\\\[/)?.index,
  tokenizer(source) {
    const found = /^(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])\s*(?:\n|$)/.exec(source);
    if (!found) return undefined;
    return { type: "blockMaths", raw: found[0], text: (found[1] ?? found[2] ?? "").trim() };
  },
  renderer: (token) => `<div class="maths" data-maths="block">${escape(String(token.text))}</div>\n`,
};

const inlineMaths: TokenizerAndRendererExtension = {
  name: "inlineMaths",
  level: "inline",
  start: (source) => source.match(/\$|\\\(/)?.index,
  tokenizer(source) {
    // A dollar sign with a digit after it is more often money than maths, unless it closes without a space.
    const found = /^(?:\$(?![\s$])((?:\\.|[^\\$\n])+?)(?<!\s)\$(?!\d)|\\\((.+?)\\\))/.exec(source);
    if (!found) return undefined;
    return { type: "inlineMaths", raw: found[0], text: found[1] ?? found[2] ?? "" };
  },
  renderer: (token) => `<span class="maths" data-maths="inline">${escape(String(token.text))}</span>`,
};

const marked = new Marked({
  gfm: true,
  breaks: false,
  async: false,
  extensions: [blockMaths, inlineMaths],
  // Tags in a model's text are text. As HTML they would vanish.
  renderer: { html: ({ text }) => escape(text) },
});

const ALLOWED = {
  USE_PROFILES: { html: true },
  FORBID_TAGS: ["style", "form", "input", "button", "textarea", "select", "iframe", "video", "audio", "object", "embed"],
  FORBID_ATTR: ["style", "id", "name"],
};

let isReady = false;

/** Links open in a new tab and send no referrer. Images of other servers become links: nothing phones home. */
function prepare(): void {
  if (isReady) return;
  isReady = true;
  DOMPurify.addHook("afterSanitizeAttributes", (element) => {
    if (element.tagName === "A" && element.hasAttribute("href")) {
      element.setAttribute("target", "_blank");
      element.setAttribute("rel", "noopener noreferrer nofollow");
    }
    if (element.tagName === "IMG" && !element.getAttribute("src")?.startsWith("data:image/")) {
      const link = document.createElement("a");
      link.href = element.getAttribute("src") ?? "";
      link.textContent = element.getAttribute("alt") || link.href;
      link.target = "_blank";
      link.rel = "noopener noreferrer nofollow";
      element.replaceWith(link);
    }
  });
}

export function renderMarkdown(source: string): string {
  prepare();
  return DOMPurify.sanitize(marked.parse(source) as string, ALLOWED);
}

/** Adds copy buttons, and colours and formulas if the block is complete. The libraries are loaded when needed. */
export async function enhance(root: HTMLElement, complete: boolean, words: { copy: string; copied: string }): Promise<void> {
  for (const code of root.querySelectorAll<HTMLElement>("pre > code")) addCopyButton(code, words);
  // Wide tables and code scroll within themselves, so they need the keyboard.
  for (const wide of root.querySelectorAll<HTMLElement>("pre, table")) wide.tabIndex = 0;
  if (!complete) return;
  const maths = root.querySelectorAll<HTMLElement>(".maths:not(.done)");
  if (maths.length > 0) {
    const { default: katex } = await import("katex");
    for (const element of maths) {
      const display = element.dataset.maths === "block";
      const settings = { displayMode: display, throwOnError: false, output: "mathml" as const };
      katex.render(element.textContent ?? "", element, settings);
      element.classList.add("done");
    }
  }
  const codes = root.querySelectorAll<HTMLElement>('pre > code[class*="language-"]:not(.coloured)');
  if (codes.length > 0) {
    const { highlight } = await import("./highlight");
    for (const code of codes) {
      const language = /language-([\w+#-]+)/.exec(code.className)?.[1] ?? "";
      const html = highlight(code.textContent ?? "", language);
      if (html !== null) code.innerHTML = html;
      code.classList.add("coloured");
    }
  }
}

function addCopyButton(code: HTMLElement, words: { copy: string; copied: string }): void {
  const pre = code.parentElement;
  if (!pre || pre.parentElement?.classList.contains("code")) return;
  const frame = document.createElement("div");
  frame.className = "code";
  pre.replaceWith(frame);
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button small quiet copy-code";
  button.dataset.testid = "copy-code";
  button.textContent = words.copy;
  button.addEventListener("click", () => {
    void navigator.clipboard.writeText(code.textContent ?? "").then(() => {
      button.textContent = words.copied;
      setTimeout(() => (button.textContent = words.copy), 1600);
    });
  });
  frame.append(button, pre);
}
