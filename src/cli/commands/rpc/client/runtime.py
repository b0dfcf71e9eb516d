from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
import urllib.parse
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypedDict,
    TypeVar,
    Union,
    final,
)

if TYPE_CHECKING:
    from typing_extensions import NotRequired

_Client = TypeVar("_Client", bound="Connection")

# Seconds between two attempts to follow the events again.
_RETRY_SECONDS = 2.0
# Seconds that a call which waits may take beyond the client's own timeout.
_LONGEST_WAIT_SECONDS = 3600.0
# HTTP status of a proxy that got no answer from the daemon.
_STATUS_OF_PROXY = (502, 503, 504)


class Omitted:
    """The default of parameters that are not sent. `None` is sent as null."""


OMITTED = Omitted()


class AbideError(Exception):
    """A call that the daemon refused, or whose answer did not arrive.

    Programs branch on `kind`. `link_lost` means that the answer did not arrive: the daemon may have
    done the call. Repeat it with the same idempotency key or id, and it is done once.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        hint: Optional[str] = None,
        retryable: bool = False,
        code: Optional[int] = None,
        data: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(f"{message} ({kind})")
        self.kind = kind
        self.message = message
        self.hint = hint
        # True if the same call may succeed later.
        self.retryable = retryable
        self.code = code
        self.data: Mapping[str, Any] = data or {}

    @property
    def retry_after_ms(self) -> Optional[int]:
        """Milliseconds after which a retry makes sense, if the daemon named them."""
        after = self.data.get("retryAfterMs")
        return after if isinstance(after, int) else None


def _refusal(error: Mapping[str, Any]) -> AbideError:
    data = error.get("data")
    data = data if isinstance(data, dict) else {}
    return AbideError(
        str(data.get("kind", "unknown")),
        str(error.get("message", "the daemon refused the call")),
        data.get("hint"),
        data.get("retryable") is True,
        error.get("code"),
        data,
    )


def _lost(where: str, fault: object) -> AbideError:
    return AbideError(
        "link_lost",
        f"no answer from {where}: {fault}",
        "repeat the call with the same idempotency key or id; `abide status` shows the daemon",
        True,
    )


def _variable(name: str) -> Optional[str]:
    return os.environ.get(name) or None


def _default_folder() -> str:
    # The XDG specification says that relative paths are to be ignored.
    state = _variable("XDG_STATE_HOME")
    if state is None or not os.path.isabs(state):
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state, "abide")


def _token(file: str) -> Optional[str]:
    """The token in a file; None if it cannot be read: over the socket most calls need none."""
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read().strip() or None
    except (OSError, ValueError):
        return None


def _token_for_address(file: str) -> str:
    token = _token(file)
    if token is None:
        raise AbideError(
            "unauthorized",
            f"the token in {file} cannot be used",
            "run as the user who started the daemon, or name another file: ABIDE_TOKEN_FILE",
        )
    return token


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        opened.settimeout(self.timeout)
        try:
            opened.connect(self._path)
        except OSError:
            opened.close()
            raise
        self.sock = opened


class Connection:
    """The way to a daemon. Calls may be made from several threads at the same time."""

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        socket_path: Optional[str] = None,
        token: Optional[str] = None,
        timeout: float = 60.0,
        context: Optional[ssl.SSLContext] = None,
    ) -> None:
        """Uses the Unix socket at `socket_path`, else the address `url`.

        `token` is required over TCP, and over the socket for decisions such as approvals.
        `timeout` is in seconds; a call that waits may take an hour longer. `context` decides which
        certificates are accepted at an https address.
        """
        if url is None and socket_path is None:
            raise ValueError("a url or a socket_path is required; Client.find() looks for them")
        self._url = urllib.parse.urlsplit(url or "http://localhost/")
        self._socket_path = socket_path
        self._token = token
        self._timeout = timeout
        self._context = context

    @classmethod
    def find(cls: Type[_Client], state_dir: Optional[str] = None, timeout: float = 60.0) -> _Client:
        """Finds the daemon of this user by the variables and files of the command line.

        Without `state_dir`: `ABIDE_SOCKET`, `ABIDE_URL` or `ABIDE_STATE_DIR`, else the default
        folder. One way is used: the Unix socket where there is one and `ABIDE_TOKEN_FILE` names no
        token, else the address. Without `ABIDE_TOKEN_FILE` the token is that of the folder.
        """
        folder = os.path.abspath(state_dir or _variable("ABIDE_STATE_DIR") or _default_folder())
        socket_path = None if state_dir else _variable("ABIDE_SOCKET")
        url = None if state_dir else _variable("ABIDE_URL")
        named_token = _variable("ABIDE_TOKEN_FILE")
        token_of_folder = os.path.join(folder, "token")
        endpoint: Any = None
        missing: Optional[Exception] = None
        try:
            with open(os.path.join(folder, "endpoint.json"), encoding="utf-8") as file:
                endpoint = json.load(file)
        except (OSError, ValueError) as fault:
            missing = fault
        if not isinstance(endpoint, dict):
            endpoint = {}
        # The token of a folder is sent to the daemon of that folder alone.
        if socket_path is not None:
            socket_path = os.path.abspath(socket_path)
            beside = os.path.join(os.path.dirname(socket_path), "token")
            own = token_of_folder if endpoint.get("socket") == socket_path else beside
            return cls(socket_path=socket_path, token=_token(named_token or own), timeout=timeout)
        if url is not None:
            is_own = endpoint.get("url") == url.rstrip("/")
            token_file = named_token or (token_of_folder if is_own else None)
            if token_file is None:
                raise AbideError(
                    "unauthorized",
                    f"no token is known for {url}",
                    "name it: ABIDE_TOKEN_FILE",
                )
            return cls(url, token=_token_for_address(token_file), timeout=timeout)
        socket_path, url = endpoint.get("socket"), endpoint.get("url")
        # Who names a token wants to be identified by it, which a socket does by its user.
        if socket_path is not None and named_token is None:
            return cls(socket_path=socket_path, token=_token(token_of_folder), timeout=timeout)
        if url is None:
            raise AbideError(
                "link_lost",
                f"no running daemon in {folder}: {missing or 'endpoint.json has no address'}",
                "start one with `abide serve`",
                True,
            ) from missing
        token = _token_for_address(named_token or token_of_folder)
        return cls(url, token=token, timeout=timeout)

    def call(self, method: str, params: Mapping[str, Any], *, waits: bool = False) -> Any:
        """Calls a method by its name and returns its result."""
        sent = {name: value for name, value in params.items() if value is not OMITTED}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": sent}
        timeout = self._timeout + (_LONGEST_WAIT_SECONDS if waits else 0.0)
        connection = self._open(timeout)
        try:
            response = self._request(connection, "POST", "/", json.dumps(message).encode())
            text = response.read()
        except (OSError, http.client.HTTPException) as fault:
            raise _lost(self._where(), fault) from fault
        finally:
            connection.close()
        return self._result(text, response.status)

    def events(
        self,
        *,
        since: Optional[int] = None,
        storeId: Optional[str] = None,
        sessionKey: Optional[str] = None,
        runId: Optional[str] = None,
        tree: Optional[str] = None,
        kinds: Optional[Sequence[str]] = None,
        deltas: bool = False,
    ) -> Iterator[Event]:
        """Follows the events, those of the past after `since` included.

        Without `since` the first event is a `snapshot` of what is open. After a lost connection the
        stream goes on behind the last event, also over restarts of the daemon; only a refusal that
        is not retryable and the failure of the first connection are raised. Kinds that this file
        does not list occur with newer daemons: ignore them.
        """
        given = {"storeId": storeId, "sessionKey": sessionKey, "runId": runId, "tree": tree}
        query = {name: value for name, value in given.items() if value is not None}
        if kinds is not None:
            query["kinds"] = ",".join(kinds)
        if deltas:
            query["deltas"] = "true"
        cursor, was_open = since, False
        while True:
            if cursor is not None:
                query["since"] = str(cursor)
            connection = self._open(self._timeout)
            pause = _RETRY_SECONDS
            try:
                place = "/events?" + urllib.parse.urlencode(query)
                response = self._request(connection, "GET", place, None)
                if response.status != 200:
                    self._result(response.read(), response.status)
                    raise self._no_message(response.status)
                was_open = True
                for line in response:
                    # A line without its end is the rest of a lost connection.
                    if not (line.startswith(b"data:") and line.endswith(b"\n")):
                        continue
                    event: Event = json.loads(line[5:])
                    if event["kind"] == "lagged":
                        # The reader was too slow; what it has missed is still stored.
                        cursor, pause = event["data"]["resumeFrom"], 0.0
                        break
                    if event["kind"] == "snapshot":
                        cursor = event["data"]["cursor"]
                        # In another store the cursor would stand for other events.
                        query["storeId"] = event["data"]["storeId"]
                    cursor = event.get("cursor") or cursor
                    yield event
            except (OSError, http.client.HTTPException) as fault:
                if not was_open:
                    raise _lost(self._where(), fault) from fault
            except AbideError as refusal:
                if not (was_open and refusal.retryable):
                    raise
            finally:
                connection.close()
            time.sleep(pause)

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        if self._socket_path is not None:
            return _SocketConnection(self._socket_path, timeout)
        host, port = self._url.hostname or "localhost", self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _request(
        self,
        connection: http.client.HTTPConnection,
        verb: str,
        place: str,
        body: Optional[bytes],
    ) -> http.client.HTTPResponse:
        headers = {"Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection.request(verb, self._url.path.rstrip("/") + place, body, headers)
        return connection.getresponse()

    def _result(self, text: bytes, status: int) -> Any:
        """The result in a JSON-RPC message; its error is raised."""
        try:
            reply = json.loads(text)
        except ValueError:
            reply = None
        if isinstance(reply, dict) and reply.get("jsonrpc") == "2.0":
            if isinstance(reply.get("error"), dict):
                raise _refusal(reply["error"])
            if "result" in reply:
                return reply["result"]
        raise self._no_message(status)

    def _no_message(self, status: int) -> AbideError:
        if status in _STATUS_OF_PROXY:
            return _lost(self._where(), f"HTTP {status} without a JSON-RPC message")
        return AbideError(
            "invalid_reply",
            f"{self._where()} answered with HTTP {status} and no JSON-RPC message",
            "check that the address is that of the daemon",
        )

    def _where(self) -> str:
        return self._socket_path or self._url.geturl()
