"""Servers of the fault suite: Redis with a replica, with Sentinels, and as a quorum."""
import os
import signal
import time

from servers import Redis, Server, ask, await_true

# The time limit of a failover: Sentinel starts one two failover timeouts after the previous one at the earliest, and
# does not act for half a minute after it was stopped for too long (TILT mode).
CHANGE_S = 90
# After so long without an answer a Sentinel takes the master for dead: as in tests/servers/sentinel.sh, and a time in which
# no test ends.
DOWN_MS, NEVER_DOWN_MS = 2000, 600000


class RedisPair(Redis):
    """A master and its replica, which exchange roles. Neither has persistence, and neither is behind the proxy."""
    # A full synchronization starts at once instead of waiting for further replicas.
    options = "--repl-diskless-sync-delay 0 --repl-ping-replica-period 1"

    def start(self):
        self.start_members(2)
        self.uri = "redis://%s?" % ",".join("127.0.0.1:%d" % member.port for member in self.members)
        self.follow()

    @property
    def master(self):
        return self.members[0]

    @property
    def replica(self):
        return self.members[1]

    def follow(self):
        """Makes the second member the replica of the first one, and waits for the end of the full synchronization."""
        self.replica.tell("REPLICAOF 127.0.0.1 %d" % self.master.port)
        await_true(self.is_copied)

    def is_copied(self):
        return self.master.replication()["slave0"].split(",")[2] == "state=online" and \
            self.replica.replication()["master_link_status"] == "up"

    def has_every_write(self):
        offset = self.master.replication()["master_repl_offset"]
        return "offset=" + offset in self.master.replication()["slave0"].split(",")

    def swap(self):
        self.replica.tell("REPLICAOF NO ONE")
        self.members.reverse()

    def promote(self):
        """Promotes the replica without losing a write: clients' writes are paused in that time. The pause would also
        keep Sentinel from making the old master a replica, so this function does it, and ends the pause."""
        self.master.tell("CLIENT PAUSE 90000 WRITE")
        await_true(self.has_every_write)
        self.swap()
        self.replica.tell("REPLICAOF 127.0.0.1 %d" % self.master.port)
        self.replica.tell("CLIENT UNPAUSE")
        self.follow()

    def take_over(self):
        """Kills the master and promotes the replica."""
        self.master.crash()
        self.swap()
        self.come_back()
        self.follow()

    def come_back(self):
        """Restarts the old master, as a replica from its first moment on."""
        options = "%s --replicaof 127.0.0.1 %d" % (self.options, self.master.port)
        self.replica.environment = dict(self.environment, DLOCK_SERVER_OPTIONS=options)
        self.replica.again()

    def forsake(self, seconds):
        """Stops the master, promotes the replica, and continues the old master, which for a moment still acts as one."""
        self.master.signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.swap()
        self.replica.signal(signal.SIGCONT)
        self.follow()


class Sentinel(Server):
    script = "sentinel"

    def answers(self):
        return "PONG" in ask(self.port, "PING\r\n")

    def master(self):
        """Returns the Sentinel's view of the master: "name=mymaster,status=ok,address=127.0.0.1:1,slaves=1,sentinels=3"."""
        lines = ask(self.port, "INFO sentinel\r\n", "\r\n\r\n").splitlines()
        return next(iter(line.split(":", 1)[1] for line in lines if line.startswith("master0:")), "")


