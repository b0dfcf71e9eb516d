/** Milliseconds between two attempts to follow the events again. */
const RETRY_MS = 2_000;
/** Milliseconds that a call which waits may take beyond the client's own timeout. */
const LONGEST_WAIT_MS = 3_600_000;
/** HTTP status of a proxy that got no answer from the daemon. */
const STATUS_OF_PROXY: readonly number[] = [502, 503, 504];

/** Where the daemon is, and how calls are made. */
export interface ClientOptions {
    /** Address of the daemon, such as http://127.0.0.1:7777/ (`url` in `endpoint.json`). */
    url: string;
    /** The token: the content of the file `token` in the state folder, or an access token. */
    token?: string;
    /** Time limit of a call in milliseconds (60,000); a call that waits may take an hour longer. */
    timeoutMs?: number;
    /** Replaces the global `fetch`. */
    fetch?: typeof fetch;
}

/** Options of one call. */
export interface CallOptions {
    /** Ends the call early and replaces its time limit. The daemon may still do the call. */
    signal?: AbortSignal;
}

/** Which events to follow. All conditions apply together. */
export interface EventFilter {
    /** Cursor after which the events begin; without it the first event is a `snapshot`. */
    since?: number;
    /** Refuses a `since` of another store. */
    storeId?: string;
    sessionKey?: string;
    runId?: string;
    /** A run and its descendants. */
    tree?: string;
    /** Kinds such as `run.ended` or `run.*`. */
    kinds?: readonly string[];
    /** True: answers are streamed while they are generated. */
    deltas?: boolean;
}

/**
 * A call that the daemon refused, or whose answer did not arrive.
 *
 * Programs branch on `kind`. `link_lost` means that the answer did not arrive: the daemon may have
 * done the call. Repeat it with the same idempotency key or id, and it is done once.
 */
export class AbideError extends Error {
    readonly kind: string;
    /** What to do. */
    readonly hint: string | undefined;
    /** True if the same call may succeed later. */
    readonly retryable: boolean;
    readonly code: number | undefined;
    readonly data: Readonly<Record<string, unknown>>;

    constructor(
        kind: string,
        message: string,
        details: { hint?: string; retryable?: boolean; code?: number; data?: object; cause?: unknown } = {},
    ) {
        super(message, details.cause === undefined ? {} : { cause: details.cause });
        this.name = "AbideError";
        this.kind = kind;
        this.hint = details.hint;
        this.retryable = details.retryable ?? false;
        this.code = details.code;
        this.data = { ...details.data };
    }

    /** Milliseconds after which a retry makes sense, if the daemon named them. */
    get retryAfterMs(): number | undefined {
        const after = this.data["retryAfterMs"];
        return typeof after === "number" ? after : undefined;
    }
}

interface Reply {
    jsonrpc?: unknown;
    result?: unknown;
    error?: Refusal | null;
}

interface Refusal {
    code?: number;
    message?: string;
    data?: Record<string, unknown>;
}

function refusal(error: Refusal): AbideError {
    const data = error.data ?? {};
    return new AbideError(String(data["kind"] ?? "unknown"), error.message ?? "the daemon refused the call", {
        ...(typeof data["hint"] === "string" ? { hint: data["hint"] } : {}),
        ...(error.code === undefined ? {} : { code: error.code }),
        retryable: data["retryable"] === true,
        data,
    });
}

/** The way to a daemon. */
export class Connection {
    readonly #url: string;
    readonly #headers: Record<string, string>;
    readonly #timeoutMs: number;
    readonly #fetch: typeof fetch;

    constructor(options: ClientOptions) {
        this.#url = options.url.replace(/\/+$/, "");
        this.#headers = options.token === undefined ? {} : { Authorization: `Bearer ${options.token}` };
        this.#timeoutMs = options.timeoutMs ?? 60_000;
        this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
    }

