"""A server of tools that behaves oddly in one way, by its first argument; plain Python.

Each request is noted in the file `asked` of its folder, each start in `starts`. With a port as
second argument it serves over HTTP.
"""

import json
import os
import sys
import time

WAY = sys.argv[1]
CLASSIC = "2025-11-25"
FIRST = "2024-11-05"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def note(file, line):
    with open(file, "a") as out:
        out.write(line + "\n")


def tool(name, schema=TEXT, **more):
    return {"name": name, "description": name + " it", "inputSchema": schema, **more}


ECHO = tool("echo")
ODD = [
    ECHO,
    {"name": "no_schema", "description": "has none"},
    tool("null_schema", None),
    tool("list_schema", []),
    tool("choice", {"anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]},
                              {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}),
    tool("text_schema", {"type": "string"}),
    tool("far", {"$ref": "https://example.org/schema.json"}),
    tool("renames", {"type": "object", "properties": {"$top": {"type": "int"}}, "required": ["$top"]}),
    tool("loose", {"type": "object", "properties": {"a": True, "b": {"type": "array"},
                                                     "c": {"enum": []}}, "required": "a"}),
    tool("näme with blanks/" + "x" * 90),
    tool("double", {"type": "object", "properties": {"first": {}}}),
    tool("double", {"type": "object", "properties": {"second": {}}}),
    tool("wordy", {"type": "object", "properties": {}}, title="w", _meta={"a": 1}),
    {"name": "wordy2", "description": "word " * 800_000, "inputSchema": {}},
    {"description": "has no name", "inputSchema": {}},
    7,
]


def page(params):
    cursor = (params or {}).get("cursor")
    if WAY == "repeats":
        return {"tools": [ECHO], "nextCursor": "again"}
    if WAY == "endless":
        number = int(cursor or 0)
        return {"tools": [tool("t%04d" % number)], "nextCursor": str(number + 1)}
    if WAY == "vast":
        return {"tools": [tool("t%05d" % number) for number in range(5000)]}
    if WAY == "half" and cursor:
        raise Refused(-32603, "there is no such page")
    if WAY == "half":
        return {"tools": [ECHO], "nextCursor": "2"}
    if WAY in ("odd", "odd_now"):
        now = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": ODD}
        return now if WAY == "odd_now" else {"tools": ODD}
    now = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if WAY == "slow_now" else {}
    return {**now, "tools": [ECHO, tool("storm"), tool("huge"), tool("chatter")]}


class Refused(Exception):
    def __init__(self, code, message):
        self.error = {"code": code, "message": message}


def result(method, params):
    if method == "initialize":
        asked = params["protocolVersion"]
        if WAY == "old" and asked != FIRST:
            die()
        return {"protocolVersion": FIRST if WAY == "old" else CLASSIC,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "odd", "version": "1"}}
    if method == "tools/list":
        return page(params)
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    raise Refused(-32601, "no method " + method)


def call(name, arguments):
    if name == "storm":
        for _ in range(2500):
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    if name == "chatter":
        for number in range(2500):
            print("chatter %d" % number, flush=True)
    text = "x" * (17 << 20) if name == "huge" else json.dumps(arguments)
    return {"content": [{"type": "text", "text": text}]}


def die():
    os._exit(1)


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def unknown(id):
    """The first question, which this server does not know."""
    if WAY in ("exits", "old"):
        die()
    if WAY == "closes":
        os.close(1)
        time.sleep(600)
    if WAY == "hangs":
        time.sleep(600)
    if WAY == "no_id":
        return {"jsonrpc": "2.0", "error": {"code": -32700, "message": "what?"}}
    if WAY == "other_id":
        return {"jsonrpc": "2.0", "id": 4711, "error": {"code": -32601, "message": "what?"}}
    if WAY == "null_result":
        return {"jsonrpc": "2.0", "id": id, "result": None}
    if WAY == "empty_result":
        return {"jsonrpc": "2.0", "id": id, "result": {}}
    return {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown"}}


def answer(message):
    """What is answered to a message, if anything."""
    id, method = message.get("id"), message.get("method", "")
    note("asked", method)
    if id is None:
        return None
    if method == "server/discover":
        if WAY == "slow_now":
            time.sleep(10.5)
        if WAY in ("odd_now", "slow_now"):
            return {"jsonrpc": "2.0", "id": id, "result": {
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"},
                "ttlMs": 0, "cacheScope": "private"}}
        return unknown(id)
    try:
        return {"jsonrpc": "2.0", "id": id, "result": result(method, message.get("params"))}
    except Refused as refused:
        return {"jsonrpc": "2.0", "id": id, "error": refused.error}


def serve_pipes():
    for line in sys.stdin:
        said = answer(json.loads(line))
        if said is not None:
            send(said)


def serve_http(port):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, body=b""):
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.reply(405)

        def do_DELETE(self):
            self.reply(405)

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if message.get("method") == "server/discover" and WAY == "fails":
                return self.reply(500)
            if message.get("method") == "server/discover" and WAY == "cuts":
                self.close_connection = True
                return None
            said = answer(message)
            self.reply(202) if said is None else self.reply(200, json.dumps(said).encode())

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


note("starts", str(os.getpid()))
serve_http(int(sys.argv[2])) if len(sys.argv) > 2 else serve_pipes()
