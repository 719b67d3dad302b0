// A program that `tsc --strict` takes as it stands. It is not run.
import dlock, { Client, DlockError, errors, type Grant, type Grants, type Holder } from '../../../bindings/node/index';

async function main(): Promise<void> {
  const client = new Client('mem:');
  client.on('lost', (error) => console.log(error.lock, error.loss === 'expired'));

  const text: string = await client.using('nightly', { timeout: '5s' }, async (grant) => {
    const fence: bigint = grant.fence;
    grant.signal.throwIfAborted();
    return `${fence}`;
  });
  const number: number = await client.using('nightly', () => 7);
  await client.using(['a', 'b'], { permits: 2, lease: 5000 }, (grants) => grants.map((each) => each.name));

  const grant: Grant = await client.acquire('nightly', { signal: new AbortController().signal });
  await grant[Symbol.asyncDispose]();
  const tried: Grant | null = await client.tryAcquire('nightly', { shared: true });
  await tried?.release();
  const all: Grants = await client.acquireAll(['a', 'b'] as const);
  await all.release();
  const holders: Holder[] = await client.inspect('nightly');

  // @ts-expect-error: a try has no timeout
  await client.tryAcquire('nightly', { timeout: 5 });
  // @ts-expect-error: a fence is a bigint
  const wrong: number = grant.fence;
  // @ts-expect-error: only the library makes grants
  new dlock.Grant();

  try {
    await client.close();
  } catch (error) {
    if (error instanceof DlockError && error.code === 'DLOCK_ELOST') console.log(errors[error.code].advice, error.retry);
  }
  console.log(text, number, holders, wrong);
}

void main();
