'use strict';
// The cases of bindings/cases.md: cases_test.js BACKEND ABI

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const { PACKAGE, backend, define, sleep, test, threads, until, uri } = require('./support.js');
const { Client, DlockError, errors } = require(PACKAGE);

const abi = JSON.parse(fs.readFileSync(process.argv[3]));
const page = fs.readFileSync(path.join(PACKAGE, '../cases.md'), 'utf8');
const cases = new Map();
for (const [, number, name, needs] of page.matchAll(/^\| (\d+) \| ([a-z-]+) \| .* \| ([a-z]*) ?\|$/gm)) cases.set(+number, { name, needs });
const { capabilities } = new Client(uri()).backend;
const given = [...capabilities, backend, ...(backend === 'mem' ? [] : ['processes']), ...(backend === 'file' ? [] : ['leases'])];

function covers(number, run) {
  const { name, needs } = cases.get(number);
  cases.delete(number);
  define(`${number} ${name}`, run, needs && !given.includes(needs) && `${backend} has no ${needs}`);
}

const code = (expected) => (error) => error instanceof DlockError && error.code === `DLOCK_${expected}`;
const until_aborted = (signal) => sleep(100_000, undefined, { signal, ref: true });

// ---- blocks

covers(1, async ({ client, name, free }) => {
  const result = await client.using(name, async (grant) => [grant.held, await free()]);
  assert.deepEqual(result, [true, false]);
  assert.ok(await free());
});

covers(2, async ({ client, name, free }) => {
  const own = new TypeError('of the block');
  await assert.rejects(client.using(name, async () => Promise.reject(own)), (error) => error === own);
  await assert.rejects(client.using(name, () => { throw own; }), (error) => error === own);
  assert.ok(await free());
});

covers(3, async ({ client, name, free }) => {
  const early = async () => {
    for (;;) return 'early';
  };
  assert.equal(await client.using(name, early), 'early');
  assert.ok(await free());
});

covers(4, async ({ client, name, free }) => {
  const work = new AbortController();
  const block = client.using(name, () => {
    setImmediate(() => work.abort());
    return until_aborted(work.signal);
  });
  await assert.rejects(block, { name: 'AbortError' });
  assert.ok(await free());
});

covers(5, async ({ client, other, name }) => {
  let next;
  await client.using(name, async (grant) => {
    await grant.release();
    next = await other.acquire(name);
  });
  assert.ok(next.held);
});

covers(6, async ({ client, other, name, free }) => {
  const grant = await client.acquire(name);
  await grant.release();
  const next = await other.acquire(name);
  await assert.rejects(grant.release(), code('EOWNER'));
  assert.ok(next.held && !(await free(client)));
});

// ---- waits

covers(7, async ({ client, name }) => {
  const grant = await client.tryAcquire(name);
  assert.ok(grant.held && grant.token && grant.name === name && grant.remaining > 0);
});

covers(8, async ({ client, other, name }) => {
  await other.acquire(name);
  assert.equal(await client.tryAcquire(name), null);
  await assert.rejects(client.acquire(name, { timeout: 0 }), code('EBUSY'));
});

covers(9, async ({ client, other, name }) => {
  await other.acquire(name);
  const begun = performance.now();
  await assert.rejects(client.acquire(name, { timeout: '300ms' }), code('ETIMEDOUT'));
  assert.ok(performance.now() - begun >= 299);
});

covers(10, async ({ client, other, name }) => {
  const grant = await other.acquire(name);
  const wait = client.acquire(name);
  await until(() => client.stats().waiting === 1);
  await grant.release();
  assert.ok((await wait).held);
});

covers(11, async ({ client, other, name }) => {
  const grant = await other.acquire(name);
  const order = [];
  const waits = [1, 2, 3].map((number) => client.using(name, () => order.push(number)));
  await until(() => client.stats().waiting === 3);
  await grant.release();
  await Promise.all(waits);
  assert.deepEqual(order, [1, 2, 3]);
});

covers(12, async ({ client, other, name, free }) => {
  const grant = await other.acquire(name);
  const stop = new AbortController();
  const wait = client.acquire(name, { signal: stop.signal });
  await until(() => client.stats().waiting === 1);
  const reason = new Error('the user went away');
  stop.abort(reason);
  await assert.rejects(wait, (error) => error === reason);
  await grant.release();
  await until(() => free());
  assert.equal(client.stats().held, 0);
});

