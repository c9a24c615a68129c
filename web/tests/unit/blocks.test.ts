import { expect, test } from "vitest";

import { BlockGroups, BlockReader, type MarkdownBlock } from "../../src/lib/blocks";

const TEXT = `# Title

A paragraph
of two lines.

- one

- two

  still two

After.

\`\`\`js
a();

b();
\`\`\`

$$
x

y
$$

End.`;

const BLOCKS = [
  "# Title\n\n",
  "A paragraph\nof two lines.\n\n",
  "- one\n\n- two\n\n  still two\n\n",
  "After.\n\n",
  "```js\na();\n\nb();\n```\n\n",
  "$$\nx\n\ny\n$$\n\n",
  "End.",
];

test("a text is cut at blank lines, but not within lists, code and maths", () => {
  expect(new BlockReader().read(TEXT).map((block) => block.source)).toEqual(BLOCKS);
});

test.each([1, 2, 7])("a text that grows by %i characters has the same blocks at its end", (size) => {
  const reader = new BlockReader();
  const closed = new Map<number, string>();
  for (let end = size; end < TEXT.length + size; end += size) {
    for (const block of reader.read(TEXT.slice(0, end))) {
      // A closed block never changes again.
      if (closed.has(block.start)) expect(block.source).toBe(closed.get(block.start));
      if (block.closed) closed.set(block.start, block.source);
    }
  }
  expect(reader.read(TEXT).map((block) => block.source)).toEqual(BLOCKS);
  expect(BLOCKS.join("")).toBe(TEXT);
});

test("another text is read from its start", () => {
  const reader = new BlockReader();
  reader.read("One.\n\nTwo.");
  expect(reader.read("Three.").map((block) => block.source)).toEqual(["Three."]);
});

test("100 kB in small pieces is read in linear time", () => {
  const reader = new BlockReader();
  const paragraph = `${"word ".repeat(60)}\n\n`;
  let text = "";
  const began = performance.now();
  while (text.length < 100_000) {
    for (let at = 0; at < paragraph.length; at += 20) {
      text += paragraph.slice(at, at + 20);
      reader.read(text);
    }
  }
  expect(performance.now() - began).toBeLessThan(2000);
});

const WORDS = "word ".repeat(2000);
const LINES = "A line of thought.\n".repeat(1000);
const ITEMS = Array.from({ length: 800 }, (_, at) => `- item ${at}\n  with more\n`).join("");
const CODE = `\`\`\`js\n${"call();\n".repeat(2000)}\`\`\``;
const TABLE = `| a | b |\n|---|---|\n${"| 1 | 2 |\n".repeat(1500)}`;

test.each([
  ["one line", WORDS + WORDS, 2],
  ["many lines", LINES, 4],
  ["a list", ITEMS, 4],
])("a long block of %s is cut, at the same places however it grows", (_name, text, count) => {
  const blocks = new BlockReader().read(text);
  expect(blocks.length).toBeGreaterThanOrEqual(count);
  expect(blocks.map((block) => block.source).join("")).toBe(text);
  for (const block of blocks) expect(block.source.length).toBeLessThanOrEqual(8001);
  const grown = new BlockReader();
  for (let end = 0; end < text.length; end += 37) grown.read(text.slice(0, end));
  expect(grown.read(text)).toEqual(blocks);
});

test("a long list is cut before an item", () => {
  for (let width = 0; width < 9; width += 1) {
    const items = `- item ${"x".repeat(width)}\n  with more\n`.repeat(800);
    for (const block of new BlockReader().read(items)) expect(block.source).toMatch(/^- item/);
  }
});

test.each([
  ["code", CODE],
  ["a table", TABLE],
])("long %s stays whole, and is shown in few steps", (_name, text) => {
  const reader = new BlockReader();
  const steps = new Set<string>();
  for (let end = 1; end < text.length; end += 10) {
    const blocks = reader.read(text.slice(0, end));
    expect(blocks.length).toBe(1);
    const shown = BlockReader.shown(blocks[0] as MarkdownBlock);
    expect(end - shown.length).toBeLessThanOrEqual(end / 50);
    if (end > 8000) steps.add(shown);
  }
  expect(steps.size).toBeLessThan(120);
});

test("a full group of blocks stays the same object while the text grows", () => {
  const reader = new BlockReader();
  const groups = new BlockGroups();
  const text = "A line.\n\n".repeat(60);
  const before = groups.of(reader.read(text));
  expect(before.map((group) => group.length)).toEqual([24, 24, 12]);
  const after = groups.of(reader.read(`${text}More.\n\nAnd more.`));
  expect(after.map((group) => group.length)).toEqual([24, 24, 14]);
  expect(after[0]).toBe(before[0]);
  expect(after[1]).toBe(before[1]);
  expect(groups.of(reader.read("Other."))[0]).not.toBe(before[0]);
});
