"""faults_test.py TARGET [--orphans | --kills | --only FAULT] [--fast] [--seconds S] [--seed N] [--slow MS]: processes
contend for a few locks on a server while processes, wires, clocks and the server itself are hurt, drawn from a seed.
Prints a table; fails when the history of grants breaks a rule, when a process answers what no fault explains, when
anybody is not served in the end, or when anything is left on the server.

TARGET is one of nemesis.FAULTS. With --orphans answers are lost, as often as possible, and nothing else happens; with
--kills processes with a guardian are killed, one after the other, and nothing else happens; with --only those faults of
the server alone whose names begin so. --fast is for many grants: they are held for no time, mostly, and faults are
rarer. --slow prints each recovery that took longer, and keeps the history. DLOCK_TEST_BIN has the programs;
DLOCK_TEST_DIR, where it is set, gets the table, too, for table.py, in faults/TARGET.tsv.
"""
import argparse
import collections
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
NAMES, THREADS = 2, 3  # that contend
CROWD = 16, 24  # … where one request is to have many acquires
LEASE_NS = LEASE_S * 1000000000
LAST_S = 150  # in which every process has to end, on a machine that has no time for it, too
ORPHAN_S = 30
GUARDED = ", guardian"
ENOUGH = 3  # recoveries to judge guardians by
PROMPT_MS = 250  # in which a guardian releases, and the next one is granted the lock
CALM_NS = 3 * LEASE_NS  # after other harm until nothing of it is left: waiters that are gone, quarantines, sessions
BRIEFLY, WIDTH = 3, 200  # lines of each kind at the end of a failure, and their length
# What each process adds to the URI, and whether it is behind the proxy.
KINDS = [("guardian=on", False), ("linger=20ms", False), ("", True), ("guardian=on&linger=5ms", True)]
KILLING = [("guardian=on", False)] * 4
LOSING, LOST = [("connections=1", True)] * 4, "wire: answers lost time and again"
SNATCH = 2  # of so many answers one is lost then
CALM = 20  # times as much rest between two faults, with --fast
CALM_ALONE = 2  # the same with --only
NO_LINGER = ("memcached", "memcached-sasl", "postgresql-session", "etcd", "etcd-cluster", "mysql", "mysql-session", "quorum",
             "quorum-5")


class Worker:
    """A process that contends, and the one that takes its place when it is killed."""

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
        """Whether it holds the steady lock, as the end of the history says."""
        with open(self.run.history, "rb") as file:
            file.seek(max(0, os.path.getsize(self.run.history) - 8192))
            held = set()
            for words in map(bytes.split, file.read().splitlines()[1:]):
                if len(words) > 2 and words[1] == b"%d" % self.who:
                    (held.add if words[0] == b"held" and words[6] == self.run.steady.encode() else held.discard)(words[2])
        return bool(held)

    def kill(self):
        """While it holds the steady lock, if that can be met with. Returns when."""
        end = time.monotonic() + 0.5
        while not self.holds() and time.monotonic() < end:
            pass
        at = now_ns()
        self.run.note("killed %d 0 %d" % (self.who, at))
        self.process.kill()
        self.process.wait()
        return at

    def end(self, until):
        """Whether it ended well."""
        try:
            status = self.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return self.run.complain("worker %d does not end" % self.who)
        if status not in (0, -signal.SIGTERM):  # which comes before it has begun
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
        # One thread of each process takes it all the time, and none keeps it: the next grant of it shows when somebody is
        # served again. The others may be waited for as long as their holders please.
        self.steady = "lock%d" % self.n_names
        self.folder, self.bin = folder, os.environ.get("DLOCK_TEST_BIN", "build/bin")
        self.clock = servers.Clock(self.program("libdlock-faults-clock.so"), folder)
        # A program with a sanitizer wants to be loaded before everything else.
        self.steps_workers = self.target == "file" and not os.environ.get("DLOCK_FAULTS_SANITIZED")
        self.server = SERVERS[self.target](folder, self.clock)
        self.server.loses = self.kinds == LOSING
        self.relays = {}  # by the port of the server behind it
        self.who, self.problems, self.rounds = 0, [], 0
        self.counts = collections.Counter()  # what dlock-history counts
        self.seconds = 0
        self.standstill = standstill.Standstill()
        self.last_fences = []  # with which a history begins
        self.faults = []
        # Of each fault, in ms; None: not seen, or not of this fault alone.
        self.recoveries = collections.defaultdict(list)

    def program(self, name):
        return os.path.abspath(os.path.join(self.bin, name))

    def module(self):
        """The backend's that sends acquires, if the worker has to count by it."""
        if self.kinds != LOSING:
            return []
        scheme = self.server.uri.split(":")[0].replace("quorum", "redis")
        paths = [os.path.join(self.bin, "..", "lib", "dlock", "dlock-%s.so" % name)
                 for name in (scheme.replace("+", "_"), scheme.split("+")[0])]
        return [os.path.abspath(next(path for path in paths if os.path.exists(path)))]

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
        """Members of a group are behind proxies only where answers are lost: all else happens to themselves."""
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
        """Between two faults, but not beyond the end."""
        time.sleep(max(0, min(seconds * self.calm, end - time.monotonic())))

    def await_server(self):
        servers.await_true(self.server.answers)

    # ---- faults

    def forget(self, begun):
        """Grants from before need not have outlasted the fault. The server, and then the holders, hear of its end in a
        while."""
        time.sleep(LEASE_S * 1.2)
        self.note("forgot 0 0 %d %d" % (begun, now_ns()))

    def hurt_once(self, fault):
        """Does it; the recovery is asked for when the history is read."""
        begun = now_ns()
        self.note("# %d %s" % (begun, fault.name))
        fault.harm(self)
        healed = now_ns()
        self.harms.append((begun, healed))
        self.note("# %d %s: over" % (healed, fault.name))
        if fault.forgets:
            self.forget(begun)
        # Those behind the proxy know best when it is over.
        concerned = [worker.who for worker in list(self.workers) if worker.far or not fault.name.startswith("wire")]
        self.queries.append((fault.name, healed, "/".join(map(str, [healed] + concerned))))

    def hurt_server(self, end):
        """One fault after the other, each of them before any comes again."""
        faults = []
        while time.monotonic() < end:
            if not faults:
                faults = self.random.sample(self.faults, len(self.faults))
            try:
                self.hurt_once(faults.pop())
            except Exception as error:  # of a thread that nobody looks at
                self.complain("the nemesis fails: %r" % error)
                return
            self.rest(self.random.uniform(0.2, 1.5), end)

    def kill(self, worker):
        at = worker.kill()
        self.harms.append((at, at + (0 if worker.guarded else LEASE_NS)))
        self.queries.append(("process killed" + GUARDED * worker.guarded, at, "%d:%d" % (worker.who, at)))

    def kill_guarded(self, end):
        """Each when nothing is left of the last one."""
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
            self.hurt_workers(end)  # here: processes end with the thread that started them
        finally:
            nemesis_of_server.join()

    def lose_answers(self, end):
        """In the place of all faults: one answer of a few, and now and then all that are on their way to the processes,
        for as long as it takes to send each of them an answer, or for longer than they wait for one."""
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
        """How many connections have lost answers since that was asked last."""
        before, self.lost_before = self.lost_before, sum(proxy.lost() for proxy in self.relays.values())
        return self.lost_before - before

    # ---- rounds

    def round(self, seconds):
        self.rounds += 1
        self.history = os.path.join(self.folder, "history.%d" % self.rounds)
        self.complaints = open(os.path.join(self.folder, "complaints"), "ab")
        with open(self.history, "w") as file:
            file.writelines(line + "\n" for line in self.last_fences)
        self.queries = []  # name, time, question
        self.harms = []  # from, until
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
        """All processes have ended: what they left to the server ends with its lease, and nobody is left in its queue
        who gave up and lived on."""
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
        """What the command says; words: its subcommand and arguments."""
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
        """Whether another fault fell into this recovery: one that ends when it begins is its own."""
        return any(begun < at + ms * 1000000 and healed > at and begun != at for begun, healed in self.harms)

    def judge_guardian(self, at, ms):
        """Whether the next one had the lock in time after its holder was killed, as far as the machine ran at all, and
        there was nothing else to get over."""
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
        """Whatever else happened, at least one has released before its lease ended."""
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

    # ---- what came of it

    def table(self):
        """Lines of: target, fault, how often, seen recoveries in ms; and a last one: target, nothing, what was counted."""
        for name, recoveries in sorted(self.recoveries.items()):
            seen = sorted(ms for ms in recoveries if ms is not None)
            yield (self.target, name, len(recoveries), ",".join(map(str, seen)))
        self.counts.update(runs=1, problems=len(self.problems), seconds=round(self.seconds))
        yield (self.target, "", " ".join("%s=%d" % count for count in sorted(self.counts.items())), "seed=%d" % self.seed)


