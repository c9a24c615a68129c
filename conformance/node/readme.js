// Reads recipes from the project's pages, so that the tests run what people copy.
//
// A recipe is a fenced block after a comment `<!-- recipe: NAME [FILE] -->`. With a
// FILE it is the content of that file, `~/` being the home folder. Without one it is
// the shell command or the program to run.

import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

// The address that the pages use.
const ADDRESS = "http://127.0.0.1:8484";

/**
 * The blocks of the recipe `name` of a page: `{ files: { path: text }, command }`, for a gateway at
 * `url`.
 */
export function recipe(name, url, page = "README.md") {
  const blocks = /<!-- recipe: (\S+)(?: (\S+))? -->\n+```\w*\n([^]*?)```/g;
  const found = { files: {}, command: "" };
  for (const [, recipeName, file, text] of read(page).matchAll(blocks)) {
    if (recipeName !== name) continue;
    const block = text.replaceAll(ADDRESS, url);
    if (file) found.files[file] = block;
    else found.command = block.trimEnd();
  }
  if (!found.command) throw new Error(`${page} has no recipe \`${name}\``);
  return found;
}

/** The text of a file of the repository that contains the working directory. */
export function read(file) {
  return readFileSync(locate(file), "utf8");
}

/** The path of a file of the repository that contains the working directory. */
export function locate(file) {
  for (let folder = process.cwd(); ; folder = dirname(folder)) {
    if (existsSync(join(folder, "throughline.example.toml"))) return join(folder, file);
    if (folder === dirname(folder)) throw new Error("run this inside the repository");
  }
}
