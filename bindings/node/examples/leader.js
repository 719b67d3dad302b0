'use strict';
// leader.js URI NAME: one of all the processes that run this leads, until it is interrupted or loses its lock; then another
// one does.

const { setTimeout: sleep } = require('node:timers/promises');
const { Client } = require('..'); // in a program of its own: 'libdlock'

const [uri, name] = process.argv.slice(2);
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => stop.abort());

// Works until somebody else leads.
async function lead(grant) {
  console.log(`leads, fence ${grant.fence}`);
  while (grant.held && !stop.signal.aborted) {
    // One step of the work goes here. What it changes is told the fence.
    await sleep(1000, undefined, { signal: stop.signal }).catch(() => {});
  }
}

(async () => {
  const client = new Client(uri);
  while (!stop.signal.aborted) {
    try {
      await client.using(name, { signal: stop.signal }, lead);
    } catch (error) {
      if (stop.signal.aborted) break;
      console.error(error.message); // not the leader, or not any more
      await sleep(100);
    }
  }
  await client.close();
})();
