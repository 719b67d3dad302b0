#!/usr/bin/python3
"""Each script alone: scripts_test.py SOURCES SCRIPTS. The files compile unchanged, and the scripts that are built from
them run, alone and for several locks."""
import glob
import os
import sys

from private_server import private_server

TOKEN = "a" * 24 + ".1@test:1"
PERMIT = "dlock:permits:2"

# Ends with the microsecond ARGV[1]; or after 20,000 looks, where the time does not advance in a script.
SPIN = """for _ = 1, 20000 do
    local time = redis.call('TIME')
    if time[1] * 1000000 + time[2] >= tonumber(ARGV[1]) then break end
end"""


def end_beside_another(server, texts):
    """A permit is given to the next in the microseconds in which another one ends: the word in the lock's key must not
    end with that one."""
    release = server.script_load(texts["release"])
    first, second, third = ("%s.1@test:1" % (letter * 24) for letter in "abc")
    listener = server.pubsub()
    listener.subscribe("dlock:" + "c" * 24)
    while not listener.get_message(timeout=1):
        pass
    for i in range(200):
        server.flushall()
        assert server.eval(texts["acquire"], 1, "a", first, 4, "c", PERMIT)[1] > 0
        assert server.eval(texts["acquire"], 1, "a", second, 60000, "c", PERMIT)[1] > 0
        server.eval(texts["acquire"], 1, "a", third, 60000, "wc", PERMIT)
        ends = server.zscore("{a}:dlock:holders", first)
        if ends is None or server.zcard("{a}:dlock:queue") == 0:
            continue  # too slow: the first had ended before the third came
        both = server.pipeline(transaction=False)
        both.eval(SPIN, 0, int(ends) * 1000 - i % 50)
        both.evalsha(release, 1, "a", second)
        both.execute()
        assert server.zscore("{a}:dlock:holders", third), "the third was not granted"
        assert server.get("a") == PERMIT, "round %d: a permit is out, and the lock's key says %s" % (i, server.get("a"))
    server.flushall()


def in_cluster(server, texts):
    """As they are called at a node of a cluster."""
    place, waiter = "dlock:node:", "b" * 24 + ".1@test:1"

    def call(script, *arguments):
        usual = ("", "", "", "", "1") if script == "acquire" else ("", "", "", "1", "") if script == "renew" else (
            "", "1", "", "", "") if script == "release" else ("1", "", "", "", "")
        return server.eval(texts[script], 1, "a", *arguments, *usual[len(arguments):], 600000, place)

    listener = server.pubsub()
    listener.subscribe(place + "b" * 24)
    while not listener.get_message(timeout=1):
        pass
    assert call("acquire", TOKEN, 60000, "c") > 0
    assert call("acquire", waiter, 60000, "wc")[1:3] == [0, 0]
    assert server.eval(texts["inspect"], 1, "a", 0)[1:4:2] == [1, TOKEN]
    assert call("renew", TOKEN, 60000) > 0
    assert call("release", TOKEN) == 1
    message = None
    while not message:
        message = listener.get_message(timeout=1)
    assert message["data"] == "granted %s a" % waiter, message
    assert 0 < server.pttl("a") <= 3000, "a hand-over that nobody has confirmed lasts 3 s"
    assert call("break") == 1
    listener.close()
    server.flushall()


def late_in_quarantine(server, texts):
    """A former master may have granted to another client a lock that will soon end here: in the quarantine neither a
    renewal nor an acquire of its holder prolongs it."""
    for left in (20000, 400):
        for script, arguments in (("renew", ("", "0")), ("acquire", ("c", "", "0"))):
            server.flushall()
            assert server.eval(texts["acquire"], 1, "a", TOKEN, 60000, "c") != 0
            server.pexpire("a", left)
            server.eval(texts[script], 1, "a", TOKEN, 60000, *arguments)
            assert (server.pttl("a") > left) == (left > 500), "%s with %d ms left: %d" % (script, left, server.pttl("a"))
    server.flushall()


def fences_end(server, texts):
    """A name's fence is kept for three times 600 s after its grant, in each mode."""
    for kind in ("", "dlock:shared", PERMIT):
        assert server.eval(texts["acquire"], 1, "a", TOKEN, 60000, "c", kind) != 0
        for script, arguments in ((None, ()), ("renew", (kind,)), ("release", ())):
            if script:
                server.eval(texts[script], 1, "a", TOKEN, 60000, *arguments)
            assert 1750000 < server.pttl("{a}:dlock:fence") <= 1860000, "%s %s: %d" % (
                kind, script, server.pttl("{a}:dlock:fence"))
        server.flushall()


def main(sources, scripts):
    with private_server() as server:
        for path in sorted(glob.glob(sources + "/*.lua")):
            compiled = server.eval("local whole, why = loadstring(ARGV[1]) return whole and 'ok' or why", 0, open(path).read())
            assert compiled == "ok", "%s: %s" % (path, compiled)
        texts = {os.path.basename(path)[:-4]: open(path).read() for path in glob.glob(scripts + "/*.lua")}
        assert len(texts) == 9, sorted(texts)
        for name, text in texts.items():
            assert "--" not in text and "file(" not in text, "%s is not as it is sent" % name
        for how in ("", "w", "m1000 {}:dlock:incarnation"):
            assert server.eval(texts["acquire"], 1, "a", TOKEN, 60000, how) == 0
        for how in ("c", "w", ""):
            assert server.eval(texts["acquire"], 1, "a", TOKEN, 60000, how) != 0
        assert server.eval(texts["inspect"], 1, "a", 0)[3] == TOKEN
        assert server.eval(texts["renew"], 1, "a", TOKEN, 60000) > 0
        assert server.eval(texts["release"], 1, "a", TOKEN) == 1
        assert len(server.eval(texts["many_acquire"], 2, "a", "b", 3, TOKEN, 60000, "c", TOKEN, 60000, "c")) == 2
        assert min(server.eval(texts["many_renew"], 2, "a", "b", 2, TOKEN, 60000, TOKEN, 60000)) > 0
        assert server.eval(texts["many_release"], 2, "a", "b", 1, TOKEN, "somebody else") == [1, 0]
        assert server.eval(texts["break"], 1, "b", "1") == 1
        assert server.eval(texts["incarnation"], 1, "{}:dlock:incarnation") == 0
        server.flushall()
        late_in_quarantine(server, texts)
        fences_end(server, texts)
        end_beside_another(server, texts)
        in_cluster(server, texts)


main(*sys.argv[1:])
