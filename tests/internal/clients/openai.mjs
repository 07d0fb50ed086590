// Uses the official client of OpenAI's API: create, poll, stream, resume a cut stream, cancel. A failed
// check ends the program.
//
// Usage: node openai.mjs BASE_URL CUTTING_BASE_URL, with OPENAI_API_KEY.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import OpenAI from 'openai';

const [base, cutting] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base + '/v1' });
const keyed = (key) => ({ headers: { 'Idempotency-Key': key } });

async function models() {
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.deepEqual(names, ['clerk']);
  assert.equal((await client.models.retrieve('turnkeeper/clerk')).id, 'clerk');
}

async function create() {
  const first = await client.responses.create({ model: 'clerk', input: 'Hello', metadata: { order: '17' } });
  assert.equal(first.status, 'completed');
  assert.equal(first.output_text, '1: Hello');
  assert.deepEqual(first.metadata, { order: '17' });
  assert.ok(first.usage.total_tokens > 0);
  const second = await client.responses.create({
    model: 'turnkeeper/clerk', previous_response_id: first.id,
    input: [{ role: 'user', content: [{ type: 'input_text', text: 'And now?' }] }],
  });
  assert.equal(second.output_text, '2: And now?'); // the model got the first message
  assert.equal(second.previous_response_id, first.id);
  const apart = await client.responses.create({ model: 'clerk', input: 'Hello' });
  assert.equal(apart.output_text, '1: Hello');
  const named = await client.responses.create({ model: 'clerk', input: 'Hello', conversation: second.conversation.id });
  assert.equal(named.output_text, '3: Hello');
  const sent = [];
  for await (const item of client.responses.inputItems.list(second.id)) sent.push(item.content[0].text);
  assert.deepEqual(sent, ['And now?']);
}

// history sends all that was said each time, and uses a conversation that was created first.
async function history() {
  const input = [{ role: 'developer', content: 'Be brief.' }];
  let conversation;
  for (const [n, text] of ['Hello', 'And now?', 'And then?'].entries()) {
    input.push({ role: 'user', content: text });
    const response = await client.responses.create({ model: 'clerk', input, instructions: 'Be kind.', max_output_tokens: 100 });
    assert.equal(response.output_text, `${n + 1}: ${text}`);
    assert.equal(response.output[0].phase, 'final_answer');
    assert.equal(response.instructions, 'Be kind.');
    assert.equal(response.max_output_tokens, 100);
    conversation ??= response.conversation.id;
    assert.equal(response.conversation.id, conversation);
    input.push(...response.output);
  }
  const empty = await client.conversations.create();
  const created = await client.conversations.create({ metadata: { order: '17' }, items: [{ type: 'message', role: 'user', content: 'I am Alice.' }] });
  assert.deepEqual(created.metadata, { order: '17' });
  assert.deepEqual(await client.conversations.retrieve(created.id), created);
  for (const { id } of [empty, created]) {
    for (const n of [1, 2]) {
      const response = await client.responses.create({ model: 'clerk', input: 'Hello', conversation: id });
      assert.equal(response.output_text, `${n}: Hello`);
      assert.equal(response.conversation.id, id);
    }
  }
}

async function poll() {
  let response = await client.responses.create({ model: 'clerk', input: 'Later', background: true });
  assert.ok(['queued', 'in_progress', 'completed'].includes(response.status), response.status); // the turn may be as fast as the answer
  while (['queued', 'in_progress'].includes(response.status)) {
    await new Promise((later) => setTimeout(later, 20));
    response = await client.responses.retrieve(response.id);
  }
  assert.equal(response.output_text, '1: Later');
}

async function stream() {
  let text = '', last;
  for await (const event of await client.responses.create({ model: 'clerk', input: 'Talk', stream: true })) {
    assert.equal(event.sequence_number, last ? last.sequence_number + 1 : 0);
    if (event.type === 'response.output_text.delta') text += event.delta;
    last = event;
  }
  assert.equal(last.type, 'response.completed');
  assert.equal(text, '1: Talk');
  const helped = await client.responses.stream({ model: 'clerk', input: 'Talk' }).finalResponse();
  assert.equal(helped.status, 'completed');
  assert.equal(helped.output_text, '1: Talk');
  const late = await client.responses.stream({ response_id: helped.id, starting_after: 2 }).finalResponse();
  assert.equal(late.output_text, '1: Talk');
}

// resume reads one stream over many drops, and over a worker that is lost meanwhile.
async function resume() {
  const cut = new OpenAI({ baseURL: cutting + '/v1' });
  const key = randomUUID();
  let id, last = -1, text = '', drops = 0, over = false;
  while (!over) {
    try {
      const events = id && last >= 0
        ? await cut.responses.retrieve(id, { stream: true, starting_after: last })
        : await cut.responses.create({ model: 'clerk', input: 'long', background: true, stream: true }, keyed(key));
      for await (const event of events) {
        assert.equal(event.sequence_number, last + 1, 'a gap, a repeat, or disorder');
        last = event.sequence_number;
        if (event.type === 'response.created') id = event.response.id;
        if (event.type === 'response.output_text.delta') text += event.delta;
        over = event.type === 'response.completed';
      }
      if (!over) drops++;
    } catch (problem) {
      if (problem instanceof assert.AssertionError) throw problem;
      if (problem instanceof OpenAI.APIError && problem.status) throw problem; // told by a status: not a drop
      drops++;
    }
  }
  const stored = await client.responses.retrieve(id);
  assert.equal(text, stored.output_text);
  return { id, drops, events: last + 1 };
}

async function cancel() {
  let response = await client.responses.create({ model: 'clerk', input: 'wait', background: true });
  while (response.status === 'queued') response = await client.responses.retrieve(response.id);
  response = await client.responses.cancel(response.id);
  assert.equal(response.status, 'cancelled');
  assert.equal((await client.responses.cancel(response.id)).status, 'cancelled');
  let last;
  for await (const event of await client.responses.retrieve(response.id, { stream: true })) last = event;
  assert.equal(last.response.status, 'cancelled');
}

async function repeat() {
  const key = randomUUID(), body = { model: 'clerk', input: 'Once' };
  const [one, two] = await Promise.all([client.responses.create(body, keyed(key)), client.responses.create(body, keyed(key))]);
  assert.equal(one.id, two.id);
  assert.equal(one.output_text, '1: Once');
  await assert.rejects(client.responses.create({ ...body, input: 'Twice' }, keyed(key)), OpenAI.ConflictError);
}

async function errors() {
  const create = (body) => client.responses.create({ model: 'clerk', input: 'x', ...body });
  await assert.rejects(create({ model: 'nobody' }), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.param === 'model');
  await assert.rejects(create({ max_tool_calls: 1 }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'max_tool_calls' && e.type === 'invalid_request_error');
  await assert.rejects(create({ previous_response_id: 'resp_999' }), (e) => e instanceof OpenAI.BadRequestError && e.code === 'previous_response_not_found');
  await assert.rejects(client.responses.retrieve('resp_999'), OpenAI.NotFoundError);
  await assert.rejects(client.responses.cancel('resp_999'), OpenAI.NotFoundError);
  await assert.rejects(client.responses.delete('resp_1'), (e) => e instanceof OpenAI.APIError && e.status === 405);
  const stranger = new OpenAI({ baseURL: base + '/v1', apiKey: 'tk_wrong' });
  await assert.rejects(stranger.models.list(), (e) => e instanceof OpenAI.AuthenticationError && e.code === 'invalid_api_key');
}

for (const step of [models, create, history, poll, stream, cancel, repeat, errors]) await step();
console.log(JSON.stringify(await resume()));
