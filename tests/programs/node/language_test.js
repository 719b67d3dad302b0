'use strict';
// What only Node has: modules, workers, garbage collection, the end of the process: language_test.js BACKEND

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const { PACKAGE, backend, define, sleep, threads, until, uri } = require('./support.js');
const { Client, DlockError } = require(PACKAGE);

const alone = backend === 'mem' && 'mem has no processes';

define('import has what require has', async () => {
  const { default: all, ...named } = await import(path.join(PACKAGE, 'index.mjs'));
  assert.deepEqual(named, require(PACKAGE));
  assert.equal(all.Client, Client);
});

// The program of README.md with another URI and another package.
define('the README', async ({ client, name }) => {
  const page = fs.readFileSync(path.join(PACKAGE, 'README.md'), 'utf8');
  const [, code] = page.match(/```js\n([\s\S]*?)```/);
  const told = [];
  const run = new Function('require', 'writeReport', `${code.replace('nightly-report', name)}; return nightly();`);
  const here = class extends Client {
    constructor() {
      super(uri());
    }
  };
  await run(() => ({ Client: here }), async (fence, signal) => told.push(fence, signal.aborted));
  assert.deepEqual([typeof told[0], told[1]], ['bigint', false]);
  assert.ok(await client.tryAcquire(name));
});

define('asyncDispose', async ({ client, name, free, open }) => {
  const grant = await client.acquire(name);
  await grant[Symbol.asyncDispose]();
  await grant[Symbol.asyncDispose]();
  assert.ok(await free());
  const grants = await client.acquireAll([`${name}-z`, name]);
  assert.deepEqual(grants.map((each) => each.name), [`${name}-z`, name]);
  await grants[Symbol.asyncDispose]();
  assert.ok(await free());
  await open()[Symbol.asyncDispose]();
});

define('blocks side by side wait for each other', async ({ client, name }) => {
  let inside = 0;
  const work = async () => {
    assert.equal(++inside, 1);
    await sleep(1);
    inside--;
  };
  await client.using(`${name}-outer`, () => Promise.all([1, 2, 3].map(() => client.using(name, work))));
});

define('the stack of an error leads to the caller', async ({ client, other, name }) => {
  await other.acquire(name);
  const theCaller = async () => await client.acquire(name, { timeout: 0 });
  await assert.rejects(theCaller(), (error) => error instanceof DlockError && error.stack.includes('theCaller'));
});

define('close waits for calls in progress', async ({ open, name }) => {
  const client = open();
  const grant = await client.acquire(name);
  const calls = [client.inspect(name), client.list(), grant.extend(), client.acquire(`${name}-2`), client.inspect(name)];
  const [results] = await Promise.all([Promise.allSettled(calls), client.close()]);
  for (const { status, reason } of results) {
    if (status === 'rejected') assert.equal(reason.code, 'DLOCK_ECANCELED');
  }
});

define('a listener that throws', async ({ run }) => {
  const child = run(`process.on('uncaughtException', (error) => console.log(error.message));
    const client = new Client(uri);
    const names = [name, name + '-2'];
    client.on('lost', (error) => { if (error.lock === name) throw new Error('of the listener'); });
    client.acquireAll(names).then(async (grants) => {
      for (const each of names) await client.break(each);
      grants[1].signal.onabort = () => client.close();
    });`, [], { lease: '1s' });
  assert.equal(await child.line(), 'of the listener');
  assert.deepEqual(await child.ended, [0, null]);
});

define('a client without references is closed', async () => {
  const files = () => fs.readdirSync('/proc/self/fd').length;
  const use = async () => {
    const client = new Client(uri());
    await client.using('x', () => {});
  };
  await use();
  const before = [threads(), files()];
  for (let i = 0; i < 5; i++) await use();
  await until(() => (globalThis.gc(), threads() <= before[0] && files() <= before[1]));
});

define('workers that are terminated', async ({ client, name }) => {
  const grant = await client.acquire(name);
  const code = `const { parentPort, workerData } = require('node:worker_threads');
    const { Client } = require(workerData.path);
    const client = new Client(workerData.uri);
    client.acquire(workerData.name);
    client.acquire(workerData.name + '-own').then(() => {
      client.inspect(workerData.name);
      parentPort.postMessage('holds');
    });`;
  const workers = [1, 2, 3].map((i) => new Worker(code, { eval: true, workerData: { path: PACKAGE, uri: uri(), name: name + i } }));
  for (const worker of workers) worker.ready = new Promise((resolve) => worker.once('message', resolve));
  await Promise.all(workers.map((worker) => worker.ready));
  await Promise.all(workers.map((worker) => worker.terminate()));
  await client.acquireAll([1, 2, 3].flatMap((i) => [name + i, `${name}${i}-own`]), { timeout: '5s' });
  await grant.release();
});

define('an idle client does not keep the process alive', async ({ run }) => {
  const child = run(`new Client(uri).using(name, () => {})`);
  assert.deepEqual(await child.ended, [0, null]);
}, alone);

define('what is held keeps the process alive', async ({ run, free }) => {
  const child = run(`new Client(uri).acquire(name).then((grant) => {
    globalThis.grant = grant;
    console.log('holds');
    setTimeout(() => grant.release(), 100).unref();
  })`);
  assert.equal(await child.line(), 'holds');
  assert.deepEqual(await child.ended, [0, null]);
  assert.ok(await free());
}, alone);

define('process.exit() where a loss is told', async ({ run, name, other }) => {
  const child = run(`const client = new Client(uri);
    client.acquireAll([name, name + '-2']).then((grants) => {
      grants[0].signal.addEventListener('abort', () => process.exit(5));
      console.log('holds');
    });`, [], { lease: '1s' });
  assert.equal(await child.line(), 'holds');
  await other.break(name);
  assert.deepEqual(await child.ended, [5, null]);
  assert.ok(await other.tryAcquire(`${name}-2`));
}, alone);
