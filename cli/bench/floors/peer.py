"""Common code of the peer-NAME programs. Each measures a lock of other software, as floor.h says for floor programs.

    peer-NAME OPERATION MILLISECONDS [WORKERS [HOLD_MS]]      with the URI as a line on standard input

OPERATION is one of
    about      acquires the lock once, and prints a line that says what is measured
    cycle      measures an acquire and its release
    hand-over  WORKERS processes want one lock; each holds it for HOLD_MS and pauses as long. Measures the time from a
               release to the grant of another process that waits

A grant that ends after MILLISECONDS does not count. The last two print lines "NANOSECONDS COUNT", for each worker
"worker GRANTS OVERLAPS", then "end". Exit status 77: the library is not installed, or the program does not understand
this URI."""
import mmap
import os
import signal
import sys
import time
import urllib.parse

SKIPPED = 77
PATIENCE = 10  # longest wait for a lock, in seconds
NS = 1_000_000_000
# Indices into the board, memory that all workers share; after READY there is a flag for each worker that is ready.
STOP, LEFT_BY, LEFT_NS, OWNER, READY = range(5)


class Address:
    """The parts of a URI that a client needs."""

    def __init__(self, uri, scheme):
        parts = urllib.parse.urlsplit(uri)
        keys = urllib.parse.parse_qs(parts.query)
        if parts.scheme != scheme or not parts.netloc or "password_file" in keys or "socket" in keys:
            sys.exit(SKIPPED)
        login, _, self.hosts = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        self.user, self.password = urllib.parse.unquote(user), urllib.parse.unquote(password)
        self.path = urllib.parse.unquote(parts.path)
        self.keys = {key: values[-1] for key, values in keys.items()}


def _cycles(connect, ms):
    lock = connect()
    lock.take()  # the first cycle may be slower and is not counted
    lock.give()
    samples = []
    begun = time.monotonic_ns()
    end = begun + ms * NS // 1000
    while begun < end:
        lock.take()
        lock.give()
        done = time.monotonic_ns()
        if done <= end:
            samples.append(done - begun)
        begun = done
    return samples, [(len(samples), 0)]


def _contend(connect, board, me, hold_s):
    """Returns the samples of worker `me`, its number of grants, and how often another worker held the lock as well."""
    lock = connect()
    lock.take()
    lock.give()
    parent, samples, grants, overlaps = os.getppid(), [], 0, 0
    board[READY + me] = 1
    while board[STOP] == 0 and os.getppid() == parent:
        time.sleep(0.0001)
    while (asked := time.monotonic_ns()) < board[STOP] and os.getppid() == parent:
        lock.take()
        got, left_ns = time.monotonic_ns(), board[LEFT_NS]
        handed_over = board[LEFT_BY] != me and asked < left_ns
        overlaps += board[OWNER] != 0
        board[OWNER] = me
        time.sleep(hold_s) if hold_s else None
        overlaps += board[OWNER] != me
        board[OWNER] = 0
        board[LEFT_BY], board[LEFT_NS] = me, (done := time.monotonic_ns())
        lock.give()
        if done <= board[STOP]:
            grants += 1
            samples += [got - left_ns] if handed_over else []
        time.sleep(hold_s) if hold_s else None
    return samples, grants, overlaps


def _worker(connect, board, me, hold_s, out):
    status = 1
    try:
        samples, grants, overlaps = _contend(connect, board, me, hold_s)
        with os.fdopen(out, "w") as file:
            print(grants, overlaps, *samples, file=file)
        status = 0
    except Exception as error:  # pylint: disable=broad-except
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
    finally:
        os._exit(status)


def _hand_over(connect, ms, n_workers, hold_s):
    board = memoryview(mmap.mmap(-1, 8 * (READY + n_workers + 1))).cast("q")
    pids, pipes = [], []
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGKILL) for pid in pids] and os._exit(1))
    for me in range(1, n_workers + 1):
        pipe, out = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _worker(connect, board, me, hold_s, out)
        os.close(out)
        pids.append(pid)
        pipes.append(pipe)
    deadline = time.monotonic() + PATIENCE
    while sum(board[READY + 1:]) < n_workers and time.monotonic() < deadline:
        time.sleep(0.001)
    board[STOP] = time.monotonic_ns() + ms * NS // 1000
    samples, workers = [], []
    for pid, pipe in zip(pids, pipes):
        with os.fdopen(pipe) as file:
            told = [int(word) for word in file.read().split()]
        if os.waitpid(pid, 0)[1] != 0:
            sys.exit(1)
        workers.append(told[:2])
        samples += told[2:]
    return samples, workers


def main(about, connect):
    """Runs the operation of the command line. `connect` returns a lock on a connection of its own, with the methods
    take(), which blocks until it has the lock, and give(). `about` is the line that the operation about prints."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    operation, ms = sys.argv[1], int(sys.argv[2])
    n_workers, hold_ms = (int(word) for word in (sys.argv[3:] + ["1", "0"][len(sys.argv) - 3:])[:2])
    if operation == "about":
        lock = connect()
        lock.take()
        lock.give()
        print(about)
        return
    if operation == "cycle":
        samples, workers = _cycles(connect, ms)
    elif operation == "hand-over" and n_workers > 1:
        samples, workers = _hand_over(connect, ms, n_workers, hold_ms / 1000)
    else:
        sys.exit(SKIPPED)
    for sample in samples:
        print(sample, 1)
    for grants, overlaps in workers:
        print("worker", grants, overlaps)
    print("end")
