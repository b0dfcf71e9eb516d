"""Uses the generated client with a server that the test plays."""

import sys

from abide_client import AbideError, Client


def main() -> None:
    client = Client(sys.argv[1], token="given")
    try:
        client.gateway.ping()
    except AbideError as error:
        print(error.kind, error.retryable)
    for event in client.events():
        print(event["kind"])
        if event["kind"] == "run.ended":
            break


if __name__ == "__main__":
    main()
