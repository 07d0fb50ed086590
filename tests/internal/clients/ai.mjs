// Uses the Vercel AI SDK as a chat page does: useChat's own chat class sends the whole history to a route of the page's server,
// which passes it on with streamText. A failed check ends the program.
//
// Usage: node ai.mjs BASE_URL, with OPENAI_API_KEY.
import assert from 'node:assert/strict';
import http from 'node:http';
import { Readable } from 'node:stream';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenResponses } from '@ai-sdk/open-responses';
import { AbstractChat, DefaultChatTransport, convertToModelMessages, generateText, streamText } from 'ai';

const [base] = process.argv.slice(2);
const apiKey = process.env.OPENAI_API_KEY;
const seen = []; // the requests and statuses of the API

async function recorded(url, options) {
  const response = await fetch(url, options);
  seen.push({ body: options?.body && JSON.parse(options.body), status: response.status });
  return response;
}

const headers = { 'Turnkeeper-Drafts': 'true' };
const providers = {
  openai: createOpenAI({ baseURL: base + '/v1', apiKey, fetch: recorded }), // sends the ids of earlier replies
  open: createOpenResponses({ name: 'turnkeeper', url: base + '/v1/responses', apiKey, fetch: recorded }), // sends their texts
  openaiDrafts: createOpenAI({ baseURL: base + '/v1', apiKey, fetch: recorded, headers }),
  openDrafts: createOpenResponses({ name: 'turnkeeper', url: base + '/v1/responses', apiKey, fetch: recorded, headers }),
};

// A page's server, and the chat of the page. settings go to streamText.
async function page(model, settings = {}) {
  const server = http.createServer(async (request, response) => {
    let text = '';
    for await (const piece of request.setEncoding('utf8')) text += piece;
    const { messages } = JSON.parse(text);
    const result = streamText({ model, messages: await convertToModelMessages(messages), ...settings });
    const { status, headers, body } = result.toUIMessageStreamResponse({ onError: (problem) => String(problem?.message ?? problem) });
    response.writeHead(status, Object.fromEntries(headers));
    Readable.fromWeb(body).pipe(response);
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  const state = {
    status: 'ready', error: undefined, messages: [], snapshot: structuredClone,
    pushMessage(m) { this.messages.push(m); }, popMessage() { this.messages.pop(); }, replaceMessage(i, m) { this.messages[i] = m; },
  };
  class Chat extends AbstractChat {}
  const chat = new Chat({ state, transport: new DefaultChatTransport({ api: `http://127.0.0.1:${server.address().port}/chat` }), onError: (problem) => { throw problem; } });
  const last = () => chat.messages.at(-1).parts.filter((part) => part.type === 'text');
  return { chat, last, say: async (text) => { await chat.sendMessage({ text }); assert.ifError(chat.error); return last().at(-1).text; }, close: () => server.close() };
}

// threeMessages sends three messages, the whole history each time, with a system prompt and a limit.
async function threeMessages(name) {
  const talk = await page(providers[name]('clerk'), { instructions: 'Be kind.', maxOutputTokens: 500, temperature: 0.2, topP: 0.9 });
  seen.length = 0;
  assert.equal(await talk.say('Hello'), '1: Hello');
  assert.equal(await talk.say('And now?'), '2: And now?'); // the model got the first message
  assert.equal(await talk.say('And  then?'), '3: And  then?');
  assert.deepEqual(seen.map((one) => one.status), [200, 200, 200]);
  assert.equal(seen[2].body.input.filter((item) => item.role === 'user').length, 3, 'the client sends the whole history');
  // "Regenerate" takes the last answer back: the history is a shorter one, and starts a conversation.
  await talk.chat.regenerate();
  assert.equal(talk.last().at(-1).text, '1: And  then?');
  assert.equal(await talk.say('More'), '2: More');
  talk.close();
}

async function generate() {
  const result = await generateText({ model: providers.openai('clerk'), messages: [
    { role: 'user', content: 'I am Alice.' }, { role: 'assistant', content: 'Hello Alice.' }, { role: 'user', content: 'Who am I?' },
  ] });
  assert.equal(result.text, '1: Who am I?');
  assert.ok(result.usage.totalTokens > 0);
}

for (const name of Object.keys(providers)) await threeMessages(name);
await generate();