covers(13, async ({ client, name }) => {
  await assert.rejects(client.acquire(name, { signal: AbortSignal.abort() }), { name: 'AbortError' });
  assert.equal(client.stats().lastAnswer, -1);
});

covers(14, async ({ client, other, name, free }) => {
  for (let pause = 0; pause < 20; pause++) {
    const grant = await other.acquire(name, { timeout: '60s' });
    const stop = new AbortController();
    const wait = client.acquire(name, { signal: stop.signal });
    await until(() => client.stats().waiting === 1);
    const released = grant.release();
    for (let turn = 0; turn < pause; turn++) await new Promise(setImmediate);
    stop.abort();
    await Promise.allSettled([released, wait.then((late) => late.release())]);
  }
  await until(() => free());
});

covers(15, async ({ client, name }) => {
  await client.using(name, async () => {
    await assert.rejects(client.using(name, () => assert.fail('entered')), code('EDEADLK'));
    await assert.rejects(client.using(['a', name], () => assert.fail('entered')), code('EDEADLK'));
  });
  assert.equal(await client.using(name, () => 1), 1);
});

// ---- readers, permits, several locks

covers(16, async ({ client, other, name, free }) => {
  const readers = [await client.acquire(name, { shared: true }), await other.acquire(name, { shared: true })];
  assert.ok(!(await free()));
  await readers[0].release();
  assert.ok(!(await free(client)));
  await readers[1].release();
  await until(() => free());
});

covers(17, async ({ client, other, name, free }) => {
  const grant = await client.acquire(name);
  const { fence } = grant;
  await grant.downgrade();
  assert.ok(grant.fence > fence && grant.held);
  assert.ok(!(await free()));
  await (await other.acquire(name, { shared: true, timeout: '60s' })).release();
});

covers(18, async ({ client, other, name }) => {
  const options = { permits: 2 };
  const first = await client.acquire(name, options);
  await other.acquire(name, options);
  assert.equal(await other.tryAcquire(name, options), null);
  const wait = other.acquire(name, options);
  await first.release();
  assert.ok((await wait).held);
});

covers(19, async ({ client, other, name }) => {
  await client.acquire(name, { permits: 2 });
  await assert.rejects(other.acquire(name, { permits: 3, timeout: '60s' }), code('EINVAL'));
});

covers(20, async ({ client, other, name }) => {
  const names = ['a', 'b', 'c'].map((end) => `${name}-${end}`);
  let inside = 0;
  const work = async (grants) => {
    assert.equal(++inside, 1);
    assert.ok(grants.every((grant) => grant.held));
    await sleep(1);
    inside--;
  };
  const rounds = async (by, order) => {
    for (let i = 0; i < 10; i++) await by.using(order, work);
  };
  await Promise.all([rounds(client, names), rounds(other, [...names].reverse()), rounds(client, names)]);
});

covers(21, async ({ client, other, name }) => {
  const names = [`${name}-a`, name, `${name}-z`];
  await other.acquire(name);
  await assert.rejects(client.acquireAll(names, { timeout: '300ms' }), code('ETIMEDOUT'));
  await assert.rejects(client.acquireAll(names, { timeout: 0 }), code('EBUSY'));
  for (const each of [names[0], names[2]]) assert.ok((await other.tryAcquire(each)).held);
});

covers(22, async ({ client, name }) => {
  await assert.rejects(client.acquireAll([name, 'x', name]), code('EDEADLK'));
});

// ---- leases and fences

covers(23, async ({ client, name }) => {
  const grant = await client.acquire(name, { fixed: true, lease: '5s' });
  const { fence } = grant;
  await grant.extend('60s');
  assert.ok(grant.remaining > 30_000 && grant.fence === fence);
});

covers(24, async ({ open, name, free }) => {
  const grant = await open({ lease: '800ms' }).acquire(name);
  await sleep(2500);
  assert.ok(grant.held && !(await free()));
});

covers(25, async ({ client, other, name }) => {
  let last = 0n;
  for (let i = 0; i < 6; i++) {
    const { fence } = await (i % 2 ? client : other).using(name, (grant) => grant);
    assert.ok(typeof fence === 'bigint' && fence > last && fence < 2n ** 64n);
    last = fence;
  }
});

