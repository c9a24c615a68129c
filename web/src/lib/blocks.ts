// Cuts markdown into blocks that can be rendered apart, so that a growing text renders only its last block again.

export interface MarkdownBlock {
  /** Where it begins in the text; it never changes while the text grows. */
  start: number;
  source: string;
  /** Whether more text can no longer change it. */
  closed: boolean;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const CONTINUES = /^(?:\s{2,}\S|\t|\s*(?:[-*+]|\d+[.)])\s)/;
const LIST_ITEM = /^\s*(?:[-*+]|\d+[.)])\s/;

/** A paragraph or list of this length ends at its next line, or within a line of twice the length: rendering a block
 * again for each piece of text must stay cheap. */
const MAX_BLOCK = 4000;
const TOP_ITEM = /^(?:[-*+]|\d+[.)])\s/;
const TABLE = /^\s*\|/;
/** Code and tables cannot be cut, so a long one is shown in steps of a fiftieth of its length. */
const STEP = 50;

/** How much of the end of the earlier text must be equal, so that the text counts as the same one that has grown. */
const COMPARED = 256;

/** Reads a text that only grows. */
export class BlockReader {
  blocks: MarkdownBlock[] = [];
  private text = "";
  /** Where the last block that is not closed begins. */
  private open = 0;

  /** The blocks of the text. If it does not begin with the text before it, everything is read again. */
  read(text: string): MarkdownBlock[] {
    if (text === this.text) return this.blocks;
    // Comparing everything would make each step as slow as the text is long.
    const from = Math.max(0, this.text.length - COMPARED);
    if (!text.startsWith(this.text.slice(from), from)) {
      this.blocks = [];
      this.open = 0;
    }
    this.text = text;
    this.blocks = this.blocks.filter((block) => block.closed);
    this.cut();
    return this.blocks;
  }

  private cut(): void {
    const { text } = this;
    let start = this.open;
    let fence: string | null = null;
    let maths = false;
    let isList = false;
    let isTable = false;
    let blank = false;
    for (let at = start; at < text.length; ) {
      const newline = text.indexOf("\n", at);
      const end = newline < 0 ? text.length : newline;
      const line = text.slice(at, end);
      const empty = line.trim() === "";
      if (fence !== null) {
        const close = FENCE.exec(line)?.[1];
        if (close?.startsWith(fence) && line.trim() === close) fence = null;
      } else if (maths) {
        if (line.includes("$$")) maths = false;
      } else if (empty) {
        blank = at > start;
      } else {
        // A line that is still growing may become a list item, so it does not yet end a list.
        const isEnd = blank && !(isList && (CONTINUES.test(line) || newline < 0));
        const isLong = at - start > MAX_BLOCK && !isTable && (!isList || TOP_ITEM.test(line));
        if (isEnd || isLong) {
          this.push(start, at, true);
          start = at;
        }
        blank = false;
        if (at === start) {
          isList = LIST_ITEM.test(line);
          isTable = TABLE.test(line);
        }
        while (!isList && !isTable && end - start > 2 * MAX_BLOCK) {
          const space = text.lastIndexOf(" ", start + 2 * MAX_BLOCK);
          const cut = space > start + MAX_BLOCK ? space + 1 : start + 2 * MAX_BLOCK;
          this.push(start, cut, true);
          start = cut;
        }
        const opening = FENCE.exec(line)?.[1];
        if (opening) fence = opening;
        else if (line.trimStart().startsWith("$$") && line.indexOf("$$", line.indexOf("$$") + 2) < 0) maths = true;
      }
      at = newline < 0 ? text.length : newline + 1;
    }
    this.open = start;
    if (text.slice(start).trim() !== "") this.push(start, text.length, false);
  }

  /** The text of a block that may still grow, as it is shown until the next step. */
  static shown(block: MarkdownBlock): string {
    const { source } = block;
    if (block.closed || source.length < 2 * MAX_BLOCK) return source;
    // Steps grow with the length, so that all of them together cost as much as a few renderings of the whole.
    const step = 2 ** Math.floor(Math.log2(source.length / STEP));
    return source.slice(0, source.length - (source.length % step));
  }

  private push(start: number, end: number, closed: boolean): void {
    this.blocks.push({ start, source: this.text.slice(start, end), closed });
  }
}

/** Gathers blocks into groups of a fixed number, so that a long text has few parts to look at. */
export class BlockGroups {
  static readonly SIZE = 24;
  private groups: MarkdownBlock[][] = [];

  /** The groups of these blocks. A group whose blocks have not changed is the same object as before. */
  of(blocks: readonly MarkdownBlock[]): MarkdownBlock[][] {
    const { SIZE } = BlockGroups;
    const groups: MarkdownBlock[][] = [];
    for (let at = 0; at < blocks.length; at += SIZE) {
      const known = this.groups[groups.length];
      const isSame = known?.length === SIZE && known[0] === blocks[at] && known[SIZE - 1] === blocks[at + SIZE - 1];
      groups.push(isSame ? known : blocks.slice(at, at + SIZE));
    }
    this.groups = groups;
    return groups;
  }
}
