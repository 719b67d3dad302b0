"""faults_test.py TARGET [--orphans | --kills | --only FAULT] [--fast] [--seconds S] [--seed N] [--slow MS]: processes
contend for a few locks on a server while faults hit processes, connections, clocks and the server, in an order drawn
from a seed. Prints a table. Fails if the history of grants breaks a rule, if a call returns an error that no fault
explains, if a process is not served in the end, or if anything is left on the server.

TARGET is one of nemesis.FAULTS. --orphans: the only fault is the loss of answers, as often as possible. --kills: the only
fault is that processes with a guardian are killed, one after the other. --only: the only faults are the server's whose
names begin with FAULT. --fast makes many grants: most holds last no time, and faults are rarer. --slow prints each
recovery that took longer than MS, and keeps the history. DLOCK_TEST_BIN names the directory of the programs. If
DLOCK_TEST_DIR is set, the table is also written to faults/TARGET.tsv there, for table.py.
"""
import argparse
import collections
import faulthandler
import glob
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import cluster_servers
import mysql_servers
import nemesis
import redis_servers
import relay
import servers
import standstill
from servers import LEASE_S, now_ns

SERVERS = {"file": servers.File, "redis": servers.Redis, "redis-aof": servers.RedisAof,
           "redis-pair": redis_servers.RedisPair, "redis-sentinel": redis_servers.RedisSentinel,
           "redis-cluster": cluster_servers.RedisCluster, "quorum": redis_servers.Quorum,
           "quorum-5": redis_servers.QuorumOfFive, "memcached": servers.Memcached,
           "memcached-sasl": servers.MemcachedSasl,
           "zookeeper": servers.Zookeeper, "ensemble": servers.Ensemble, "etcd": servers.Etcd,
           "etcd-cluster": servers.Cluster, "postgresql": servers.Postgresql,
           "postgresql-session": servers.PostgresqlSession, "mysql": mysql_servers.Mysql,
           "mysql-session": mysql_servers.MysqlSession}
ROUND_S = 60
NAMES, THREADS = 2, 3  # number of lock names, and of contending threads in a process
CROWD = 16, 24  # the same for batches: requests with many acquires
LEASE_NS = LEASE_S * 1000000000
LAST_S = 150  # the time in which every process must end, even on an overloaded machine
ORPHAN_S = 30
GUARDED = ", guardian"
ENOUGH = 3  # the number of recoveries needed to judge guardians
PROMPT_MS = 250  # the time for a guardian's release and the next grant
# The time after other harm until all its effects are over: dead waiters in queues, quarantines, sessions.
CALM_NS = 3 * LEASE_NS
BRIEFLY, WIDTH = 3, 200  # how many lines of each kind are printed at the end of a failure, and how much of each
# For each process: its addition to the URI, and whether it is behind the proxy.
KINDS = [("guardian=on", False), ("linger=20ms", False), ("", True), ("guardian=on&linger=5ms", True)]
KILLING = [("guardian=on", False)] * 4
LOSING, LOST = [("connections=1", True)] * 4, "wire: answers lost time and again"
SNATCH = 2  # with --orphans, one of this many answers is lost
CALM = 20  # the factor by which --fast extends the pauses between faults
CALM_ALONE = 2  # the same factor for --only
NO_LINGER = ("memcached", "memcached-sasl", "postgresql-session", "etcd", "etcd-cluster", "mysql", "mysql-session", "quorum",
             "quorum-5")


