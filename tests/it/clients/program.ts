// Uses the generated client: work, a refusal, the past events of a run, and live ones.

import { AbideError, Client } from "./abide_client.js";

declare const process: { readonly argv: readonly string[] };

const [, , url = "", token = ""] = process.argv;
const client = new Client({ url, token });
const spawned = await client.sessions.spawn({ task: "[say] hello", idempotencyKey: "once" });
const again = await client.sessions.spawn({ task: "[say] hello", idempotencyKey: "once" });
if (again.runId !== spawned.runId) {
    throw new Error("a second run");
}
const waited = await client.agent.wait({ runId: spawned.runId, waitTimeout: "1m" });
for (const run of waited.runs) {
    if ("state" in run) {
        console.log(run.state, run.result);
    }
}

try {
    await client.runs.get({ runId: "01936f0e-0000-7000-8000-000000000009" });
} catch (error) {
    if (!(error instanceof AbideError)) {
        throw error;
    }
    console.log(error.kind, error.retryable, error.hint !== undefined);
}

const key = "agent:build:named";
await client.sessions.create({ agent: "build", key, label: "named" });
const patched = await client.sessions.patch({ sessionKey: key, label: null });
console.log(patched.label ?? "None");

for await (const event of client.events({ since: 0, runId: spawned.runId, kinds: ["run.queued", "run.ended"] })) {
    console.log(event.kind);
    if (event.kind === "run.ended") {
        console.log(event.data.state);
        break;
    }
}

const held = (await client.sessions.spawn({ task: "[hold]" })).runId;
for await (const event of client.events({ since: 0, runId: held, kinds: ["run.started", "run.ended"] })) {
    if (event.kind === "run.started") {
        console.log("holding");
    } else if (event.kind === "run.ended") {
        console.log("held", event.data.state);
        break;
    }
}
