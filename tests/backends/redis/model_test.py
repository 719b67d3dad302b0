#!/usr/bin/python3
"""The scripts against a model of their promises: model_test.py SCRIPTS [SEED [STEPS]].

Random calls by four clients, in all modes, with readers, writers and permits that end, clients that die and come back,
other clients' locks, keys deleted and breaks. After each the server's holders and queue are those of the model, and no
waiter was passed over, no client barged in, fences grew, every claim that could be granted was, and all use the name
for the same purpose.
"""
import random
import sys
import time

from private_server import private_server

NAME = "model"
KEYS = [NAME] + ["{%s}:dlock:%s" % (NAME, word) for word in ("fence", "queue", "waiters", "holders", "grants")]
SCRIPTS = ("acquire", "renew", "release", "break")
MANY = ("acquire", "renew", "release")
USUAL = {"acquire": (None, None, "", "", "1"), "renew": (None, None, "", "1"), "release": (None, "1")}
LIFE = (None, "120000", "3600000")
SHARED = "dlock:shared"
USES = (("", " ", SHARED), ("dlock:permits:3",), ("dlock:permits:2",))
CLIENTS = [letter * 24 for letter in "abcd"]
LEASE = 600000


def limit(kind):
    return int(kind.rsplit(":", 1)[1]) if kind.startswith("dlock:permits:") else None


