declare global {
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
  }
}

/** Milliseconds, or a text such as '500ms', '10s' or '2m'. */
export type Duration = number | string;
export type Mode = 'exclusive' | 'shared' | 'permit';
export type LossReason = 'expired' | 'fixed-end' | 'broken' | 'forgotten' | 'session';

export type ErrorCode =
  | 'DLOCK_EBUSY' | 'DLOCK_ETIMEDOUT' | 'DLOCK_ECANCELED' | 'DLOCK_ELOST' | 'DLOCK_EOWNER' | 'DLOCK_EDEADLK'
  | 'DLOCK_EUNAVAILABLE' | 'DLOCK_EAUTH' | 'DLOCK_EINVAL' | 'DLOCK_ENOMEM' | 'DLOCK_ENOTSUP' | 'DLOCK_EPROTO'
  | 'DLOCK_ENOBACKEND' | 'DLOCK_EABI' | 'DLOCK_EFORKED' | 'DLOCK_ENOTREADY';

export declare class DlockError extends Error {
  private constructor();
  readonly code: ErrorCode;
  /** The negative number of the code in dlock.h. */
  readonly errno: number;
  /** What the caller should do. */
  readonly advice: string;
  /** True if the same call may succeed later. */
  readonly retry: boolean;
  /** The lock's name, unless the error is not about one. */
  readonly lock?: string;
  /** Of a release, or of a loss: the grant's fence. */
  readonly fence?: bigint;
  /** Why a grant was lost; on the reason of `signal` and on the event 'lost'. */
  readonly loss?: LossReason;
}

/** Each code with its number, its text and what to do. */
export declare const errors: Readonly<
  Record<ErrorCode, Readonly<{ code: ErrorCode; errno: number; text: string; advice: string }>>
>;

/** The library's version. */
export declare const version: string;

export interface LockOptions {
  /** As a reader. */
  shared?: boolean;
  /** One of so many permits; all holders give the same number. */
  permits?: number;
  /** Default: the URI's `lease`. */
  lease?: Duration;
  /** Do not renew the grant: it ends with its lease, unless it is extended. */
  fixed?: boolean;
  /** Ends the wait, which rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface WaitOptions extends LockOptions {
  /** Default: without a limit. 0 tries once. */
  timeout?: Duration;
}

export declare class Grant {
  private constructor();
  readonly name: string;
  /** Greater than that of every earlier grant of the name: the resource that the lock protects refuses smaller ones. */
  readonly fence: bigint;
  /** Names the holder at the server; '' after the release. */
  readonly token: string;
  /** Aborted when the grant is lost, with a DlockError as its reason, or when its client is closed. */
  readonly signal: AbortSignal;
  /** False after the loss or the release. */
  readonly held: boolean;
  /** For how many milliseconds the grant is valid without a further renewal; Infinity where it ends with the process. */
  readonly remaining: number;
  /** Restarts the lease, with another length if it is `fixed`. */
  extend(lease?: Duration): Promise<void>;
  /** Makes a reader of the writer. */
  downgrade(): Promise<void>;
  /** Rejects with DLOCK_ELOST if the grant had ended before: the work may have overlapped another holder's. */
  release(): Promise<void>;
  /** As release(), unless that was called. */
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Grants extends Array<Grant> {
  /** Releases those that are not released yet, even if one of them fails. */
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A holder of a lock, as the server reports it; it may be outdated. */
export interface Holder {
  name: string;
  token: string;
  mode: Mode;
  waiters: number;
  limit: number;
  fence: bigint;
  /** Milliseconds; missing if unknown. */
  remaining?: number;
}

/** Counters since the client was made; times are milliseconds. */
export interface Stats {
  grants: number;
  localGrants: number;
  losses: number;
  renewals: number;
  renewalFailures: number;
  reconnects: number;
  waiting: number;
  waits: number;
  waited: number;
  held: number;
  lastAnswer: number;
}

/** A client of one server, for the event loop that makes it. It connects with its first operation. */
export declare class Client {
  constructor(uri: string);
  readonly backend: Readonly<{ name: string; capabilities: readonly string[] }>;

  /** Holds the lock while `work` runs, and returns its result. Rejects with DLOCK_ELOST if the lock was lost. */
  using<T>(name: string, work: (grant: Grant) => T): Promise<Awaited<T>>;
  using<T>(name: string, options: WaitOptions, work: (grant: Grant) => T): Promise<Awaited<T>>;
  using<T>(names: readonly string[], work: (grants: Grants) => T): Promise<Awaited<T>>;
  using<T>(names: readonly string[], options: WaitOptions, work: (grants: Grants) => T): Promise<Awaited<T>>;

  acquire(name: string, options?: WaitOptions): Promise<Grant>;
  /** Null if somebody else holds the lock. */
  tryAcquire(name: string, options?: LockOptions): Promise<Grant | null>;
  /** All or none, without deadlock in whatever order the names are listed. */
  acquireAll(names: readonly string[], options?: WaitOptions): Promise<Grants>;

  inspect(name: string): Promise<Holder[]>;
  list(prefix?: string): Promise<Holder[]>;
  /** Takes the lock away from its holders. */
  break(name: string): Promise<void>;
  stats(): Stats;

  /** Ends the waits, and refuses new ones; what is held stays held. */
  stop(): void;
  /** Ends the waits, releases everything and closes the connection. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;

  /** A grant was lost; the error is also the reason of the grant's `signal`. Clients are EventEmitters. */
  on(event: 'lost', listener: (error: DlockError) => void): this;
  once(event: 'lost', listener: (error: DlockError) => void): this;
  off(event: 'lost', listener: (error: DlockError) => void): this;
}

declare const dlock: {
  Client: typeof Client;
  DlockError: typeof DlockError;
  Grant: typeof Grant;
  errors: typeof errors;
  version: typeof version;
};
export default dlock;
