// Runs @open-rpc/test-coverage against a daemon: `node judge.js URL`, with the token in
// ABIDE_TOKEN. Ends with 1 if one answer is not what the daemon's own document says.
"use strict";

const coverage = require("@open-rpc/test-coverage").default;
const { parseOpenRPCDocument } = require("@open-rpc/schema-utils-js");
const EmptyReporter = require("@open-rpc/test-coverage/build/reporters/emptyReporter").default;
const ExamplesRule = require("@open-rpc/test-coverage/build/rules/examples-rule").default;

// They need a WebSocket, end the daemon, need what other calls have made or removed, or a folder of this machine.
const SKIPPED = [
  "events.subscribe",
  "events.unsubscribe",
  "gateway.drain",
  "sessions.spawn",
  "agents.update",
  "questions.answer",
  "approvals.resolve",
  "tokens.revoke",
  "runs.output",
  "runs.resolve",
  "runs.provide_env",
  "runs.steer",
  "runs.retry_announce",
  "runs.dismiss_announce",
  "sessions.compact",
  "sessions.delete",
  "sessions.reset",
  "trust.add",
  "trust.revoke",
  "nodes.get",
  "nodes.approve",
  "nodes.refuse",
  "nodes.rename",
  "nodes.remove",
  "nodes.answer",
  "nodes.call",
];

let id = 0;
async function transport(url, method, params) {
  const answer = await fetch(url, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Authorization: `Bearer ${process.env.ABIDE_TOKEN}`,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: ++id, method, params }),
  });
  return answer.json();
}

// The judge's own validator knows no formats and takes one that it does not know for a fault.
function withoutFormats(value) {
  if (Array.isArray(value)) return value.map(withoutFormats);
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).filter(
    ([key, of]) => !(key === "format" && typeof of === "string"),
  );
  return Object.fromEntries(kept.map(([key, of]) => [key, withoutFormats(of)]));
}

async function main() {
  const url = process.argv[2];
  const { result } = await transport(url, "rpc.discover", {});
  // Refuses a document that is none by the specification, and resolves its references.
  const openrpcDocument = withoutFormats(await parseOpenRPCDocument(result));
  openrpcDocument.servers = [{ name: "daemon", url }];
  for (const method of openrpcDocument.methods) {
    for (const example of method.examples ?? []) {
      // The answer is held against the schema and not against one fixed answer.
      example.result = { name: "result", value: null };
    }
  }
  const calls = await coverage({
    openrpcDocument,
    transport,
    reporters: [new EmptyReporter()],
    rules: [new ExamplesRule()],
    skip: SKIPPED,
    only: [],
  });
  const bad = calls.filter((call) => !call.valid);
  for (const call of bad) {
    console.log(`${call.methodName}: ${call.reason ?? call.requestError}`);
  }
  const methods = new Set(calls.map((call) => call.methodName));
  const missed = openrpcDocument.methods
    .map((method) => method.name)
    .filter((name) => !methods.has(name) && !SKIPPED.includes(name));
  if (missed.length > 0) console.log(`not called: ${missed.join(", ")}`);
  console.log(`${calls.length - bad.length} passed, ${bad.length} failed of ${methods.size} methods`);
  process.exit(bad.length + missed.length === 0 && calls.length > 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(error);
  process.exit(1);
});
