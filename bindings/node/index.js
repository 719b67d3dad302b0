'use strict';
// dlock for Node: clients, grants and errors over the addon in src/, which has one function for each call of the library.

const { AsyncLocalStorage } = require('node:async_hooks');
const { EventEmitter } = require('node:events');
const native = require(process.env.DLOCK_NODE_ADDON || './build/Release/dlock.node');

const FOREVER = -1;
const MODES = { exclusive: 0, shared: 1, permit: 2 };
const FIXED_LEASE = 1;
const LOSSES = [undefined, 'expired', 'fixed-end', 'broken', 'forgotten', 'session'];
const RETRY = ['DLOCK_EBUSY', 'DLOCK_ETIMEDOUT', 'DLOCK_EUNAVAILABLE', 'DLOCK_ENOTREADY'];
const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');

// ---- errors

// Every error of the library. `code` is its name in dlock.h, and `errors` describes each.
class DlockError extends Error {
  constructor(errno, message, lock) {
    const known = native.errors[-errno - 1];
    super(message || known.text);
    this.code = known.code;
    this.errno = errno;
    this.advice = known.advice;
    this.retry = RETRY.includes(known.code);
    if (lock !== undefined) this.lock = lock;
  }
}
Object.defineProperty(DlockError.prototype, 'name', { value: 'DlockError' });

const errors = Object.freeze(Object.fromEntries(native.errors.map((error) => [error.code, Object.freeze(error)])));
const fail = (code, message, lock) => new DlockError(errors[code].errno, message, lock);

// Returns what the addon has returned, unless that is a failure.
function check(result, lock) {
  if (result?.errno < 0) throw new DlockError(result.errno, result.message, lock);
  return result;
}

// ---- arguments

const invalid = (message) => fail('DLOCK_EINVAL', message);

function string(value, what) {
  if (typeof value !== 'string') throw invalid(`${what} must be a string, not ${value === null ? 'null' : typeof value}`);
  if (value.includes('\0')) throw invalid(`${what} has a NUL in it`);
  return value;
}

// A number is milliseconds, as elsewhere in Node; a string is what the library takes: '500ms', '10s', '2m'.
function milliseconds(value, what) {
  if (typeof value === 'string') {
    const result = native.duration(string(value, what));
    if (result.errno) throw invalid(`${what} "${value}": ${result.message}`);
    return result;
  }
  if (typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER) return Math.ceil(value);
  throw invalid(`${what} must be milliseconds, or a text such as '10s', not ${String(value)}`);
}

const KNOWN = ['timeout', 'signal', 'shared', 'permits', 'lease', 'fixed'];