// ---- losses: another client takes the lock away

const short = { lease: '1s' }; // the holder asks for a renewal so often

covers(26, async ({ open, other, name }) => {
  const client = open(short);
  const told = [];
  client.on('lost', (error) => told.push(error));
  const grant = await client.acquire(name);
  await other.break(name);
  await assert.rejects(until_aborted(grant.signal));
  const { reason } = grant.signal;
  assert.deepEqual(told, [reason]);
  assert.ok(code('ELOST')(reason) && reason.message.includes(name));
  assert.deepEqual([reason.lock, reason.fence, reason.loss], [name, grant.fence, backend === 'redis' ? reason.loss : 'broken']);
  assert.ok(!grant.held && grant.remaining === 0);
});

covers(27, async ({ open, other, name }) => {
  const block = open(short).using(name, async (grant) => {
    await other.break(name);
    await until(() => !grant.held);
  });
  await assert.rejects(block, code('ELOST'));
});

covers(28, async ({ open, other, name }) => {
  const block = open(short).using(name, async (grant) => {
    await other.break(name);
    await until_aborted(grant.signal);
  });
  await assert.rejects(block, (error) => error.name === 'AbortError' && code('ELOST')(error.cause));
});

covers(29, async ({ open, other, name }) => {
  const client = open(short);
  const grant = await client.acquire(name);
  await other.break(name);
  await until(() => grant.signal.aborted);
  await assert.rejects(grant.release(), (error) => code('ELOST')(error) && error.fence === grant.fence);
  assert.ok((await client.acquire(name, { timeout: '60s' })).fence > grant.fence);
});

covers(30, async ({ open, other, name, free }) => {
  await assert.rejects(other.break(name), code('EOWNER'));
  const grant = await open(short).acquire(name);
  await other.break(name);
  await until(() => grant.signal.aborted);
  await until(() => free());
});

// ---- the end of a client

covers(31, async ({ client, other, name }) => {
  await other.acquire(name);
  const wait = client.acquire(name);
  await until(() => client.stats().waiting === 1);
  await Promise.all([client.close(), assert.rejects(wait, code('ECANCELED'))]);
});

covers(32, async ({ client, name, free }) => {
  const grant = await client.acquire(name);
  await client.close();
  assert.ok(!grant.held && code('ECANCELED')(grant.signal.reason));
  assert.ok(await free());
});

covers(33, async ({ client, name }) => {
  await client.close();
  await client.close();
  await assert.rejects(client.acquire(name), code('ECANCELED'));
  await assert.rejects(client.inspect(name), code('ECANCELED'));
});

covers(34, async ({ client, name, t }) => {
  const grant = await client.acquire(name);
  const worker = new Worker(
    `const { parentPort, workerData } = require('node:worker_threads');
     const { Client } = require(workerData.path);
     (async () => {
       const client = new Client(workerData.uri);
       parentPort.postMessage(await client.tryAcquire(workerData.name));
       const grant = await client.acquire(workerData.name);
       parentPort.postMessage(grant.held);
     })();`, // its end while it holds the lock releases that
    { eval: true, workerData: { path: PACKAGE, uri: uri(), name } },
  );
  t.after(() => worker.terminate());
  const message = () => new Promise((resolve) => worker.once('message', resolve));
  assert.equal(await message(), null);
  const second = message();
  await grant.release();
  assert.equal(await second, true);
  await worker.terminate();
  assert.ok((await client.acquire(name, { timeout: 5000 })).held);
});

// ---- processes

covers(35, async ({ run, free }) => {
  const [status] = await run(`new Client(uri).acquire(name).then(() => process.exit(3))`).ended;
  assert.equal(status, 3);
  assert.ok(await free());
});

const WAIT = `const client = new Client(uri); const stop = new AbortController();
  const wait = client.acquire(name, { signal: stop.signal });
  const timer = setInterval(() => client.stats().waiting && (clearInterval(timer), console.log('waits')), 5);`;

