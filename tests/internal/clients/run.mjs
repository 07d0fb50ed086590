// Runs the function main of a compiled program.
//
// Usage: node run.mjs PROGRAM ARGUMENTS...
import { createRequire } from 'node:module';

const [program, ...args] = process.argv.slice(2);
await createRequire(import.meta.url)(program).main(...args);
