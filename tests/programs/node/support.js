'use strict';
// What the tests of the Node package share. A test is called with the word of a backend: `cases_test.js redis`.

const { spawn } = require('node:child_process');
const { randomUUID } = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');

const PACKAGE = path.join(__dirname, '../../../bindings/node');
const { Client } = require(PACKAGE);
const LONG = 100_000; // longer than anything takes on a busy machine; nothing waits for it to pass
const backend = process.argv[2];

// The server's URI, with other values for some of its keys.
function uri(keys = {}) {
  const setting = `DLOCK_TEST_URI_${backend}`;
  if (backend === 'mem') return `mem:?${new URLSearchParams(keys)}`;
  if (backend === 'file' && !process.env[setting]) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'dlock-node-'));
    process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
    process.env[setting] = `file:${folder}`;
  }
  if (!process.env[setting]) throw new Error(`no server for ${backend}: run the tests with tests/run.sh`);
  const [address, query] = process.env[setting].split('?');
  return `${address}?${new URLSearchParams({ ...Object.fromEntries(new URLSearchParams(query)), ...keys })}`;
}

// What a test works with: two clients, which end with it, and a name of its own.
function prepare(t) {
  const open = (keys) => {
    const client = new Client(uri(keys));
    t.after(() => client.close());
    return client;
  };
  const tools = { t, open, client: open(), other: open(), name: `node-${randomUUID()}` };
  tools.free = async (client = tools.other) => {
    const grant = await client.tryAcquire(tools.name);
    await grant?.release();
    return grant !== null;
  };
  // Another Node, with URI and name in `uri` and `name`. line() is what it prints next.
  tools.run = (code, flags = [], keys = {}) => {
    const script = `const { Client } = require(${JSON.stringify(PACKAGE)}); const [uri, name] = process.argv.slice(1); ${code}`;
    const child = spawn(process.execPath, [...flags, '-e', script, uri(keys), tools.name], { stdio: ['ignore', 'pipe', 'inherit'] });
    t.after(() => child.kill('SIGKILL'));
    child.line = async () => String((await once(child.stdout, 'data'))[0]).trim();
    child.ended = once(child, 'exit');
    return child;
  };
  return tools;
}

// Waits until it is true.
async function until(condition) {
  for (const end = Date.now() + LONG; !(await condition()); await sleep(5)) {
    if (Date.now() > end) throw new Error(`this did not become true: ${condition}`);
  }
}

// How many threads this process has.
const threads = () => fs.readdirSync('/proc/self/task').length;

// A test with its clients; skipped where `lacking` says why.
const define = (name, run, lacking) =>
  test(name, { timeout: LONG, skip: lacking || false }, (t) => run(prepare(t)));

module.exports = { PACKAGE, backend, define, sleep, test, threads, until, uri };
