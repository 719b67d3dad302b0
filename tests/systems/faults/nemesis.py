"""The faults of the fault suite, in servers, connections and clocks.

A fault is a function that gets a run (faults_test.py), does the harm, waits, and repairs it; it returns when clients can be
expected to be served again. `forgets` marks the faults that grants need not survive according to docs/servers/: after
such a fault the checker also disregards all earlier grants.
"""
import contextlib
import os
import signal
import time
from operator import methodcaller

from servers import Line, ask

# How long faults last: much shorter than a lease, or longer.
LENGTHS_S = (0.3, 1.8)


def pause(run):
    run.server.signal(signal.SIGSTOP)
    run.sleep(run.random.choice(LENGTHS_S))
    run.server.signal(signal.SIGCONT)


def crash(run, victim=None):
    victim = victim or run.server
    victim.crash()
    run.sleep(run.random.choice((0, 0.5)))
    victim.again()


def of_member(fault, leader):
    def hurt(run):
        run.server.choose(leader)
        fault(run)
    return hurt


def wire(*words):
    """Returns a fault of the proxy, through which half of the processes reach the server."""
    def harm(run):
        for word in words:
            run.relay(word)
        run.sleep(run.random.choice(LENGTHS_S))
        run.relay("well")
    return harm


def say(*commands, after=()):
    """Returns a fault that sends commands to Redis, and the commands `after` a second later. Both use one connection,
    since Redis may accept no other one in between."""
    def tell(run):
        with contextlib.closing(Line(run.server.port)) as line:
            for command in commands:
                line.tell(command)
            if after:
                run.sleep(1)
            for command in after:
                line.tell(command)
    return tell


def step(seconds):
    """Returns a fault that moves the wall clock of the server, or of the processes if there is no server."""
    def move(run):
        run.clock.step(seconds)
        run.sleep(max(0, -seconds))
    return move


def fill_disk(run):
    """Fills the server's disk for a second. A server that terminates because of it is restarted."""
    run.server.disk.fill()
    run.sleep(1)
    run.server.disk.free()
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if not run.server.alive():
            run.server.again()
        with contextlib.suppress(OSError):
            if run.server.answers():
                return
        time.sleep(0.01)
    raise TimeoutError("after the disk was full")


def of_server(word):
    """Returns the fault that the server's class describes."""
    return lambda run: getattr(run.server, word)()


def forsake(run):
    run.server.forsake(run.random.choice(LENGTHS_S))


def stop_sentinels(run):
    """Stops all Sentinels for a while, in which no client can look the master up for a new connection."""
    run.server.stop_sentinels(run.random.choice(LENGTHS_S))


def crash_sentinel(run):
    crash(run, run.random.choice(run.server.sentinels))
    run.server.await_agreement()


def crash_replica(run):
    crash(run, run.server.replica)
    run.server.follow()


def of_next_shard(fault):
    def hurt(run):
        run.server.next_shard()
        fault(run)
    return hurt


def move_slot(run):
    run.server.move_slot(run.random.choice(run.names()))


def of_some(count, first, length_s, then):
    """Returns a fault that calls `first` for `count` members of a quorum, and `then` after one of the times in
    `length_s`."""
    def hurt(run):
        victims = run.random.sample(run.server.members, count)
        for member in victims:
            first(member)
        run.sleep(run.random.choice(length_s))
        for member in victims:
            then(member)
    return hurt


def flush_items(run):
    ask(run.server.port, "flush_all\r\n")


def terminate_sessions(run):
    run.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dlock' AND "
                   "pid <> pg_backend_pid() AND backend_type = 'client backend'")


def kill_session_process(run):
    """Kills the server process of a session, upon which PostgreSQL terminates all its processes and recovers."""
    killed = False
    while not killed:
        for pid in run.server.sessions()[:1]:
            with contextlib.suppress(ProcessLookupError):  # The process has just ended.
                os.kill(pid, signal.SIGKILL)
                killed = True
    run.sleep(0.2)
    run.await_server()


class Fault:
    def __init__(self, name, harm, forgets=False):
        self.name, self.harm, self.forgets = name, harm, forgets


LOSS = Fault("wire: answers lost", wire("lose"))
WIRES = [
    Fault("wire: late", wire("delay 80")),
    Fault("wire: answers stalled", wire("hold answers")),
    Fault("wire: requests stalled", wire("hold requests")),
    Fault("wire: both ways stalled", wire("hold answers", "hold requests")),
    LOSS,
    Fault("wire: dribbles", wire("dribble")),
]
# Not for ZooKeeper: a repeated request to resume a session resumes it for the repeater, so nodes that it creates live
# on. Not for etcd either: a key that a repeated request creates lives as long as the client's lease.
TWICE = Fault("wire: said twice", wire("repeat"))
RESET = Fault("wire: reset", wire("hang-up"))
RESTART = Fault("server killed, restarted", crash)
PAUSE = Fault("server stopped, continued", pause)
FORWARD = Fault("wall clock +3 s", step(3))
BACK = Fault("wall clock -1 s", step(-1))
DISK = Fault("disk full", fill_disk)
MEMBERS = [Fault("leader killed, restarted", of_member(crash, leader=True)),
           Fault("leader stopped, continued", of_member(pause, leader=True)),
           Fault("follower killed, restarted", of_member(crash, leader=False)),
           Fault("follower stopped, continued", of_member(pause, leader=False))]


