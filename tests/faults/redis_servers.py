"""Redis with a replica in the fault suite, and with Sentinels that look after the two."""
import os
import signal
import time

from servers import Redis, Server, ask, await_true

# A failover comes two time-outs after the last one at the earliest, and a Sentinel that was stopped for too long waits for
# half a minute before it acts again.
CHANGE_S = 90


class RedisPair(Redis):
    """A master and its replica, which change places. Neither has persistence; none of them is behind the proxy."""
    # No full copy waits for further replicas.
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

    def stop(self):
        for member in self.members:
            member.stop()

    def follow(self):
        """Makes the second the first one's replica, and waits until it has all that this one had."""
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
        """With every write: nothing is written meanwhile. The pause would keep a Sentinel, too, from telling the old master
        what it is then."""
        self.master.tell("CLIENT PAUSE 90000 WRITE")
        await_true(self.has_every_write)
        self.swap()
        self.replica.tell("REPLICAOF 127.0.0.1 %d" % self.master.port)
        self.replica.tell("CLIENT UNPAUSE")
        self.follow()

    def take_over(self):
        """The master is gone without a word."""
        self.master.crash()
        self.swap()
        self.come_back()
        self.follow()

    def come_back(self):
        """The old master, as a replica; it is nothing else before."""
        options = "%s --replicaof 127.0.0.1 %d" % (self.options, self.master.port)
        self.replica.environment = dict(self.environment, DLOCK_SERVER_OPTIONS=options)
        self.replica.again()

    def forsake(self, seconds):
        """The master is stopped, and goes on for a moment beside the one in its place."""
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
        """What it says of that, as "name=mymaster,status=ok,address=127.0.0.1:1,slaves=1,sentinels=3"."""
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
        """The Sentinels' own questions are lost there, too, and what a replica is told would be: there is none, and no
        failover."""
        self.replica.tell("REPLICAOF NO ONE")
        port = proxies[self.master.port]
        for sentinel in self.sentinels:
            for command in ("REMOVE mymaster", "MONITOR mymaster 127.0.0.1 %d 2" % port,
                            "SET mymaster down-after-milliseconds 600000"):
                if not ask(sentinel.port, "SENTINEL %s\r\n" % command).startswith("+OK"):
                    raise ValueError("SENTINEL " + command)
        await_true(lambda: self.says("status=ok,address=127.0.0.1:%d,slaves=0,sentinels=3" % port))

    def says(self, words):
        """Whether that is what all Sentinels say."""
        return all(words in sentinel.master() for sentinel in self.sentinels)

    def await_agreement(self):
        """Every one of them knows the others, the master and the replica, so that there can be a failover."""
        def agree():
            return self.says("address=127.0.0.1:%d,slaves=1,sentinels=3" % self.master.port) and self.says("status=ok")
        await_true(agree, CHANGE_S)

    def await_promotion(self):
        """Sentinel has made the replica the master, and says so."""
        def promoted():
            return self.says("address=127.0.0.1:%d," % self.replica.port)
        await_true(promoted, CHANGE_S)
        self.members.reverse()

    def await_demotion(self):
        """The old master, which Sentinel tells what it is now, has all that the new one has."""
        await_true(self.is_copied, CHANGE_S)
        self.await_agreement()

    def swap(self):
        """By hand; that there is no failover in progress is for Sentinel to say."""
        def begun():
            answer = ask(self.sentinels[0].port, "SENTINEL FAILOVER mymaster\r\n")
            return answer.startswith(("+OK", "-INPROG"))
        await_true(begun, CHANGE_S)
        self.await_promotion()

    def follow(self):
        super().follow()
        self.await_agreement()

    def fail_over(self):
        """Without a word to the old master, until Sentinel tells it."""
        self.swap()
        self.await_demotion()

    def take_over(self):
        """The master is gone without a word."""
        self.master.crash()
        self.await_promotion()
        self.come_back()
        self.await_demotion()

    def forsake(self, seconds):
        """The old master goes on beside the new one until Sentinel tells it."""
        self.master.signal(signal.SIGSTOP)
        self.await_promotion()
        time.sleep(seconds)
        self.replica.signal(signal.SIGCONT)
        self.await_demotion()


class Quorum(Redis):
    """Servers without persistence, of which a majority counts."""
    size = 3

    def start(self):
        self.start_members(self.size)
        self.uri = "quorum:?" + "".join("of=redis%%3A%%2F%%2F127.0.0.1:%d&" % member.port for member in self.members)

    def stop(self):
        for member in self.members:
            member.stop()

    def answers(self):
        return all(member.answers() for member in self.members)

    def held(self, run):
        """It does not list; its members do."""
        return [line for member in self.members for line in run.dlock("list", uri=member.uri.format(port=member.port))[1]]


class QuorumOfFive(Quorum):
    size = 5
