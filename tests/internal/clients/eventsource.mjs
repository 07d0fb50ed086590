// Some of npm's eventsource that follow one turn until they are told that nothing
// follows. What they saw is written as JSON.
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

// Told to stop, it says who has not come to an end.
process.on('SIGTERM', () => {
  console.error(JSON.stringify(all.filter((seen) => !seen.closed), (key, value) => (key === 'text' ? value.length : value)));
  process.exit(1);
});
