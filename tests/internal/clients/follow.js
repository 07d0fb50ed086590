// Follows a turn with an EventSource, in a browser or with npm's eventsource, and records what it
// receives. The EventSource reconnects by itself.
const types = [
  'turn_start', 'round_start', 'block_start', 'block_delta', 'block_stop', 'tool_started', 'tool_result', 'notice',
  'round_stop', 'round_rollback', 'turn_waiting', 'turn_resumed', 'turn_complete', 'turn_error',
];

export function follow(EventSource, url) {
  const seen = { last: 0, text: '', rollbacks: 0, opens: 0, faults: [], over: false, closed: false };
  const source = new EventSource(url);
  const fault = (what) => { // a few faults are enough
    seen.faults.push(what);
    seen.closed = true;
    source.close();
  };
  source.onopen = () => seen.opens++;
  source.onerror = () => {
    seen.closed = source.readyState === 2; // it does not reconnect
    if (seen.closed && !seen.over) fault('gave up after event ' + seen.last);
  };
  const take = (message) => {
    const event = JSON.parse(message.data);
    if (event.seq !== seen.last + 1 || message.lastEventId !== String(event.seq)) {
      fault(`event ${event.seq}, with the id ${message.lastEventId}, came after event ${seen.last}`);
    }
    seen.last = event.seq;
    if (event.type === 'round_rollback') seen.rollbacks++;
    if (event.type === 'round_start' || event.type === 'round_rollback') seen.text = '';
    if (event.type === 'block_delta') seen.text += event.data.text ?? '';
    if (event.type === 'turn_complete' || event.type === 'turn_error') seen.over = true;
  };
  for (const type of types) source.addEventListener(type, take);
  return seen;
}