    /** Calls a method by its name and returns its result. */
    async call<Result>(method: string, params: object, options: CallOptions = {}, waits = false): Promise<Result> {
        const timeoutMs = this.#timeoutMs + (waits ? LONGEST_WAIT_MS : 0);
        const signal = options.signal ?? AbortSignal.timeout(timeoutMs);
        const init: RequestInit = {
            method: "POST",
            headers: { ...this.#headers, "Content-Type": "application/json" },
            body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
            signal,
        };
        let status: number;
        let text: string;
        try {
            const response = await this.#fetch(`${this.#url}/`, init);
            status = response.status;
            text = await response.text();
        } catch (fault) {
            throw this.#lost(fault, options.signal);
        }
        return this.#result(text, status) as Result;
    }

    /**
     * Follows the events, those of the past after `since` included.
     *
     * After a lost connection the stream goes on behind the last event, also over restarts of the
     * daemon; only a refusal that is not retryable and the failure of the first connection are
     * thrown. It ends when the loop over it ends; aborted by `signal`, it throws the reason of the
     * signal. Kinds that this file does not list occur with newer daemons: ignore them.
     */
    async *events(filter: EventFilter = {}, options: CallOptions = {}): AsyncGenerator<Event, void, void> {
        const { since, kinds, ...others } = filter;
        let cursor = since;
        let wasOpen = false;
        let store: string | undefined;
        for (;;) {
            const query = new URLSearchParams();
            for (const [name, value] of Object.entries(others)) {
                if (value !== undefined) {
                    query.set(name, String(value));
                }
            }
            if (kinds !== undefined) {
                query.set("kinds", kinds.join(","));
            }
            if (cursor !== undefined) {
                query.set("since", String(cursor));
            }
            if (store !== undefined) {
                query.set("storeId", store);
            }
            const stop = new AbortController();
            const abort = () => stop.abort(options.signal?.reason);
            options.signal?.throwIfAborted();
            options.signal?.addEventListener("abort", abort);
            let pauseMs = RETRY_MS;
            try {
                const response = await this.#fetch(`${this.#url}/events?${query}`, {
                    headers: this.#headers,
                    signal: stop.signal,
                });
                if (response.status !== 200) {
                    this.#result(await response.text(), response.status);
                    throw this.#noMessage(response.status);
                }
                wasOpen = true;
                for await (const event of received(response)) {
                    if (event.kind === "lagged") {
                        // The reader was too slow; what it has missed is still stored.
                        cursor = event.data.resumeFrom;
                        pauseMs = 0;
                        break;
                    }
                    if (event.kind === "snapshot") {
                        cursor = event.data.cursor;
                        // In another store the cursor would stand for other events.
                        store = event.data.storeId;
                    }
                    cursor = event.cursor ?? cursor;
                    yield event;
                }
            } catch (fault) {
                const lost = fault instanceof AbideError ? fault : this.#lost(fault, options.signal);
                if (!wasOpen || !(lost instanceof AbideError) || !lost.retryable) {
                    throw lost;
                }
            } finally {
                options.signal?.removeEventListener("abort", abort);
                stop.abort();
            }
            await pause(pauseMs, options.signal);
        }
    }

    /** What a failed request throws: the caller's own reason if the caller ended it. */
    #lost(fault: unknown, signal: AbortSignal | undefined): unknown {
        if (signal?.aborted) {
            return signal.reason;
        }
        const cause = fault instanceof Error && fault.cause instanceof Error ? fault.cause : fault;
        return this.#noAnswer(String(cause), fault);
    }

    #noAnswer(why: string, cause?: unknown): AbideError {
        return new AbideError("link_lost", `no answer from ${this.#url}: ${why}`, {
            hint: "repeat the call with the same idempotency key or id; `abide status` shows the daemon",
            retryable: true,
            cause,
        });
    }

    /** The result in a JSON-RPC message; its error is thrown. */
    #result(text: string, status: number): unknown {
        let reply: Reply | null = null;
        try {
            reply = JSON.parse(text) as Reply | null;
        } catch {
            // It is reported below, as everything else that is no message.
        }
        if (reply?.jsonrpc === "2.0") {
            if (typeof reply.error === "object" && reply.error !== null) {
                throw refusal(reply.error);
            }
            if ("result" in reply) {
                return reply.result;
            }
        }
        throw this.#noMessage(status);
    }

    #noMessage(status: number): AbideError {
        if (STATUS_OF_PROXY.includes(status)) {
            return this.#noAnswer(`HTTP ${status} without a JSON-RPC message`);
        }
        return new AbideError("invalid_reply", `${this.#url} answered with HTTP ${status} and no JSON-RPC message`, {
            hint: "check that the address is that of the daemon",
        });
    }
}

/** Waits; `signal` ends it early, with its reason. */
async function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
        const abort = () => {
            clearTimeout(timer);
            reject(signal?.reason);
        };
        const timer = setTimeout(() => {
            signal?.removeEventListener("abort", abort);
            resolve();
        }, milliseconds);
        signal?.addEventListener("abort", abort, { once: true });
    });
}

/** The events of a response; an event is one line of data. */
async function* received(response: Response): AsyncGenerator<Event, void, void> {
    if (response.body === null) {
        return;
    }
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
        const { done, value } = await reader.read();
        if (done) {
            return;
        }
        rest += decoder.decode(value, { stream: true });
        const lines = rest.split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
            if (line.startsWith("data:")) {
                yield JSON.parse(line.slice(5)) as Event;
            }
        }
    }
}