function terms(options) {
  const { timeout, signal, shared = false, permits, lease, fixed = false } = options;
  const unknown = Object.keys(options).find((key) => !KNOWN.includes(key));
  if (unknown !== undefined) throw invalid(`there is no option "${unknown}"; there are ${KNOWN.join(', ')}`);
  if (shared && permits !== undefined) throw invalid('a lock is either shared or has permits');
  if (permits !== undefined && !(Number.isInteger(permits) && permits > 0 && permits < 2 ** 31)) {
    throw invalid(`permits must be a positive integer, not ${String(permits)}`);
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw invalid('signal must be an AbortSignal');
  return {
    signal,
    timeout: timeout === undefined || timeout === Infinity ? FOREVER : milliseconds(timeout, 'timeout'),
    mode: permits !== undefined ? MODES.permit : shared ? MODES.shared : MODES.exclusive,
    limit: permits ?? 0,
    flags: fixed ? FIXED_LEASE : 0,
    lease: lease === undefined ? 0 : milliseconds(lease, 'lease'),
  };
}

// Rejects as soon as the signal is aborted; a lock that is granted nevertheless is released.
function unlessAborted(granted, signal, cancel) {
  if (!signal) return granted;
  return new Promise((resolve, reject) => {
    const aborted = () => {
      cancel();
      reject(signal.reason);
    };
    signal.addEventListener('abort', aborted, { once: true });
    granted
      .then((grant) => (signal.aborted ? grant.release() : resolve(grant)))
      .catch(reject)
      .finally(() => signal.removeEventListener('abort', aborted));
  });
}

// ---- grants

// What the client knows of a grant. It does not refer to the Grant, which the program may drop.
class Held {
  constructor(client, handle, id, name, mode) {
    Object.assign(this, { client, handle, id, name, mode, abort: new AbortController(), ending: undefined });
    this.fence = native.state(handle).fence;
    client._held.set(id, this);
  }

  release() {
    this.ending ??= this.client._track(
      (async () => {
        dropped.unregister(this);
        const result = await native.release(this.handle);
        this.client._held.delete(this.id);
        if (result) throw this.error(result.errno, result.message);
      })(),
    );
    return this.ending;
  }

  error(errno, message) {
    return Object.assign(new DlockError(errno, message, this.name), { fence: this.fence });
  }

  lose(loss, message) {
    const error = Object.assign(this.error(errors.DLOCK_ELOST.errno, message), { loss: LOSSES[loss] });
    this.abort.abort(error);
    this.client.emit('lost', error);
  }
}

const dropped = new FinalizationRegistry((held) => {
  process.emitWarning(`a grant of lock "${held.name}" was dropped without a release, and is released now`, {
    type: 'DlockWarning',
  });
  held.release().catch(() => {});
});

class Grant {
  #held;
  constructor(held) {
    this.#held = held;
    dropped.register(this, held, held);
  }

  get name() {
    return this.#held.name;
  }
  get fence() {
    return this.#held.fence;
  }
  get signal() {
    return this.#held.abort.signal;
  }
  get token() {
    return native.state(this.#held.handle)?.token ?? '';
  }
  get held() {
    return !this.#held.ending && (native.state(this.#held.handle)?.held ?? false);
  }
  get remaining() {
    return this.held ? native.state(this.#held.handle).remaining : 0;
  }

  async extend(lease = 0) {
    const held = this.#current();
    check(await held.client._track(native.extend(held.handle, milliseconds(lease, 'lease'))), held.name);
  }

  async downgrade() {
    const held = this.#current();
    check(await held.client._track(native.downgrade(held.handle, 0)), held.name);
    held.fence = native.state(held.handle)?.fence ?? held.fence;
    held.mode = MODES.shared;
  }

  async release() {
    await this.#current().release();
  }

  async [asyncDispose]() {
    if (!this.#held.ending) await this.release();
  }

  #current() {
    if (this.#held.ending) throw fail('DLOCK_EOWNER', `lock "${this.name}" is released already`, this.name);
    return this.#held;
  }

  // True if who has this grant would wait for itself for a lock of that mode.
  _blocks(client, name, mode) {
    const held = this.#held;
    if (held.client !== client || held.name !== name || held.ending) return false;
    return mode !== MODES.permit && held.mode !== MODES.permit && !(mode === MODES.shared && held.mode === MODES.shared);
  }
}

// The grants of acquireAll, in the order of its names.
class Grants extends Array {
  static get [Symbol.species]() {
    return Array;
  }

  async release() {
    const results = await Promise.allSettled(this.map((grant) => grant[asyncDispose]()));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed) throw failed.reason;
  }

  async [asyncDispose]() {
    await this.release();
  }
}

// ---- clients

const entered = new AsyncLocalStorage(); // the grants of the `using` blocks around the running code
const open = new Set(); // the addon's values of the clients that are not closed
const abandoned = new FinalizationRegistry((handle) => {
  if (open.delete(handle)) native.close(handle);
});
process.on('exit', () => open.forEach((handle) => native.leave(handle)));

class Client extends EventEmitter {
  #native;
  #ids = 0;
  #busy = 0;
  #idle;
  #closing;

  constructor(uri) {
    super();
    const held = new Map(); // by id; the addon refers to this function, which must not refer to the client
    this._held = held;
    this.#native = check(native.open(string(uri, 'the URI'), (id, loss, message) => held.get(id)?.lose(loss, message)));
    open.add(this.#native);
    abandoned.register(this, this.#native, this.#native);
    this.backend = Object.freeze(native.backend(this.#native));
  }

  async acquire(name, options = {}) {
    const wanted = terms(options);
    wanted.signal?.throwIfAborted();
    return await this.#acquire(string(name, 'the name'), wanted, wanted.timeout);
  }

  async tryAcquire(name, options = {}) {
    try {
      return await this.acquire(name, { ...options, timeout: 0 });
    } catch (error) {
      if (error.code === 'DLOCK_EBUSY') return null;
      throw error;
    }
  }

  // As dlock_acquire_all, without its thread: all are tried at once; of those that are granted only the ones before the
  // first that is not, by name, are kept while that one is waited for, so that no circle of waits can close.
  async acquireAll(names, options = {}) {
    const wanted = terms(options);
    const sorted = [...names].map((name) => string(name, 'the name')).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    const twice = sorted.find((name, i) => i > 0 && name === sorted[i - 1]);
    if (twice !== undefined) throw fail('DLOCK_EDEADLK', `lock "${twice}" occurs twice`, twice);
    const deadline = performance.now() + wanted.timeout;
    const grants = new Map();
    const giveBack = (which) => {
      const given = which.map((name) => grants.get(name)).filter(Boolean);
      which.forEach((name) => grants.delete(name));
      return Promise.allSettled(given.map((grant) => grant[asyncDispose]()));
    };
    try {
      for (;;) {
        wanted.signal?.throwIfAborted();
        await giveBack([...grants.keys()].filter((name) => grants.get(name).signal.aborted)); // lost in the meantime
        const missing = sorted.filter((name) => !grants.has(name));
        if (missing.length === 0) return Grants.from(names, (name) => grants.get(name));
        const tries = await Promise.allSettled(missing.map((name) => this.#acquire(name, wanted, 0)));
        tries.forEach((result, i) => result.status === 'fulfilled' && grants.set(missing[i], result.value));
        const at = tries.findIndex((result) => result.status === 'rejected');
        if (at < 0) continue;
        const { reason } = tries[at];
        if (!reason.retry || wanted.timeout === 0) throw reason;
        const first = missing[at];
        await giveBack(sorted.slice(sorted.indexOf(first)));
        const left = wanted.timeout === FOREVER ? FOREVER : Math.max(deadline - performance.now(), 1);
        grants.set(first, await this.#acquire(first, wanted, left));
      }
    } catch (error) {
      await giveBack([...grants.keys()]);
      throw error;
    }
  }

  async using(name, options, work) {
    if (typeof options === 'function') [options, work] = [{}, options];
    const names = Array.isArray(name) ? name : [name];
    const outer = entered.getStore() ?? [];
    const { mode } = terms(options);
    const mine = names.find((each) => outer.some((grant) => grant._blocks(this, each, mode)));
    if (mine !== undefined) throw fail('DLOCK_EDEADLK', `lock "${mine}" is held by the block around this one`, mine);
    const grants = Array.isArray(name) ? await this.acquireAll(name, options) : [await this.acquire(name, options)];
    const all = Grants.from(grants);
    let result;
    try {
      result = await entered.run([...outer, ...grants], work, Array.isArray(name) ? grants : grants[0]);
    } catch (error) {
      await all.release().catch(() => {});
      throw error;
    }
    await all.release().catch((error) => {
      if (error.code !== 'DLOCK_EUNAVAILABLE') throw error;
      process.emitWarning(error); // the lock protected the work to its end, and becomes free with its lease
    });
    return result;
  }

  inspect(name) {
    return this.#look(native.inspect, string(name, 'the name'));
  }
  list(prefix = '') {
    return this.#look(native.list, string(prefix, 'the prefix'));
  }
  async break(name) {
    await this.#look(native.break, string(name, 'the name'));
  }
  stats() {
    return native.stats(this.#native);
  }

  stop() {
    native.stop(this.#native);
  }

  close() {
    this.#closing ??= (async () => {
      this.stop();
      if (this.#busy > 0) await new Promise((resolve) => (this.#idle = resolve));
      const held = [...this._held.values()];
      held.forEach((each) => each.ending || each.abort.abort(fail('DLOCK_ECANCELED', 'the client is closed', each.name)));
      await Promise.allSettled(held.map((each) => each.release()));
      open.delete(this.#native);
      abandoned.unregister(this.#native);
      await native.close(this.#native);
    })();
    return this.#closing;
  }

  async [asyncDispose]() {
    await this.close();
  }

  async #look(job, name) {
    return check(await this._track(job(this.#native, name)), name) ?? [];
  }

  async #acquire(name, wanted, timeout) {
    const { signal, mode } = wanted;
    const id = ++this.#ids;
    const handle = check(native.create(this.#native, id, name, mode, wanted.limit, wanted.flags, wanted.lease), name);
    const ask = async () => {
      check(await native.acquire(handle, timeout), name);
      return new Grant(new Held(this, handle, id, name, mode));
    };
    return await unlessAborted(this._track(ask()), signal, () => native.cancel(handle));
  }

  // close() waits until this promise, or failure, has ended.
  async _track(promise) {
    this.#busy++;
    try {
      return await promise;
    } finally {
      if (--this.#busy === 0) this.#idle?.();
    }
  }
}

module.exports = { Client, DlockError, Grant, errors, version: native.version };