def report(run, logs):
    """What a failure leaves, the least important first: often only the end of it is kept."""
    ends = {}
    for name in logs + ["complaints"]:
        with open(os.path.join(run.folder, name), errors="replace") as file:
            ends[name] = file.read()
        print("-- the end of %s\n%s" % (name, ends[name][-4000:]))
    # Of a sanitizer's report its last line, otherwise what a worker complains of.
    words = re.findall("^SUMMARY: .*|^worker [0-9]+: .*", ends["complaints"], re.MULTILINE)
    print("-- %s FAILED:" % run.target)
    print("\n".join(line[:WIDTH] for line in run.problems[:BRIEFLY] + words[:BRIEFLY]))
    again = "tests/faults/faults_test.py %s %s --seed %d" % (run.target, run.mode, run.seed)
    print("history, logs: %s\nagain: %s" % (run.folder, again))


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
        options.seconds = 6 if options.orphans else 10
    # Mounts of its own end with this process. In a chroot, as for others than root, there are none.
    unshare = ["unshare", "-m"]
    if "DLOCK_FAULTS_MOUNTS" not in os.environ and \
            subprocess.run(unshare + ["true"], stderr=subprocess.DEVNULL).returncode == 0:
        os.environ["DLOCK_FAULTS_MOUNTS"] = "own"
        os.execvp("unshare", unshare + [sys.executable, "-B"] + sys.argv)
    top = os.environ.get("DLOCK_TEST_DIR")
    folder = tempfile.mkdtemp(prefix="dlock-faults.", dir=top)
    os.chmod(folder, 0o755)  # servers run as other users
    print("%s: seed %d" % (options.target, options.seed), flush=True)
    run = Run(options, folder)
    run.run(options.seconds)
    lines = ["\t".join(map(str, row)) for row in run.table()]
    print("\n".join(lines))
    if top:
        os.makedirs(os.path.join(top, "faults"), exist_ok=True)
        with open(os.path.join(top, "faults", "orphans-" * options.orphans + options.target + ".tsv"), "w") as file:
            file.write("\n".join(lines) + "\n")
    if run.problems:
        report(run, sorted(name for name in os.listdir(folder) if name.endswith(".log")))
        return 1
    if options.slow == math.inf:
        subprocess.run(["rm", "-rf", folder])
    return 0


if __name__ == "__main__":
    sys.exit(main())