class Model:
    def __init__(self, server, folder, seed):
        self.server, self.random = server, random.Random(seed)
        self.scripts = {}
        for name in [*SCRIPTS, *("many_" + name for name in MANY)]:
            self.scripts[name] = server.script_load(open("%s/%s.lua" % (folder, name)).read())
        self.listening, self.kind, self.holds, self.queue = {}, {}, {}, []
        self.life = LIFE[seed % len(LIFE)]
        self.silent, self.lost = set(), []
        self.fence, self.tokens, self.foreign, self.use = 0, 0, False, USES[0]
        server.set("{%s}:dlock:turn" % NAME, 2**53)  # no holder leaves the lock free for a moment
        for client in CLIENTS:
            self.listen(client)

    def call(self, script, *args):
        """What is as most calls have it is left out at the end, as clients do."""
        usual, args = USUAL.get(script, ()), list(args)
        while usual and args[-1] == usual[len(args) - 1]:
            args.pop()
        if self.life:
            args += [usual[i] if i < len(usual) else "" for i in range(len(args), 5)] + [self.life]
        if script in MANY and self.random.random() < 0.5:  # also for another lock, which is free
            other = ["x" * 24 + ".1@nobody:1"] + args[1:]
            names, both = ([NAME, "other"], args + other) if script != "acquire" else ([NAME], args)
            return self.server.evalsha(self.scripts["many_" + script], len(names), *names, len(args), *both)[0]
        return self.server.evalsha(self.scripts[script], 1, NAME, *args)

    # ---- clients ----

    def listen(self, client):
        subscription = self.server.pubsub()
        subscription.subscribe("dlock:" + client)
        while not subscription.get_message(timeout=1):
            pass
        self.listening[client] = subscription

    def die(self):
        if len(self.listening) <= 2:
            return
        client = self.random.choice(sorted(self.listening))
        self.listening.pop(client).close()
        while self.server.pubsub_numsub("dlock:" + client)[0][1]:
            time.sleep(0.001)

    def come_back(self):
        for client in CLIENTS:
            if client not in self.listening:
                return self.listen(client)

    def lives(self, token, looked_for=False):
        """Whether a release, or an acquire that looks for who has been silent, takes it for living."""
        return token[:24] in self.listening and not (looked_for and token in self.silent)

    def ask_in_time(self):
        """All who wait have asked just now, but for the silent ones."""
        now = int(time.time() * 1000)
        for token, asked in self.server.hgetall(KEYS[3]).items():
            lease, rest = asked.split("@") if "@" in asked else (None, None)
            if lease:
                self.server.hset(KEYS[3], token, "%s@%013d%s" % (lease, now - (token in self.silent) * 10000, rest[13:]))

    def fall_silent(self):
        if self.queue:
            self.silent.add(self.random.choice(self.queue))

    # ---- what may be granted ----

    def fits(self, kind):
        if self.foreign or not self.holds:
            return not self.foreign
        if kind in ("", " ") or set(self.holds.values()) != {kind}:
            return False
        return limit(kind) is None or len(self.holds) < limit(kind)

    def granted(self, token, fence, asked):
        assert fence > self.fence, "the fence of %s does not grow" % token
        assert self.fits(self.kind[token]), "no room for %s" % token
        ahead = self.queue[: self.queue.index(token)] if token in self.queue else self.queue
        assert not any(self.lives(other, asked) for other in ahead), "%s overtook somebody" % token
        if token in self.queue:
            self.queue.remove(token)
        self.fence = fence
        self.holds[token] = self.kind[token]

    def fence_of(self, token):
        return int(self.server.hget(KEYS[5], token) or self.server.get(KEYS[1]))

    def hear(self, answered=(), asked=False):
        """Takes over what clients were told, and answered, in the order of the fences."""
        grants = list(answered)
        self.server.ping(), self.server.ping()  # by now every message has left the server
        for subscription in self.listening.values():
            while message := subscription.get_message(timeout=0):
                words = message["data"].split(" ")
                if words[0] == "granted":
                    grants.append((self.fence_of(words[1]), words[1]))
        for fence, token in sorted(grants):
            self.granted(token, fence, asked)

    def check(self, all_are_in, asked=False):
        self.hear((), asked)
        held = self.server.get(NAME)
        if held is None or held == "foreign":
            holders = set()
        elif held.startswith("dlock:"):
            holders = set(self.server.zrangebyscore(KEYS[4], "(%d" % (time.time() * 1000), "+inf"))
        else:
            holders = {held}
        assert holders == set(self.holds), "holders: %s, should be %s" % (holders, self.holds)
        queue = self.server.zrange(KEYS[2], 0, -1)
        for token in self.queue:
            assert token in queue or not self.lives(token, asked), "%s vanished" % token
        self.queue = [token for token in self.queue if token in queue]
        assert queue == self.queue, "queue: %s, should be %s" % (queue, self.queue)
        first = queue[0] if queue else None
        assert not (all_are_in and first and self.lives(first) and self.fits(self.kind[first])), "%s is left out" % first

    # ---- what clients do ----

    def ask(self, token, may_wait):
        self.silent.discard(token)
        self.ask_in_time()
        users = [other for other in self.queue if self.lives(other, True)] + list(self.holds)
        differ = any(limit(self.kind[other]) != limit(self.kind[token]) for other in users)
        how = ("w" if may_wait else "") + self.random.choice(("", "c"))
        answer = self.call("acquire", token, LEASE, how, self.holds.get(token, self.kind[token]), "1")
        if answer == 0:
            assert "c" not in how and not self.server.exists(KEYS[1]), "%s is to ask again" % token
            answer = self.call("acquire", token, LEASE, how + "c", self.holds.get(token, self.kind[token]), "1")
        answer = [answer, abs(answer), 0, LEASE, 1] if isinstance(answer, int) else answer
        if isinstance(answer, str):
            dead = [other for other in self.queue if limit(self.kind[other]) != limit(self.kind[token])]
            assert differ or dead, "%s is refused" % token
            return self.check(False, True)
        assert not differ, "%s is not refused" % token
        if token in self.holds:
            assert answer[1] > 0
            return self.check(False)
        self.hear([(answer[1], token)] if answer[1] else [], True)
        if not answer[1] and may_wait:
            if self.server.zrange(KEYS[2], -1, -1) == [token] and token in self.queue[:-1]:
                assert token[:24] not in self.listening, "%s lost its place" % token
                self.queue.remove(token)
            if token not in self.queue:
                self.queue.append(token)
        self.check(True, True)

    def acquire(self):
        self.tokens += 1
        if self.tokens % 40 == 0:
            self.use = self.random.choice(USES)
        client = self.random.choice(CLIENTS)
        token = "%s.%d@model:1" % (client, self.tokens)
        self.kind[token] = self.random.choice(self.use)
        self.ask(token, client in self.listening and self.random.random() < 0.7)

    def acquire_again(self):
        if self.queue or self.holds:
            self.ask(self.random.choice(self.queue + list(self.holds)), True)

    def some_holder(self, kinds=None):
        holders = [token for token, kind in self.holds.items() if kinds is None or kind in kinds]
        return self.random.choice(holders) if holders else None

    def release(self):
        if token := self.some_holder():
            del self.holds[token]
            assert self.call("release", token, "1") == 1
            self.check(True)
            assert self.call("release", token, "1") == 0
            self.check(False)

    def leave(self):
        if self.queue:
            token = self.random.choice(self.queue)
            self.queue.remove(token)
            assert self.call("release", token, "1") == 0
            self.check(True)

    def renew(self):
        if token := self.some_holder():
            assert self.call("renew", token, LEASE, self.holds[token], "1") > 0
            self.check(False)

    def downgrade(self):
        if token := self.some_holder(("", " ")):
            self.holds[token] = self.kind[token] = SHARED
            assert self.call("renew", token, LEASE, SHARED, "1") > 0
            self.check(True)

    def end(self):
        """A lease ends."""
        if token := self.some_holder():
            if len(self.holds) == 1:
                self.server.delete(NAME)
            if self.server.zscore(KEYS[4], token):
                self.server.zadd(KEYS[4], {token: time.time() * 1000 // 1})
            del self.holds[token]
            self.lost.append(token)
            self.check(False)

    def lose_all(self):
        self.lost.extend(self.holds)
        self.holds.clear()

    def delete_key(self):
        """An operator breaks it, and no client is told."""
        if not self.foreign:
            self.server.delete(NAME)
            self.lose_all()

    def come_too_late(self):
        if self.lost:
            token = self.random.choice(self.lost[-10:])
            assert self.call("renew", token, LEASE, self.kind[token], "1") == 0, "%s holds again" % token
            assert self.call("release", token, "1") == 0
            self.check(False)

    def break_it(self):
        was_held = bool(self.holds) or self.foreign
        self.lose_all()
        self.foreign = False
        assert self.call("break", "1") == int(was_held)
        self.check(was_held)

    def foreign_lock(self):
        taken = self.server.set(NAME, "foreign", nx=True, px=LEASE)
        assert bool(taken) == (not self.holds and not self.foreign)
        self.foreign = self.foreign or bool(taken)

    def foreign_unlock(self):
        if self.foreign:
            self.server.delete(NAME)
            self.foreign = False

    STEPS = {acquire: 30, acquire_again: 8, release: 20, leave: 5, renew: 8, downgrade: 5, end: 3, fall_silent: 2, die: 1, come_back: 3,
             delete_key: 1, come_too_late: 3, break_it: 1, foreign_lock: 2, foreign_unlock: 3}

    def step(self):
        self.random.choices(list(self.STEPS), list(self.STEPS.values()))[0](self)


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    with private_server() as server:
        model = Model(server, sys.argv[1], seed)
        for step in range(int(sys.argv[3]) if len(sys.argv) > 3 else 3000):
            try:
                model.step()
            except AssertionError as wrong:
                sys.exit("seed %d, step %d: %s" % (seed, step, wrong))
        print("seed %d: %d tokens, the last fence is %d" % (seed, model.tokens, model.fence))


main()
