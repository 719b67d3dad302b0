"""The servers of the fault suite: private ones, started by the scripts in tests/servers, for faults to be injected."""
import contextlib
import glob
import json
import os
import signal
import socket
import struct
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "..", "..", "servers")
LEASE_S = 1  # the lease of every client


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def await_true(what, seconds=30):
    """Waits until what() returns true. An OSError of it is treated as false. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if what():
                return
        time.sleep(0.01)
    raise TimeoutError(what.__name__)


class Line:
    """A connection to a server with a text protocol."""

    def __init__(self, port, seconds=5):
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)

    def ask(self, text, until="\r\n"):
        """Sends `text`, and returns the server's answer, which is complete when it contains `until`."""
        self.socket.sendall(text.encode())
        answer = b""
        while until.encode() not in answer:
            more = self.socket.recv(65536)
            if not more:
                break
            answer += more
        return answer.decode(errors="replace")

    def tell(self, command):
        answer = self.ask(command + "\r\n")
        if answer.startswith("-"):
            raise ValueError("%s: %s" % (command, answer))

    def close(self):
        self.socket.close()


def ask(port, text, until="\r\n"):
    with contextlib.closing(Line(port)) as line:
        return line.ask(text, until)


class Clock:
    """The wall clock of processes that preload clock.c."""

    def __init__(self, library, folder):
        self.path = os.path.join(folder, "clock")
        self.ahead_s = 0
        self.environment = {"LD_PRELOAD": library, "DLOCK_TEST_CLOCK": self.path}
        self.step(0)
        os.chmod(self.path, 0o644)

    def step(self, seconds):
        self.ahead_s += seconds
        mode = "r+b" if os.path.exists(self.path) else "wb"
        with open(self.path, mode) as file:
            file.write(struct.pack("q", int(self.ahead_s * 1e9)))


class Disk:
    """A small file system that can be filled. It exists only if faults_test.py has its own mount namespace."""

    def __init__(self, path, kilobytes):
        self.path, self.filler, self.kilobytes = path, os.path.join(path, "filler"), kilobytes
        os.makedirs(path, exist_ok=True)
        self.there = "DLOCK_FAULTS_MOUNTS" in os.environ
        if self.there:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,size=%dk" % kilobytes, "none", path], check=True)

    def fill(self):
        with contextlib.suppress(OSError), open(self.filler, "wb", 0) as file:
            for _ in range(self.kilobytes):
                file.write(bytes(1024))

    def free(self):
        os.unlink(self.filler)

    def end(self):
        if self.there:
            subprocess.run(["umount", "-l", self.path])


class Server:
    """One server process, or none. Clients connect to `port`."""
    script = None  # the name of the script in tests/servers
    options = ""   # added to the server's command line
    uri = None     # contains {port}
    members = ()   # the servers of a group, which has no process of its own
    disk = None
    on_disk = None # the name and the size in kB of the folder that a fault fills
    # True if a grant ends with its connection, at the server some milliseconds earlier than its holder knows.
    ends_unheard = False
    loses = False  # True if lost answers are the only fault of this run

    def __init__(self, folder, clock):
        self.folder, self.clock = folder, clock
        self.environment = dict(os.environ, DLOCK_SERVER_OPTIONS=self.options.format(folder=folder), **clock.environment)

    def run(self, word):
        done = subprocess.run(["bash", os.path.join(SCRIPTS, self.script + ".sh"), word, self.folder], check=True,
                              stdout=subprocess.PIPE, env=self.environment, start_new_session=True)
        return done.stdout.decode()

    def start(self):
        if self.on_disk:
            name, kilobytes = self.on_disk
            self.disk = Disk(os.path.join(self.folder, name), kilobytes)
        self.run("start")
        with open(os.path.join(self.folder, self.script + ".port")) as file:
            self.port = int(file.read())

    def stop(self):
        if self.members:
            for member in self.members:
                member.stop()
            return
        self.signal(signal.SIGCONT)
        self.run("stop")
        if self.disk:
            self.disk.end()

    def pids(self):
        with open(os.path.join(self.folder, self.script + ".pid")) as file:
            return [int(file.read())]

    def signal(self, number):
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def alive(self):
        return any(running(pid) for pid in self.pids())

    def crash(self):
        self.signal(signal.SIGKILL)
        await_true(self.is_gone)

    def is_gone(self):
        return not self.alive()

    def again(self):
        """Restarts a killed server. Repeats that while another process, such as a child of the killed one, has its
        port."""
        self.run("again")
        try:
            await_true(self.is_back)
        except TimeoutError as late:
            with open(os.path.join(self.folder, self.script + ".log"), errors="replace") as log:
                raise TimeoutError("%s is not back: %s" % (self.script, log.read()[-1000:])) from late

    def is_back(self):
        if not self.alive():
            time.sleep(0.1)
            self.run("again")
        return self.answers()

    def answers(self):
        raise NotImplementedError

    def announce(self, proxies):
        """Makes the server announce its proxies to clients; `proxies` maps ports of servers to ports of their proxies.
        Nothing to do for a server that clients find by the URI, which names the proxy."""

    def held(self, run):
        """Returns lines about all locks that are held, or about the failure to list them."""
        status, lines = run.dlock("list")
        return lines

    def queued(self):
        """Returns what the server stores about waiters."""
        return []


