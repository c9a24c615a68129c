import { expect, test } from "vitest";

import { BlockReader } from "../../src/lib/blocks";

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
