// Uses the generated client with a server that the test plays.

import { AbideError, Client } from "./abide_client.js";

declare const process: { readonly argv: readonly string[] };

const [, , url = ""] = process.argv;
const client = new Client({ url, token: "given" });
try {
    await client.gateway.ping();
} catch (error) {
    if (!(error instanceof AbideError)) {
        throw error;
    }
    console.log(error.kind, error.retryable);
}
for await (const event of client.events()) {
    console.log(event.kind);
    if (event.kind === "run.ended") {
        break;
    }
}