def running(pid):
    """True if the process exists and is not a zombie."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def works_in(pid, folder):
    """True if `folder` is the process's working directory. False for a process that has ended."""
    try:
        return os.readlink("/proc/%s/cwd" % pid) == folder
    except OSError:
        return False


class File(Server):
    script = "file"

    def start(self):
        self.run("start")
        self.port = None
        self.uri = "file:%s/locks?" % self.folder
        self.disk = Disk(os.path.join(self.folder, "locks"), 64)

    def stop(self):
        self.disk.end()

    def alive(self):
        return True

    def answers(self):
        return True


class Redis(Server):
    """Redis without persistence: after a restart, nothing is granted for the length of a lease (quarantine)."""
    script = "redis"
    uri = "redis://127.0.0.1:{port}?"

    def answers(self):
        return "PONG" in ask(self.port, "PING\r\n")

    def tell(self, command):
        with contextlib.closing(Line(self.port)) as line:
            line.tell(command)

    def queued(self):
        if not self.port:
            return [key for member in self.members for key in member.queued()]
        script = "return table.concat(redis.call('KEYS', '*:dlock:[qw]*'), ' ')"
        keys = ask(self.port, 'EVAL "%s" 0\r\n' % script).splitlines()
        return [] if keys[:1] == ["$0"] else keys or ["no answer"]

    def start_members(self, count):
        """Starts several servers, none of them behind the proxy."""
        self.members = []
        for number in range(1, count + 1):
            member = Redis(os.path.join(self.folder, str(number)), self.clock)
            member.environment = self.environment
            os.makedirs(member.folder)
            member.start()
            self.members.append(member)
        self.port = None

    def replication(self):
        """Returns the fields of INFO replication, with an empty "slave0" if there is no replica."""
        lines = ask(self.port, "INFO replication\r\n", "\r\n\r\n").splitlines()
        return {"slave0": ",,", **dict(line.split(":", 1) for line in lines if ":" in line)}


class RedisAof(Redis):
    """Redis with a log that is flushed before each answer: no grant is lost in a crash."""
    options = "--appendonly yes --appendfsync always --dir {folder}/data"
    uri = "redis://127.0.0.1:{port}?quarantine=0&"
    on_disk = "data", 200 << 10


class Memcached(Server):
    script = "memcached"
    uri = "memcached://127.0.0.1:{port}?"

    def answers(self):
        return "VERSION" in ask(self.port, "version\r\n")


class MemcachedSasl(Memcached):
    """memcached with a login, which has the binary protocol only."""
    script = "memcached_sasl"
    uri = "memcached+sasl://user:hunter2@127.0.0.1:{port}?"
    VERSION = b"\x80\x0b" + bytes(22)

    def answers(self):
        with contextlib.closing(Line(self.port)) as line:
            line.socket.sendall(self.VERSION)
            return line.socket.recv(1) == b"\x81"

    def held(self, run):
        """Inspects each lock, since this protocol lists no keys."""
        lines = [line for name in run.names() for line in run.dlock("inspect", name)[1]]
        return [line for line in lines if not line.endswith("free")]


LOG_HEADER = 16  # bytes in the header of ZooKeeper's log


class Zookeeper(Server):
    script = "zookeeper"
    uri = "zookeeper://127.0.0.1:{port}/dlock/faults?session=%ds&" % LEASE_S
    on_disk = "zookeeper", 200 << 10

    def answers(self):
        return "Mode: " in ask(self.port, "srvr", "Node count")

    def again(self):
        # ZooKeeper does not start (EOFException) with a log shorter than its header, as a kill or a full disk leaves
        # it.
        for log in glob.glob(os.path.join(self.folder, "zookeeper", "version-2", "log.*")):
            if os.path.getsize(log) < LOG_HEADER:
                os.unlink(log)
        super().again()

    def queued(self):
        """Counts the ephemeral nodes, whatever they are for."""
        lines = ask(self.port, "mntr", "zk_approximate_data_size").splitlines()
        count = [line for line in lines if "ephemerals" in line]
        return [] if count and count[0].split()[1] == "0" else count or ["no answer"]

    def leads(self):
        return "Mode: leader" in ask(self.port, "srvr", "Node count")


