"""A chat service with long polling; the test is its person. Messages are kept until it ends."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# The chat of a person who has blocked the bot.
BLOCKED = "403"

changed = threading.Condition()
updates, messages = [], []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with changed:
            self.answer(200, messages)

    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with changed:
            self.answer(*getattr(self, self.path.rsplit("/", 1)[1])(given))
            changed.notify_all()

    # What the test does.
    def update(self, given):
        updates.append({"update_id": len(updates) + 1, **given})
        return 200, {}

    # What the bot calls.
    def getUpdates(self, given):
        new = lambda: [update for update in updates if update["update_id"] >= given["offset"]]
        changed.wait_for(new, timeout=given["timeout"])
        return 200, {"ok": True, "result": new()}

    def sendMessage(self, given):
        if given["chat_id"] == BLOCKED:
            return 403, {"ok": False, "description": "bot was blocked by the user"}
        messages.append({**given, "message_id": len(messages) + 1, "texts": [given["text"]]})
        return 200, {"ok": True, "result": messages[-1]}

    def editMessageText(self, given):
        message = messages[given["message_id"] - 1]
        if message["text"] == given["text"]:
            return 400, {"ok": False, "description": "message is not modified"}
        message["text"] = given["text"]
        message["texts"].append(given["text"])
        message["reply_markup"] = given.get("reply_markup")
        return 200, {"ok": True, "result": message}

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