class Worker:
    """A contending process, and the process that replaces it after a kill."""

    def __init__(self, run, number):
        self.run, self.number = run, number
        self.guarded = "guardian=on" in run.kinds[number][0]
        self.start()

    def start(self):
        run = self.run
        more, self.far = run.kinds[self.number]
        if run.target in NO_LINGER:
            more = more.split("linger")[0].rstrip("&")
        uri = run.uri(self.far) + "lease=%ds&timeout=1s&" % LEASE_S + more
        self.who = run.next_who()
        words = [run.program("dlock-faults-worker"), uri.rstrip("&"), run.history, str(self.who), str(run.seed),
                 str(run.threads), run.pace, str(run.n_names), str(LEASE_S * 1000)] + run.module()
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=run.complaints,
                                        env=dict(os.environ, **(run.clock.environment if run.steps_workers else {})))

    def holds(self):
        """True if the process holds the steady lock, according to the end of the history."""
        with open(self.run.history, "rb") as file:
            file.seek(max(0, os.path.getsize(self.run.history) - 8192))
            held = set()
            # The first line may be cut, and the last one be written just now.
            for words in map(bytes.split, file.read().split(b"\n")[1:-1]):
                if len(words) > 2 and words[1] == b"%d" % self.who:
                    (held.add if words[0] == b"held" and words[6] == self.run.steady.encode() else held.discard)(words[2])
        return bool(held)

    def kill(self):
        """Kills the process, while it holds the steady lock if that can be observed within half a second. Returns the
        time."""
        end = time.monotonic() + 0.5
        while not self.holds() and time.monotonic() < end:
            pass
        at = now_ns()
        self.run.note("killed %d 0 %d" % (self.who, at))
        self.process.kill()
        self.process.wait()
        return at

    def end(self, until):
        """Waits for the end of the process, and complains if it does not end in time and without an error."""
        try:
            status = self.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return self.run.complain("worker %d does not end" % self.who)
        if status not in (0, -signal.SIGTERM):  # SIGTERM kills a worker that has not installed its handler yet.
            self.run.complain("worker %d ended with %d" % (self.who, status))
        self.run.counts["unheard"] += int(self.process.stdout.read() or 0)


