// The official Node client of the OpenAI API against abide; prints what it was told as JSON.
// usage: client.mjs URL TOKEN

import OpenAI from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const model = "abide/build";
const messages = [{ role: "user", content: "[look]" }];

const chat = await client.chat.completions.create({ model, messages });
let stream = "";
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
  stream += chunk.choices[0]?.delta.content ?? "";
}
const response = await client.responses.create({ model, input: "[look]" });
const follow = await client.responses.create({
  model,
  input: "[more]",
  previous_response_id: response.id,
});
const running = client.responses.stream({ model, input: "[look]" });
const final = await running.finalResponse();
const failed = await client.chat.completions
  .create({ model: "abide/nope", messages })
  .catch((error) => [error.status, error.code]);

console.log(
  JSON.stringify({
    chat: chat.choices[0].message.content,
    stream,
    response: response.output_text,
    follow: follow.output_text,
    final: final.output_text,
    failed,
  }),
);
