// Running a coding agent without a terminal: its own home folder, no key of this
// machine, a time limit for each run.

import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { recipe } from "./readme.js";

const PACKAGES = join(dirname(fileURLToPath(import.meta.url)), "node_modules");
// An agent must not update itself, call anyone but the gateway, or ask whether it may trust its folder.
const UNATTENDED = {
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  DISABLE_AUTOUPDATER: "1",
  GEMINI_CLI_TRUST_WORKSPACE: "true",
  NO_UPDATE_NOTIFIER: "1",
  OPENCODE_DISABLE_AUTOUPDATE: "1",
  OPENCODE_DISABLE_MODELS_FETCH: "1",
};
// Milliseconds for one run; the slowest agent takes about seven seconds on an idle machine.
const MAX_RUN = 45_000;

/** An installed agent with a home folder and a working directory that only this test uses. */
export class Agent {
  /** `program` is the command's name in the README, `start` what runs it. */
  constructor(name, program, start) {
    this.name = name;
    this.folder = mkdtempSync(join(tmpdir(), `throughline-${name}-`));
    for (const part of ["home", "work", "bin"]) mkdirSync(join(this.folder, part));
    const command = join(this.folder, "bin", program);
    writeFileSync(command, `#!/bin/sh\nexec ${start.map((word) => `'${word}'`).join(" ")} "$@"\n`);
    chmodSync(command, 0o755);
  }

  /** Writes a file below the home folder (`~/...`) or the working directory. */
  write(file, text) {
    const path = file.startsWith("~/")
      ? join(this.folder, "home", file.slice(2))
      : join(this.folder, "work", file);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }

  /** Follows the README for a gateway at `url`, adding `words` to the command; returns what it prints. */
  async run(url, words) {
    const { files, command } = recipe(this.name, url);
    for (const [file, text] of Object.entries(files)) this.write(file, text);
    return this.shell(`${command} "$@"`, words);
  }

  shell(script, words) {
    const child = spawn("sh", ["-ec", script, "sh", ...words], {
      cwd: join(this.folder, "work"),
      // Nothing else of our environment: no key, no proxy, no other address.
      env: {
        PATH: [join(this.folder, "bin"), process.env.PATH].join(delimiter),
        HOME: join(this.folder, "home"),
        LANG: "C.UTF-8",
        ...UNATTENDED,
      },
      stdio: ["ignore", "pipe", "pipe"],
      // A group of its own, so that what the agent starts ends with it.
      detached: true,
    });
    let printed = "";
    let errors = "";
    child.stdout.on("data", (piece) => (printed += piece));
    child.stderr.on("data", (piece) => (errors += piece));
    const stop = () => {
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {
        // It has ended already.
      }
    };
    return new Promise((resolve, reject) => {
      const timer = setTimeout(stop, MAX_RUN);
      child.on("error", reject);
      child.on("close", (code, signal) => {
        clearTimeout(timer);
        stop();
        if (code === 0) resolve(printed);
        else reject(new Error(`ended with ${signal ?? code}: ${(printed + errors).slice(-2000)}`));
      });
    });
  }

  remove() {
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** Runs a JavaScript file of an installed package. */
export function script(...path) {
  return [process.execPath, join(PACKAGES, ...path)];
}

/** Runs a program of an installed package; nothing where there is none for this platform. */
export function program(...path) {
  const found = join(PACKAGES, ...path);
  return existsSync(found) ? [found] : undefined;
}