covers(36, async ({ client, name, run, free }) => {
  const grant = await client.acquire(name);
  const child = run(`${WAIT} process.on('SIGTERM', () => process.exit(3));`);
  assert.equal(await child.line(), 'waits');
  child.kill('SIGTERM');
  assert.deepEqual(await child.ended, [3, null]);
  await grant.release();
  assert.ok((await client.acquire(name, { timeout: '5s' })).held);
});

covers(37, async ({ client, name, run }) => {
  await client.acquire(name);
  const plain = run(WAIT);
  const handled = run(`${WAIT} process.on('SIGINT', () => stop.abort());
    wait.catch((error) => { console.log(error.name); process.exitCode = 4; return client.close(); });`);
  assert.deepEqual([await plain.line(), await handled.line()], ['waits', 'waits']);
  plain.kill('SIGTERM');
  assert.deepEqual(await plain.ended, [null, 'SIGTERM']);
  handled.kill('SIGINT');
  assert.equal(await handled.line(), 'AbortError');
  assert.deepEqual(await handled.ended, [4, null]);
});

// ---- many

const thousand = [...Array(1000).keys()];

covers(38, async ({ client, name, open }) => {
  await client.using(name, () => {});
  const before = threads();
  const grants = await Promise.all(thousand.map((i) => client.acquire(`${name}-${i}`)));
  assert.ok(grants.every((grant) => grant.held));
  assert.ok(threads() <= before + 8, `${before} threads, then ${threads()}`);
  await Promise.all(grants.map((grant) => grant.release()));
  assert.equal(client.stats().held, 0);
});

covers(39, async ({ client, other, name }) => {
  await client.using(name, () => {});
  await other.acquire(name);
  const before = threads();
  const waits = thousand.map(() => client.acquire(name));
  await until(() => client.stats().waiting === 1000);
  assert.ok(threads() <= before + 8, `${before} threads, then ${threads()}`);
  await Promise.all([client.close(), ...waits.map((wait) => assert.rejects(wait, code('ECANCELED')))]);
});

// ---- errors

covers(40, async () => {
  const told = abi.errors.slice(1).map(({ name, number, text, advice }) => ({ code: name, errno: number, text, advice }));
  assert.deepEqual(Object.values(errors), told);
});

covers(41, async ({ client, other, name }) => {
  const grant = await other.acquire(name);
  const error = await client.acquire(name, { timeout: 100 }).catch((caught) => caught);
  assert.ok(error.lock === name && error.retry && error.advice && error.message.includes(name));
  const [holder] = await client.inspect(error.lock);
  assert.deepEqual([holder.token, holder.mode], [grant.token, 'exclusive']);
  assert.deepEqual((await client.list(name)).map((each) => each.name), [name]);
});

covers(42, async ({ client, name }) => {
  const refused = (promise, word) => assert.rejects(promise, (error) => code('EINVAL')(error) && error.message.includes(word));
  await refused(client.acquire(''), 'name');
  await refused(client.acquire(7), 'name');
  await refused(client.acquire('a\0b'), 'NUL');
  await refused(client.acquire(name, { timeout: '5 parsecs' }), 'parsecs');
  await refused(client.acquire(name, { timeout: -1 }), 'timeout');
  await refused(client.acquire(name, { lease: '1ms' }), 'lease');
  await refused(client.acquire(name, { permits: 0 }), 'permits');
  await refused(client.acquire(name, { exclusive: true }), 'exclusive');
  await refused((async () => new Client(uri({ no_such_key: 1 })))(), 'no_such_key');
});

covers(43, async ({ name, t }) => {
  const client = new Client('redis://127.0.0.1:1?timeout=1s');
  t.after(() => client.close());
  let turns = 0;
  const timer = setInterval(() => turns++, 5);
  await assert.rejects(client.acquire(name, { timeout: '500ms' }), (error) => code('EUNAVAILABLE')(error) && error.retry);
  clearInterval(timer);
  assert.ok(turns > 10);
});

covers(44, async ({ client, name, free }) => {
  const warned = new Promise((resolve) => process.once('warning', resolve));
  await (async () => void (await client.acquire(name)))();
  let warning;
  warned.then((told) => (warning = told));
  await until(() => (globalThis.gc(), warning));
  assert.ok(warning.name === 'DlockWarning' && warning.message.includes(name));
  await until(() => free());
});

test('every case has its test', () => assert.deepEqual([...cases.keys()], []));
