#!/usr/bin/env node
// Starts the program from the package of this platform, with the same arguments, terminal and exit code.
"use strict";

const { spawn } = require("node:child_process");
const os = require("node:os");

const platform = `abide-daemon-${process.platform}-${process.arch}`;

function program() {
  try {
    return require.resolve(`${platform}/bin/abide`);
  } catch {
    console.error(
      `abide: the package ${platform} is not installed, so there is no program to start. ` +
        "If npm has left out optional packages, install it again without --omit=optional; " +
        "if there is no such package, build abide from its source.",
    );
    process.exit(1);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
// A signal to this process alone is passed on. One from the terminal reaches both by itself; this process
// waits for the program's own answer to it.
for (const signal of ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"]) {
  process.on(signal, () => child.kill(signal));
}
process.on("SIGINT", () => {});
child.on("error", (error) => {
  console.error(`abide: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  // What a shell reports for a program that was ended by a signal.
  process.exit(signal ? 128 + os.constants.signals[signal] : code);
});
