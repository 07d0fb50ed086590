// Streams a message with a client that was generated from the OpenAPI document. It prints as JSON what it shows: after the first text, and
// at the end.
import { createClient } from './generated/client';
import { getMessageEvents, postMessage } from './generated';

declare const process: { env: Record<string, string | undefined>; argv: string[] };

export async function main(base: string): Promise<void> {
  const client = createClient({ baseUrl: base, auth: process.env.TOKEN });
  const sent = await postMessage({ client, body: { agent: 'clerk', body: 'Talk.' }, throwOnError: true });
  const { stream } = await getMessageEvents({ client, path: { id: sent.data.id } });
  let blocks = new Map<number, { round: number; text: string }>();
  const tools: string[] = [];
  const text = () => [...blocks.values()].map((block) => block.text).join('');
  let shown = false;
  for await (const event of stream) {
    if (!event) continue;
    switch (event.type) {
      case 'turn_start': // a new attempt: what another one has written is void
        blocks = new Map();
        break;
      case 'block_delta': {
        const block = blocks.get(event.block) ?? { round: event.round, text: '' };
        block.text += event.data.text ?? '';
        blocks.set(event.block, block);
        if (!shown && text()) {
          shown = true;
          console.log(JSON.stringify({ text: text() }));
        }
        break;
      }
      case 'round_rollback':
        for (const [number, block] of blocks) if (block.round === event.round) blocks.delete(number);
        break;
      case 'tool_started':
        tools.push(event.data.name);
        break;
      case 'message_closed':
        console.log(JSON.stringify({ text: text(), tools, outcome: event.data.outcome, reply: event.data.reply?.body ?? '' }));
    }
  }
}
