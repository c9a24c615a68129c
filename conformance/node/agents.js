// Runs a coding agent without a terminal, with its own home folder, without the keys
// of this machine, and with a time limit for each run.

import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { recipe } from "./readme.js";

const PACKAGES = join(dirname(fileURLToPath(import.meta.url)), "node_modules");
// An agent must not update itself, contact a server other than the gateway, or ask whether it may
// trust its folder.
const UNATTENDED = {
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  DISABLE_AUTOUPDATER: "1",
  GEMINI_CLI_TRUST_WORKSPACE: "true",
  NO_UPDATE_NOTIFIER: "1",
  OPENCODE_DISABLE_AUTOUPDATE: "1",
  OPENCODE_DISABLE_MODELS_FETCH: "1",
};
// For one run; the slowest agent takes about seven seconds on an idle machine.
const MAX_RUN_MS = 45_000;

/** An installed agent with a home folder and a working directory that only this test uses. */
export class Agent {
  /** `program` is the command's name in the README, `start` the real command with its arguments. */
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

  /**
   * Runs the README's recipe for a gateway at `url`, with more arguments; returns its output. `adapt`
   * changes the text of a file.
   */
  async run(url, more, adapt = (text) => text) {
    const { files, command } = recipe(this.name, url);
    for (const [file, text] of Object.entries(files)) this.write(file, adapt(text));
    return this.shell(`${command} "$@"`, more);
  }

  shell(script, more) {
    const child = spawn("sh", ["-ec", script, "sh", ...more], {
      cwd: join(this.folder, "work"),
      // Nothing else of our environment: it may have keys, proxies and other addresses.
      env: {
        PATH: [join(this.folder, "bin"), process.env.PATH].join(delimiter),
        HOME: join(this.folder, "home"),
        LANG: "C.UTF-8",
        ...UNATTENDED,
      },
      stdio: ["ignore", "pipe", "pipe"],
      // In its own process group, so that the agent's own processes end with it.
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
      const timer = setTimeout(stop, MAX_RUN_MS);
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

/** The command that runs a JavaScript file of an installed package. */
export function script(...path) {
  return [process.execPath, join(PACKAGES, ...path)];
}

/** The command that runs a program of an installed package; undefined if it is not installed. */
export function program(...path) {
  const found = join(PACKAGES, ...path);
  return existsSync(found) ? [found] : undefined;
}