class RedisSentinel(RedisPair):
    sentinels = ()

    def start(self):
        super().start()
        self.sentinels = []
        for number in "123":
            sentinel = Sentinel(os.path.join(self.folder, "sentinel." + number), self.clock)
            sentinel.environment = dict(os.environ, DLOCK_SERVER_OPTIONS=str(self.master.port))
            os.makedirs(sentinel.folder)
            sentinel.start()
            self.sentinels.append(sentinel)
        self.uri = "redis+sentinel://%s/mymaster?" % ",".join("127.0.0.1:%d" % one.port for one in self.sentinels)
        self.await_agreement()

    def stop(self):
        for sentinel in self.sentinels:
            sentinel.stop()
        super().stop()

    def announce(self, proxies):
        """Makes the Sentinels announce the proxy of the master. Since the proxy also loses messages to Sentinels and
        replicas, the master then has no replica, and there are no failovers."""
        self.replica.tell("REPLICAOF NO ONE")
        port = proxies[self.master.port]
        self.tell_sentinels("REMOVE mymaster")
        self.tell_sentinels("MONITOR mymaster 127.0.0.1 %d 2" % port)
        self.give_time(NEVER_DOWN_MS)
        await_true(lambda: self.says("status=ok,address=127.0.0.1:%d,slaves=0,sentinels=3" % port))

    def tell_sentinels(self, command):
        for sentinel in self.sentinels:
            if not ask(sentinel.port, "SENTINEL %s\r\n" % command).startswith("+OK"):
                raise ValueError("SENTINEL " + command)

    def give_time(self, down_ms):
        self.tell_sentinels("SET mymaster down-after-milliseconds %d" % down_ms)

    def says(self, words):
        """True if `words` are in every Sentinel's view of the master."""
        return all(words in sentinel.master() for sentinel in self.sentinels)

    def await_agreement(self):
        """Waits until every Sentinel knows the others, the master and the replica, so that a failover is possible."""
        def agree():
            return self.says("address=127.0.0.1:%d,slaves=1,sentinels=3" % self.master.port) and self.says("status=ok")
        await_true(agree, CHANGE_S)

    def stop_sentinels(self, seconds):
        """A Sentinel that continues looks at its clock before it reads the messages that have arrived. So it would
        consider the master dead, and start a failover, if it was stopped for nearly as long as it waits for an
        answer."""
        self.give_time(NEVER_DOWN_MS)
        for sentinel in self.sentinels:
            sentinel.signal(signal.SIGSTOP)
        time.sleep(seconds)
        for sentinel in self.sentinels:
            sentinel.signal(signal.SIGCONT)
        self.await_agreement()
        self.give_time(DOWN_MS)

    def await_promotion(self):
        """Waits until all Sentinels say that the replica is the master."""
        def promoted():
            return self.says("address=127.0.0.1:%d," % self.replica.port)
        await_true(promoted, CHANGE_S)
        self.members.reverse()

    def await_demotion(self):
        """Waits until Sentinel has made the old master a replica, which has a full copy of the new one."""
        await_true(self.is_copied, CHANGE_S)
        self.await_agreement()

    def swap(self):
        """Starts a failover by hand. Sentinel refuses until it can start one, also while another one is in progress,
        which may promote the replica or end without a result."""
        def begun():
            return "address=127.0.0.1:%d," % self.replica.port in self.sentinels[0].master() or \
                ask(self.sentinels[0].port, "SENTINEL FAILOVER mymaster\r\n").startswith("+OK")
        await_true(begun, CHANGE_S)
        self.await_promotion()

    def follow(self):
        super().follow()
        self.await_agreement()

    def fail_over(self):
        """Lets Sentinel promote the replica. The old master acts as one until Sentinel makes it a replica."""
        self.swap()
        self.await_demotion()

    def take_over(self):
        """Kills the master, and waits until Sentinel has promoted the replica."""
        self.master.crash()
        self.await_promotion()
        self.come_back()
        self.await_demotion()

    def forsake(self, seconds):
        """Stops the master until the replica is promoted. It then acts as a second master until Sentinel demotes it."""
        self.master.signal(signal.SIGSTOP)
        self.await_promotion()
        time.sleep(seconds)
        self.replica.signal(signal.SIGCONT)
        self.await_demotion()


class Quorum(Redis):
    """Independent servers without persistence: a lock is held on a majority of them."""
    size = 3

    def start(self):
        self.start_members(self.size)
        self.uri = "quorum:?" + "".join("of=redis%%3A%%2F%%2F127.0.0.1:%d&" % member.port for member in self.members)

    def answers(self):
        return all(member.answers() for member in self.members)

    def held(self, run):
        """Returns the locks of every member, also those that a majority does not have."""
        return [line for member in self.members for line in run.dlock("list", uri=member.uri.format(port=member.port))[1]]


class QuorumOfFive(Quorum):
    size = 5