class Group:
    """A group of servers of one kind, of which one at a time is hurt. In a list of bases it precedes their class."""

    def start_members(self, word):
        done = subprocess.run(["bash", os.path.join(SCRIPTS, self.script + ".sh"), word, self.folder, "3"], check=True,
                              stdout=subprocess.PIPE, env=self.environment, start_new_session=True)
        self.members = []
        for number, port in enumerate(done.stdout.split(), 1):
            member = self.of(os.path.join(self.folder, str(number)), self.clock)
            member.port = int(port)
            self.members.append(member)
        self.port = None
        self.uri = self.uri.replace("127.0.0.1:{port}", ",".join("127.0.0.1:%d" % member.port for member in self.members))
        self.hurt = None

    def queued(self):
        return self.members[0].queued()

    def choose(self, leader):
        """Chooses the leader, or a follower, as the member to be hurt next."""
        chosen = None
        while chosen is None:
            for member in self.members:
                with contextlib.suppress(OSError):
                    if member.leads() == leader:
                        chosen = member
            time.sleep(0.01)
        self.hurt = chosen

    def signal(self, number):
        self.hurt.signal(number)

    def crash(self):
        self.hurt.crash()

    def again(self):
        self.hurt.again()


class Ensemble(Group, Zookeeper):
    of = Zookeeper

    def start(self):
        self.start_members("ensemble")


class Etcd(Server):
    """etcd, with sessions as short as it allows."""
    script = "etcd"
    uri = "etcd://127.0.0.1:{port}/faults?session=%ds&" % LEASE_S
    on_disk = "etcd", 200 << 10

    def answers(self):
        return '"true"' in ask(self.port, "GET /health HTTP/1.0\r\n\r\n", "}")

    def ctl(self, *words):
        done = subprocess.run(["etcdctl", "--endpoints", "http://127.0.0.1:%d" % self.port, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ, ETCDCTL_API="3"))
        return done.stdout.decode()

    def queued(self):
        """Returns all keys, whatever they are for: they belong to sessions."""
        return self.ctl("get", "--keys-only", "--prefix", "faults").split()

    def leads(self):
        for endpoint in json.loads(self.ctl("endpoint", "status", "-w", "json") or "[]"):
            status = endpoint["Status"]
            return status["header"]["member_id"] == status.get("leader") # during an election there is none
        return False


class Cluster(Group, Etcd):
    of = Etcd

    def start(self):
        self.start_members("cluster")


class Postgresql(Server):
    script = "postgresql"
    options = "-c log_min_messages=fatal -c max_wal_size=64MB -c min_wal_size=32MB"
    uri = "postgresql://dlock@127.0.0.1:{port}/postgres?"
    on_disk = "postgresql", 300 << 10

    def pids(self):
        """Returns all processes that run in the server's folder: a child that the postmaster has just forked outlives
        it for a moment, and keeps the shared memory from the next postmaster."""
        folder = os.path.join(self.folder, "postgresql")
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and works_in(pid, folder)]

    def start(self):
        super().start()
        with open(os.path.join(self.folder, "postgresql", "postmaster.opts")) as file:
            self.programs = os.path.dirname(file.read().split()[0])

    def answers(self):
        return self.sql("SELECT 1") == ["1"]

    def is_gone(self):
        self.signal(signal.SIGKILL)
        return super().is_gone()

    def again(self):
        # These files stop a new postmaster as long as the process that they name exists, even as a zombie.
        for mark in ("postmaster.pid", ".s.PGSQL.%d.lock" % self.port):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, "postgresql", mark))
        super().again()

    def queued(self):
        count = self.sql("SELECT count(*) FROM dlock.queue")
        return [] if count == ["0"] else count or ["no answer"]

    def sql(self, text):
        done = subprocess.run([os.path.join(self.programs, "psql"), "-qtA", "-h", "127.0.0.1", "-p", str(self.port), "-U",
                               "dlock", "-c", text, "postgres"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.decode().split()

    def sessions(self):
        """Returns the processes that serve clients."""
        return [int(pid) for pid in self.sql("SELECT pid FROM pg_stat_activity WHERE usename = 'dlock' AND "
                                             "pid <> pg_backend_pid() AND backend_type = 'client backend'")]


class PostgresqlSession(Postgresql):
    uri = "postgresql://dlock@127.0.0.1:{port}/postgres?mode=session&"
    ends_unheard = True

    def held(self, run):
        """Counts the advisory locks, since session mode cannot list its locks. Waiters also have some."""
        count = self.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        return [] if count == ["0"] else count or ["no answer"]

    def queued(self):
        return []
