// Follows one turn with several of npm's eventsource until the turn ends, and prints what they received
// as JSON.
//
// Usage: node eventsource.mjs URL COUNT
import { EventSource } from 'eventsource';
import { follow } from './follow.js';

const [url, count] = process.argv.slice(2);
const all = Array.from({ length: Number(count) }, () => follow(EventSource, url));
const look = setInterval(() => {
  if (!all.every((seen) => seen.closed)) return;
  clearInterval(look);
  console.log(JSON.stringify(all));
}, 50);

// On SIGTERM it prints which of them have not ended.
process.on('SIGTERM', () => {
  console.error(JSON.stringify(all.filter((seen) => !seen.closed), (key, value) => (key === 'text' ? value.length : value)));
  process.exit(1);
});
