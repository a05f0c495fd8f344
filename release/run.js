#!/usr/bin/env node
// Starts the program of the package for this platform.
const { spawnSync } = require("node:child_process");

const name = `onnxquant-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/onnxquant${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(`onnxquant: the package ${name} is not installed: there is none for this platform, or npm left out optional dependencies`);
  process.exit(1);
}
const run = spawnSync(program, process.argv.slice(2), { stdio: "inherit" });
if (run.error) {
  console.error(`onnxquant: ${run.error.message}`);
}
process.exit(run.status ?? 1);
