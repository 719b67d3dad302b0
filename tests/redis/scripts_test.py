#!/usr/bin/python3
"""Each script by itself: scripts_test.py SOURCES SCRIPTS. The files compile as they are written, and the scripts that
building makes of them run, alone and for several locks."""
import glob
import os
import sys

from private_server import private_server

TOKEN = "a" * 24 + ".1@test:1"


def main(sources, scripts):
    with private_server() as server:
        for path in sorted(glob.glob(sources + "/*.lua")):
            compiled = server.eval("local whole, why = loadstring(ARGV[1]) return whole and 'ok' or why", 0, open(path).read())
            assert compiled == "ok", "%s: %s" % (path, compiled)
        texts = {os.path.basename(path)[:-4]: open(path).read() for path in glob.glob(scripts + "/*.lua")}
        assert len(texts) == 8, sorted(texts)
        for name, text in texts.items():
            assert "--" not in text and "file(" not in text, "%s is not as it is sent" % name
        for how in ("c", "w", ""):
            assert server.eval(texts["acquire"], 1, "a", TOKEN, 60000, how) != 0
        assert server.eval(texts["inspect"], 1, "a", 0)[2] == TOKEN
        assert server.eval(texts["renew"], 1, "a", TOKEN, 60000) > 0
        assert server.eval(texts["release"], 1, "a", TOKEN) == 1
        assert len(server.eval(texts["many_acquire"], 2, "a", "b", 2, TOKEN, 60000, TOKEN, 60000)) == 2
        assert min(server.eval(texts["many_renew"], 2, "a", "b", 2, TOKEN, 60000, TOKEN, 60000)) > 0
        assert server.eval(texts["many_release"], 2, "a", "b", 1, TOKEN, "somebody else") == [1, 0]
        assert server.eval(texts["break"], 1, "b", "1") == 1


main(*sys.argv[1:])
