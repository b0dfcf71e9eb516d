"""Uses the generated client: work, a refusal, the past events of a run, and live ones."""

from abide_client import AbideError, Client


def main() -> None:
    client = Client.find()
    spawned = client.sessions.spawn(task="[say] hello", idempotencyKey="once")
    again = client.sessions.spawn(task="[say] hello", idempotencyKey="once")
    assert again["runId"] == spawned["runId"]
    for run in client.agent.wait(runId=spawned["runId"], waitTimeout="1m")["runs"]:
        assert "state" in run
        print(run["state"], run.get("result"))

    try:
        client.runs.get(runId="01936f0e-0000-7000-8000-000000000009")
    except AbideError as error:
        print(error.kind, error.retryable, error.hint is not None)

    key = "agent:build:named"
    client.sessions.create(agent="build", key=key, label="named")
    print(client.sessions.patch(sessionKey=key, label=None).get("label"))

    for event in client.events(since=0, runId=spawned["runId"], kinds=["run.queued", "run.ended"]):
        print(event["kind"])
        if event["kind"] == "run.ended":
            print(event["data"]["state"])
            break

    held = client.sessions.spawn(task="[hold]")["runId"]
    for event in client.events(since=0, runId=held, kinds=["run.started", "run.ended"]):
        if event["kind"] == "run.started":
            print("holding", flush=True)
        elif event["kind"] == "run.ended":
            print("held", event["data"]["state"])
            break


if __name__ == "__main__":
    main()