class Run:
    def __init__(self, options, folder):
        self.target, self.seed, self.slow_ms = options.target, options.seed, options.slow
        self.pace, self.calm = ("run", CALM) if options.fast or options.orphans else ("walk", 1)
        self.random = random.Random(self.seed)
        self.only = options.only
        self.mode = "--orphans" * options.orphans + "--kills" * options.kills + "--only '%s'" % self.only * bool(self.only)
        if self.only:
            self.calm = CALM_ALONE
        self.kinds = LOSING if options.orphans else KILLING if options.kills else KINDS
        self.n_names, self.threads = CROWD if options.orphans and options.fast else (NAMES, THREADS)
        # One thread of each process takes this lock again and again, and releases it soon: its next grant shows when a
        # process is served again. Holders of the other locks may keep them for long.
        self.steady = "lock%d" % self.n_names
        self.folder, self.bin = folder, os.environ.get("DLOCK_TEST_BIN", "build/bin")
        self.clock = servers.Clock(self.program("libdlock-faults-clock.so"), folder)
        # The clock library cannot be preloaded into a program with a sanitizer, whose library must come first.
        self.steps_workers = self.target == "file" and not os.environ.get("DLOCK_FAULTS_SANITIZED")
        self.server = SERVERS[self.target](folder, self.clock)
        self.server.loses = self.kinds == LOSING
        self.relays = {}  # by the port of the server behind it
        self.who, self.problems, self.rounds = 0, [], 0
        self.counts = collections.Counter()  # counts of dlock-history, and of this program
        self.seconds = 0
        self.standstill = standstill.Standstill()
        self.last_fences = []  # the "earlier" lines with which the next history begins
        self.faults = []
        # Recoveries in ms, by the fault's name; None if there was none to be seen, or another fault fell into it.
        self.recoveries = collections.defaultdict(list)

    def program(self, name):
        return os.path.abspath(os.path.join(self.bin, name))

    def module(self):
        """Returns the path of the backend's module, as a list, if the worker has to count acquires without an answer."""
        if self.kinds != LOSING:
            return []
        scheme = self.server.uri.split(":")[0].replace("quorum", "redis")
        names = scheme.replace("+", "_"), scheme.split("+")[0]
        modules = os.path.join(self.bin, "..", "lib", "dlock", "*", "dlock-%s.so")
        return [os.path.abspath(next(path for name in names for path in glob.glob(modules % name)))]

    def next_who(self):
        self.who += 1
        return self.who

    def complain(self, problem):
        self.problems.append(problem)
        print("%s: %s" % (self.target, problem), flush=True)

    def note(self, line):
        with open(self.history, "ab", 0) as file:
            file.write(line.encode() + b"\n")

    def relay(self, word):
        for proxy in self.relays.values():
            proxy.tell(word)

    def start_relays(self):
        """Starts the proxies. The members of a group get one only if answers are lost: other faults need no proxy."""
        ports = [self.server.port] if self.server.port else []
        if self.kinds == LOSING:
            ports = ports or [member.port for member in self.server.members]
        for port in ports:
            self.relays[port] = relay.Relay(self.program("dlock-relay"), port)
        if self.kinds == LOSING:
            self.server.announce({port: proxy.port for port, proxy in self.relays.items()})

    def uri(self, far):
        uri = self.server.uri.format(port=self.server.port)
        for port, proxy in self.relays.items() if far else ():
            uri = uri.replace("127.0.0.1:%d" % port, "127.0.0.1:%d" % proxy.port)
        return uri

    def sleep(self, seconds):
        time.sleep(seconds)

    def rest(self, seconds, end):
        """Sleeps between two faults, until `end` at most."""
        time.sleep(max(0, min(seconds * self.calm, end - time.monotonic())))

    def await_server(self):
        servers.await_true(self.server.answers)

    # ---- faults

    def forget(self, begun):
        """Notes that grants from before need not have survived the fault, after the time in which the server, and then
        the holders, notice its end."""
        time.sleep(LEASE_S * 1.2)
        self.note("forgot 0 0 %d %d" % (begun, now_ns()))

    def hurt_once(self, fault):
        """Injects a fault, and adds a query for the recovery from it, to be answered when the history is read."""
        begun = now_ns()
        self.note("# %d %s" % (begun, fault.name))
        fault.harm(self)
        healed = now_ns()
        self.harms.append((begun, healed))
        self.note("# %d %s: over" % (healed, fault.name))
        if fault.forgets:
            self.forget(begun)
        # After a fault of the connection, only the processes behind the proxy count.
        concerned = [worker.who for worker in list(self.workers) if worker.far or not fault.name.startswith("wire")]
        self.queries.append((fault.name, healed, "/".join(map(str, [healed] + concerned))))

    def hurt_server(self, end):
        """Injects one fault after the other, until `end`. Each fault comes once before any is repeated."""
        faults = []
        while time.monotonic() < end:
            if not faults:
                faults = self.random.sample(self.faults, len(self.faults))
            try:
                self.hurt_once(faults.pop())
            except Exception as error:  # An exception of this thread would go unnoticed.
                self.complain("the nemesis fails: %r" % error)
                return
            self.rest(self.random.uniform(0.2, 1.5), end)

    def kill(self, worker):
        at = worker.kill()
        self.harms.append((at, at + (0 if worker.guarded else LEASE_NS)))
        self.queries.append(("process killed" + GUARDED * worker.guarded, at, "%d:%d" % (worker.who, at)))

    def kill_guarded(self, end):
        """Kills one process after the other, each when all effects of the previous kill are over."""
        while time.monotonic() < end:
            time.sleep(CALM_NS / 1e9 * self.random.uniform(1.1, 1.5))
            worker = self.random.choice(self.workers)
            self.kill(worker)
            worker.start()

    def hurt_workers(self, end):
        dice = random.Random(self.seed + 1)
        while time.monotonic() < end:
            self.rest(dice.uniform(0.1, 1), end)
            worker = dice.choice(self.workers)
            if dice.random() < 0.5:
                self.kill(worker)
                time.sleep(dice.uniform(0, 0.5))
                worker.start()
            else:
                begun = now_ns()
                self.note("# %d %d stopped" % (begun, worker.who))
                worker.process.send_signal(signal.SIGSTOP)
                time.sleep(dice.choice(nemesis.LENGTHS_S))
                worker.process.send_signal(signal.SIGCONT)
                healed = now_ns()
                self.harms.append((begun, healed))
                self.queries.append(("process stopped, continued", healed, "%d/%d" % (healed, worker.who)))

    def hurt(self, end):
        nemesis_of_server = threading.Thread(target=self.hurt_server, args=(end,))
        nemesis_of_server.start()
        try:
            self.hurt_workers(end)  # in this thread: processes are killed when the thread that started them ends
        finally:
            nemesis_of_server.join()

    def lose_answers(self, end):
        """Loses one of SNATCH answers, and now and then all answers on their way to the processes, for a time that ranges
        from that of one answer to each process to longer than they wait for one. There are no other faults."""
        begun = now_ns()
        self.relay("snatch %d" % SNATCH)
        while time.monotonic() < end:
            time.sleep(self.random.uniform(0, 0.3))
            self.relay("lose")
            time.sleep(self.random.choice((0.002, 0.01, 0.03)))
            self.relay("well")
        self.relay("snatch 0")
        if self.server.ends_unheard:
            self.forget(begun)

    def lost(self):
        """Returns how many connections have lost answers since the last call."""
        before, self.lost_before = self.lost_before, sum(proxy.lost() for proxy in self.relays.values())
        return self.lost_before - before

    # ---- rounds

    def round(self, seconds):
        self.rounds += 1
        self.history = os.path.join(self.folder, "history.%d" % self.rounds)
        self.complaints = open(os.path.join(self.folder, "complaints"), "ab")
        with open(self.history, "w") as file:
            file.writelines(line + "\n" for line in self.last_fences)
        self.queries = []  # tuples: name of the fault, time, query for dlock-history
        self.harms = []  # tuples: begin and end of a fault
        self.workers = [Worker(self, number) for number in range(len(self.kinds))]
        end = time.monotonic() + seconds
        if self.kinds == LOSING:
            self.lose_answers(end)
            self.recoveries[LOST] += [None] * self.lost()
        elif self.kinds == KILLING:
            self.kill_guarded(end)
        elif self.only:
            self.hurt_server(end)
        else:
            self.hurt(end)
        for worker in self.workers:
            worker.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + LAST_S
        for worker in self.workers:
            worker.end(until)
        self.complaints.close()
        self.judge()
        self.look_for_orphans()

    def look_for_orphans(self):
        """Complains of locks and waiters that the server still has when all processes have ended, and leases and
        sessions with them."""
        end = time.monotonic() + ORPHAN_S
        while True:
            left = self.server.held(self) + (self.server.queued() if self.kinds == LOSING else [])
            if not left:
                return
            if time.monotonic() > end:
                self.counts["left"] += len(left)
                self.complain("still there: %s" % " ".join(left))
                return
            time.sleep(0.1)

    def names(self):
        return ["%s%d" % (word, number) for word in ("lock", "permit") for number in range(self.n_names)] + [self.steady]

    def dlock(self, *words, uri=None):
        """Runs the dlock command with a subcommand and arguments. Returns its exit status and its lines of output."""
        uri = (uri or self.uri(False)).rstrip("?&")
        done = subprocess.run([self.program("dlock"), words[0], "-b", uri, *words[1:]], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.decode().splitlines()

    def judge(self):
        queries = [query for name, at, query in self.queries]
        done = subprocess.run([self.program("dlock-history"), self.history, self.steady] + queries, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        lines = done.stdout.decode().splitlines()
        if done.returncode not in (0, 1):
            self.complain("no verdict: %s" % lines)
            return
        broken = [line for line in lines if line.startswith("violation ")]
        lines = lines[len(broken):]
        for line in broken[:5]:
            self.complain(line)
        if broken:
            self.counts["violations"] += len(broken)
            self.complain("%d violations" % len(broken))
        words = lines.pop(0).split()
        self.counts.update(dict(zip(words[::2], map(int, words[1::2]))))
        self.last_fences = [line for line in lines if line.startswith("earlier ")]
        for (name, at, query), answer in zip(self.queries, lines[len(self.last_fences):]):
            ms = None if answer == "-" or self.harmed_again(at, int(answer)) else int(answer)
            self.recoveries[name].append(ms)
            if name.endswith(GUARDED) and ms is not None:
                self.judge_guardian(at, ms)
            if ms is not None and ms > self.slow_ms:
                print("%d ms: %s (%s in %s)" % (ms, name, query, self.history), flush=True)
        if not self.problems and self.slow_ms == math.inf:
            os.unlink(self.history)

    def harmed_again(self, at, ms):
        """True if another fault fell into this recovery. The fault whose end is `at` is the recovery's own."""
        return any(begun < at + ms * 1000000 and healed > at and begun != at for begun, healed in self.harms)

    def judge_guardian(self, at, ms):
        """Complains if the lock of a holder that was killed was not granted again within PROMPT_MS, apart from the time
        in which the machine was overloaded. Does nothing if the effects of another fault were not over yet."""
        end = at + ms * 1000000
        if any(begun < end and healed + CALM_NS > at and begun != at for begun, healed in self.harms):
            return
        stood_ms = self.standstill.ms(at, end)
        self.counts["guarded"] += 1
        if ms - stood_ms > PROMPT_MS:
            self.complain("a guardian took %d ms, of which the machine stood still for %d" % (ms, stood_ms))
        elif ms > PROMPT_MS:
            self.counts["excused"] += 1
            print("%s: the machine stood still for %d of a guardian's %d ms" % (self.target, stood_ms, ms), flush=True)

    def judge_guardians(self):
        """Complains if no guardian at all has released a lock before its lease ended, whatever else happened."""
        seen = [ms for ms in self.recoveries.get("process killed" + GUARDED, []) if ms is not None]
        if len(seen) >= ENOUGH and min(seen) >= LEASE_S * 1000:
            self.complain("no guardian has released anything before its lease ended: %s ms" % seen)

    def run(self, seconds):
        self.server.start()
        self.faults = list(nemesis.FAULTS[self.target])
        if self.server.disk and not self.server.disk.there:
            print("%s: no full disk is tried, since there are no mounts of its own" % self.target)
            self.faults = [fault for fault in self.faults if fault.name != nemesis.DISK.name]
        self.faults = [fault for fault in self.faults if fault.name.startswith(self.only)]
        self.lost_before = 0
        try:
            self.start_relays()
            begun = time.monotonic()
            end = begun + seconds
            while time.monotonic() < end - 1 and not self.problems:
                self.round(min(ROUND_S, end - time.monotonic()))
            self.seconds = time.monotonic() - begun
            self.judge_guardians()
        finally:
            for proxy in self.relays.values():
                proxy.end()
            self.server.stop()

    # ---- results

    def table(self):
        """Yields a tuple for each fault: target, fault, how often it was injected, recoveries in ms; and at last one with
        an empty fault, the counts of the run and its seed."""
        for name, recoveries in sorted(self.recoveries.items()):
            seen = sorted(ms for ms in recoveries if ms is not None)
            yield (self.target, name, len(recoveries), ",".join(map(str, seen)))
        self.counts.update(runs=1, problems=len(self.problems), seconds=round(self.seconds))
        yield (self.target, "", " ".join("%s=%d" % count for count in sorted(self.counts.items())), "seed=%d" % self.seed)


def report(run):
    """Prints what helps to explain a failure, the most important last, since often only the end of the output is kept."""
    ends = {}
    for path in sorted(glob.glob("**/*.log", root_dir=run.folder, recursive=True)) + ["complaints"]:
        with open(os.path.join(run.folder, path), errors="replace") as file:
            ends[path] = file.read()
        print("-- the end of %s\n%s" % (path, ends[path][-4000:]))
    # The last line of a sanitizer's report, and the complaints of workers.
    words = re.findall("^SUMMARY: .*|^worker [0-9]+: .*", ends["complaints"], re.MULTILINE)
    print("-- %s FAILED:" % run.target)
    print("\n".join(line[:WIDTH] for line in run.problems[:BRIEFLY] + words[:BRIEFLY]))
    again = "tests/systems/faults/faults_test.py %s %s --seed %d" % (run.target, run.mode, run.seed)
    print("history, logs: %s\nagain: %s" % (run.folder, again))


def watch(seconds):
    """Prints what this program and its children are doing after `seconds`, by which it ends otherwise."""
    time.sleep(seconds)
    print("still running after %d s:" % seconds, flush=True)
    faulthandler.dump_traceback()
    subprocess.run(["ps", "-L", "-o", "pid,tid,stat,wchan:24,etimes,args", "--ppid", str(os.getpid())])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=sorted(nemesis.FAULTS))
    parser.add_argument("--seconds", type=float, default=os.environ.get("DLOCK_FAULTS_SECONDS"))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--orphans", action="store_true")
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--fast", action="store_true", default="DLOCK_FAULTS_FAST" in os.environ)
    parser.add_argument("--slow", type=float, default=math.inf)
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 10 if "DLOCK_FULL" in os.environ else 5
    # In a separate mount namespace, mounts end with this process. It needs root, and does not work in a chroot.
    unshare = ["unshare", "-m"]
    if "DLOCK_FAULTS_MOUNTS" not in os.environ and \
            subprocess.run(unshare + ["true"], stderr=subprocess.DEVNULL).returncode == 0:
        os.environ["DLOCK_FAULTS_MOUNTS"] = "own"
        os.execvp("unshare", unshare + [sys.executable, "-B"] + sys.argv)
    top = os.environ.get("DLOCK_TEST_DIR")
    folder = tempfile.mkdtemp(prefix="dlock-faults.", dir=top)
    os.chmod(folder, 0o755)  # Servers run as other users.
    print("%s: seed %d" % (options.target, options.seed), flush=True)
    threading.Thread(target=watch, args=(options.seconds + LAST_S + ORPHAN_S + 60,), daemon=True).start()
    run = Run(options, folder)
    run.run(options.seconds)
    lines = ["\t".join(map(str, row)) for row in run.table()]
    print("\n".join(lines))
    if top:
        os.makedirs(os.path.join(top, "faults"), exist_ok=True)
        with open(os.path.join(top, "faults", "orphans-" * options.orphans + options.target + ".tsv"), "w") as file:
            file.write("\n".join(lines) + "\n")
    if run.problems:
        report(run)
        return 1
    if options.slow == math.inf:
        subprocess.run(["rm", "-rf", folder])
    return 0


if __name__ == "__main__":
    sys.exit(main())