def forgetting(fault):
    return Fault(fault.name, fault.harm, forgets=True)


# Where a grant lives in its connection, the reset that ends LOSS also ends the grant: the server gives the lock to the
# next client at that moment, and the holder learns of it some milliseconds later. No other of these faults ends a
# connection.
SESSION_WIRES = [forgetting(fault) if fault is LOSS else fault for fault in WIRES]


REDIS = WIRES + [
    TWICE, RESET, PAUSE, RESTART,
    Fault("SCRIPT FLUSH", say("SCRIPT FLUSH")),
    Fault("CLIENT KILL normal", say("CLIENT KILL TYPE normal")),
    Fault("CLIENT KILL pubsub", say("CLIENT KILL TYPE pubsub")),
    Fault("CLIENT PAUSE", say("CLIENT PAUSE 1500")),
    Fault("maxclients reached", say("CONFIG SET maxclients 3", "CLIENT KILL TYPE normal", after=("CONFIG SET maxclients 10000",))),
    Fault("maxmemory reached", say("CONFIG SET maxmemory 1", after=("CONFIG SET maxmemory 0",))),
    forgetting(FORWARD),
]

TAKEN_OVER = [Fault("master killed, replica promoted", of_server("take_over")),
              Fault("master stopped, replica promoted", forsake)]


STOP, CONTINUE = methodcaller("signal", signal.SIGSTOP), methodcaller("signal", signal.SIGCONT)


def of_quorum(size):
    few, most = size // 2, size // 2 + 1
    return [Fault("%s killed, restarted" % name, of_some(count, methodcaller("crash"), (0, 0.5), methodcaller("again")))
            for name, count in (("minority", few), ("majority", most), ("all", size))] + \
        [Fault("%s stopped, continued" % name, of_some(count, STOP, LENGTHS_S, CONTINUE))
         for name, count in (("minority", few), ("majority", most))]


FAULTS = {
    "file": [FORWARD, BACK, DISK],
    "redis": REDIS + [Fault("FLUSHALL", say("FLUSHALL"), forgets=True)],
    "redis-aof": REDIS + [BACK, DISK],
    "redis-pair": [Fault("replica promoted", of_server("promote")), *map(forgetting, TAKEN_OVER)],
    "redis-sentinel": [Fault("replica promoted", of_server("promote")), *TAKEN_OVER,
                       Fault("SENTINEL FAILOVER", of_server("fail_over")),
                       Fault("Sentinel killed, restarted", crash_sentinel),
                       Fault("all Sentinels stopped, continued", stop_sentinels),
                       Fault("replica killed, restarted", crash_replica)],
    # The nodes hurt are masters, which come back before a replica takes over.
    "redis-cluster": [Fault("node killed, restarted", of_next_shard(crash)),
                      Fault("node stopped, continued", of_next_shard(pause)),
                      Fault("slot moved", move_slot), Fault("replica promoted", of_server("promote")),
                      *map(forgetting, TAKEN_OVER)],
    "quorum": of_quorum(3),
    "quorum-5": of_quorum(5),
    "memcached": WIRES + [TWICE, RESET, PAUSE, RESTART, FORWARD, Fault("flush_all", flush_items, forgets=True)],
    "memcached-sasl": WIRES + [TWICE, RESET, PAUSE, RESTART, FORWARD],
    "zookeeper": WIRES + [RESET, PAUSE, RESTART, FORWARD, BACK, DISK],
    "ensemble": MEMBERS + [FORWARD, BACK],
    # etcd's program calls no libc for the time, so its wall clock cannot be moved.
    "etcd": WIRES + [RESET, PAUSE, RESTART, DISK],
    "etcd-cluster": MEMBERS,
    "postgresql": WIRES + [TWICE, RESET, PAUSE, RESTART, Fault("sessions terminated", terminate_sessions),
                           Fault("session's process killed", kill_session_process), forgetting(FORWARD), BACK, DISK],
    "postgresql-session": SESSION_WIRES + [
        TWICE, forgetting(RESET), PAUSE, forgetting(RESTART), Fault("sessions terminated", terminate_sessions, forgets=True),
        Fault("session's process killed", kill_session_process, forgets=True), forgetting(FORWARD), BACK,
        forgetting(DISK)],
    "mysql": WIRES + [TWICE, RESET, PAUSE, RESTART, Fault("sessions killed", of_server("end_sessions")),
                      forgetting(FORWARD), BACK, DISK],
    "mysql-session": SESSION_WIRES + [
        TWICE, forgetting(RESET), PAUSE, forgetting(RESTART),
        Fault("sessions killed", of_server("end_sessions"), forgets=True), FORWARD, BACK, forgetting(DISK)],
}
