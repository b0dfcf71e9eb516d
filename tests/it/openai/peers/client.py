"""The official Python client of the OpenAI API against abide; prints what it was told as JSON.

usage: client.py URL TOKEN
"""

import json
import sys

import openai

url, token = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key=token, max_retries=0)
told = {}

told["models"] = [model.id for model in client.models.list()]
ask = [{"role": "user", "content": "[look]"}]
chat = client.chat.completions.create(model="abide/build", messages=ask)
told["chat"] = chat.choices[0].message.content
told["finish"] = chat.choices[0].finish_reason
told["tokens"] = chat.usage.total_tokens
told["reasoning"] = chat.choices[0].message.reasoning_content

text = ""
with client.chat.completions.create(
    model="abide/build", messages=ask, stream=True, stream_options={"include_usage": True}
) as stream:
    for chunk in stream:
        if chunk.usage:
            told["stream_tokens"] = chunk.usage.total_tokens
        for choice in chunk.choices:
            text += choice.delta.content or ""
told["stream"] = text

key = {"Idempotency-Key": "one"}
first = client.chat.completions.create(model="abide/build", messages=ask, extra_headers=key)
again = client.chat.completions.create(model="abide/build", messages=ask, extra_headers=key)
told["same"] = first.id == again.id and first == again

response = client.responses.create(
    model="abide/build", input="[look]", metadata={"for": "test"}
)
told["response"] = response.output_text
told["status"] = response.status
told["metadata"] = response.metadata
follow = client.responses.create(
    model="abide/build", input="[more]", previous_response_id=response.id
)
told["follow"] = follow.output_text
told["conversation"] = follow.conversation.id == response.conversation.id
told["again"] = client.responses.retrieve(response.id).output_text

events = []
with client.responses.stream(model="abide/build", input="[look]") as stream:
    for event in stream:
        events.append(event.type)
    told["response_stream"] = stream.get_final_response().output_text
told["events"] = events

background = client.responses.create(model="abide/build", input="[held]", background=True)
told["background"] = background.status
told["cancelled"] = client.responses.cancel(background.id).status

errors = {}
for name, call in {
    "model": lambda: client.chat.completions.create(model="abide/nope", messages=ask),
    "tools": lambda: client.chat.completions.create(
        model="abide/build",
        messages=ask,
        tools=[{"type": "function", "function": {"name": "f"}}],
    ),
    "failed": lambda: client.chat.completions.create(
        model="abide/build", messages=[{"role": "user", "content": "[fail]"}]
    ),
    "missing": lambda: client.responses.retrieve("resp_none"),
    "previous": lambda: client.responses.create(
        model="abide/build", input="x", previous_response_id="resp_none"
    ),
    "token": lambda: openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list(),
}.items():
    try:
        call()
        errors[name] = "none"
    except openai.APIStatusError as error:
        errors[name] = [type(error).__name__, error.status_code, error.code]
told["errors"] = errors
print(json.dumps(told))
