#!/usr/bin/env python3
"""`dlock top`, as lines and on a terminal, which it restores however it ends. On a separate Redis, which is stopped
here. DLOCK is the program under test; DLOCK_TEST_DRAWS is 1 if it was built to draw. Arguments: cases to run; default
all."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

DLOCK = os.environ["DLOCK"]
PATIENCE = 30  # seconds for anything to appear
NAME = b"evil\xc2\x9b2J\xff end"  # a lock may be called that: it is an escape sequence to some terminals, and no UTF-8
TOKEN = b"somebody\x1b]0;owned\x07\x1b[2J"
SHOWN = b"evil?2J? end"
SERVERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "servers")
here = {}  # what main() has prepared


def check(what, got, expected):
    if got != expected:
        raise AssertionError(f"{what}: {got!r}, expected {expected!r}")


def until(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in time: {what}")
        time.sleep(0.03)


def top(*arguments, **options):
    return subprocess.Popen([DLOCK, "top", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, **options)


class Held:
    """Another client's lock, for as long as the `with` lasts."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __enter__(self):
        self.holder = subprocess.Popen([DLOCK, "run", *self.arguments, "--", "sleep", "1000"])
        until(f"{self.arguments} is held", lambda: subprocess.run([DLOCK, "inspect", self.arguments[-1]], stdout=subprocess.DEVNULL).returncode == 0)

    def __exit__(self, *_):
        self.holder.terminate()
        self.holder.wait()


class Silent:
    """The server does not answer for as long as the `with` lasts."""

    def __enter__(self):
        os.kill(here["server"], signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(here["server"], signal.SIGCONT)


class Terminal:
    """A program on its own terminal, of 160 columns and 20 lines."""

    def __init__(self, *argv, **variables):
        self.seen = b""
        master, slave = pty.openpty()
        self.fd, self.slave = master, slave
        self.resize(20, 160)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env=os.environ | {"TERM": "xterm"} | variables, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def resize(self, lines, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def send(self, text, until=None):
        os.write(self.fd, text.encode())
        if until: self.expect(until)

    def expect(self, pattern):
        """Waits for what matches, and forgets all up to its end."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.seen, re.S)):
            left = deadline - time.monotonic()
            if left <= 0: raise AssertionError(f"no {pattern!r} on the terminal, but {self.seen!r}")
            if select.select([self.fd], [], [], left)[0]: self.seen += os.read(self.fd, 65536)
        self.seen = self.seen[found.end():]
        return found[0]

    def ends(self, status):
        """Its status, and the terminal as it was: the other screen is left, and lines are read normally."""
        self.expect(rb"\x1b\[\?1049l")
        check("status", self.process.wait(PATIENCE), status)
        check("the terminal's settings", termios.tcgetattr(self.slave), self.before)
        os.close(self.slave)
        os.close(self.fd)


def screen(*arguments, **variables):
    terminal = Terminal(DLOCK, "top", "-i", "300ms", *arguments, **variables)
    terminal.expect(rb"q quit")
    return terminal


# ---- lines


def lines():
    with Held("alpha"):
        done = top("-n", "2", "-i", "100ms")
        out, err = done.communicate(timeout=PATIENCE)
        check("status", (done.returncode, err), (0, b""))
        check("looks", len(re.findall(rb"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  2 locks, 2 holders, 0 waiting, ", out, re.M)), 2)
        check("tables", len(re.findall(rb"^alpha +exclusive +\S+\[\d+\] sleep +\d\.\ds +0 +\d\.\ds +(?:-|0\.0)$", out, re.M)), 2)
        check("escaped", (out.count(SHOWN), out.count(b"somebody?]0;owned??[2J ")), (2, 2))
        check("control characters", re.findall(rb"[\x00-\x09\x0b-\x1f\x7f]", out), [])
        out = top("-n", "1", "--prefix", "al").communicate(timeout=PATIENCE)[0]
        check("a prefix", (b"alpha" in out, b"evil" in out), (True, False))
        out = top("-n", "1", "--wide").communicate(timeout=PATIENCE)[0]
        check("wide", re.findall(rb"^alpha .* \d+ +[0-9a-f]{24}\.[0-9a-f]{16}@\S+:\d+@sleep$", out, re.M) != [], True)
        out = top("-n", "1", "alpha", "none").communicate(timeout=PATIENCE)[0]
        check("names", (b"1 lock, 1 holder" in out, b"evil" in out), (True, False))


def json_lines():
    watcher = top("--json", "-i", "200ms")
    try:
        first = json.loads(watcher.stdout.readline())
        check("members", sorted(first), ["error", "grants", "holders", "locks", "names", "since_ms", "time", "took_ms", "waiters"])
        check("the first", (first["error"], first["grants"], first["locks"]), (None, None, 1))
        check("not UTF-8", first["holders"][0]["name"], "evil\x9b2J\ufffd end")
        with Held("-p", "2", "grants"), Held("-p", "2", "grants"):
            seen, look = 0, {"locks": 0}
            while not (seen >= 2 and look["locks"] == 2):
                look = json.loads(watcher.stdout.readline())
                seen += sum(name["grants"] for name in look["names"] if name["name"] == "grants")
                check("a grant is seen once", seen <= 2, True)
            check("and not again", json.loads(watcher.stdout.readline())["grants"], 0)
        with Silent():
            silent = {"error": None}
            while silent["error"] is None: silent = json.loads(watcher.stdout.readline())
            check("the first word", re.sub(r"\d", "N", silent["error"]), "no answer for N s")
            check("its members", sorted(silent), ["error", "time", "took_ms"])
        look = silent
        while look["error"] is not None: look = json.loads(watcher.stdout.readline())
        check("and it goes on", look["holders"][0]["name"][:4], "evil")
    finally:
        watcher.terminate()
        watcher.communicate()


def mistakes():
    for arguments, status, message in [
        (["-i", "1ms"], 64, "--interval must be at least 100ms, to spare the server"),
        (["-n", "0"], 64, "--count takes a number of updates, at least 1"),
        (["--prefix", "a", "b"], 64, "give either --prefix or lock names"),
        (["-b", "mem:"], 64, "locks of mem: are visible only to the process that takes them"),
        (["-b", "nosuchserver:x"], 69, 'no backend for the scheme "nosuchserver"'),
    ]:
        done = top(*arguments)
        out, err = done.communicate(timeout=PATIENCE)
        check(arguments, (done.returncode, out, err.decode()[: len(message) + 7]), (status, b"", "dlock: " + message))
    done = top("-n", "1", "-b", "redis://127.0.0.1:1")
    out, _ = done.communicate(timeout=PATIENCE)
    check("nobody there", (done.returncode, b"no answer: cannot connect to Redis" in out), (69, True))


# ---- on a terminal


def keys():
    with Held("alpha"), Held("beta"):
        terminal = screen()
        shown = terminal.expect(rb"alpha.*beta.*evil\?2J\? end.*somebody\?\]0;owned\?\?\[2J")
        check("what is hostile", [bad for bad in (b"\x1b]0", b"\x07", b"\x1b[2J", b"\x9b", b"\xff") if bad in shown], [])
        terminal.send("s", until=rb"remaining lease")
        terminal.send("/BET", until=rb"filter: BET_|T_")
        terminal.send("\r\x0c")  # and redraw everything
        terminal.expect(rb"dlock top.*NAME.*beta.*/ filter: BET")
        terminal.seen = b""
        terminal.send("\x0c")
        terminal.expect(rb"dlock top(?:(?!alpha|evil).)*/ filter: BET")
        terminal.send("\x1b", until=rb"alpha")
        terminal.resize(12, 60)
        terminal.expect(rb"\x1b\[12(?:;1H|d).*q quit")
        terminal.resize(3, 10)
        terminal.resize(30, 120)
        terminal.expect(rb"\x1b\[30(?:;1H|d).*q quit")
        terminal.send("q")
        terminal.ends(0)


def signals():
    for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        terminal = screen()
        terminal.process.send_signal(sig)
        terminal.ends(-sig)
    terminal = screen()
    terminal.send("\x03")
    terminal.ends(-signal.SIGINT)


def stopped():
    terminal = Terminal("bash", "--norc", "--noprofile", "-i", PS1="$> ", HISTFILE="")
    terminal.expect(rb"\$> ")
    terminal.send(f"{DLOCK} top -i 300ms\n", until=rb"q quit")
    terminal.send("\x1a", until=rb"\x1b\[\?1049l.*Stopped.*\$> ")
    terminal.send("fg\n", until=rb"\x1b\[\?1049h.*q quit|q quit")
    terminal.send("q", until=rb"\x1b\[\?1049l.*\$> ")
    terminal.send("exit\n")
    terminal.process.wait(PATIENCE)


def silence():
    terminal = screen()
    terminal.expect(rb"evil")
    with Silent():
        terminal.expect(rb"no answer for 1")
        terminal.expect(rb"no answer for |[2-9]")  # it counts on
    terminal.expect(rb"answered in")
    with Silent():
        terminal.expect(rb"no answer for ")
        terminal.send("q")  # the answer is not awaited
        terminal.ends(0)


def dumb():
    terminal = Terminal(DLOCK, "top", "-n", "1", TERM="dumb")
    terminal.expect(rb"\d{4}-\d\d-\d\d .*1 lock, 1 holder.*evil\?2J\? end .*somebody\?\]0;owned")
    check("status", terminal.process.wait(PATIENCE), 0)


def main():
    cases = {case.__name__: case for case in [lines, json_lines, mistakes]}
    if os.environ["DLOCK_TEST_DRAWS"] == "1": cases |= {case.__name__: case for case in [keys, signals, stopped, silence, dumb]}
    with tempfile.TemporaryDirectory(dir=os.environ.get("DLOCK_TEST_DIR")) as work:
        settings = subprocess.run([f"{SERVERS}/redis.sh", "start", work], check=True, capture_output=True, text=True).stdout
        address = re.search("^DLOCK_TEST_REDIS=(.*)$", settings, re.M)[1]
        host, port = address.split(":")
        with open(f"{work}/redis.pid", encoding="utf-8") as file:
            here["server"] = int(file.read())
        os.environ["DLOCK_URI"] = f"redis://{address}?quarantine=0"
        os.environ["LC_ALL"] = "C.UTF-8"
        try:
            for key, value in [(NAME, TOKEN), (b"{" + NAME + b"}:dlock:fence", b"5")]:
                subprocess.run(["redis-cli", "-h", host, "-p", port, "set", key, value], check=True, stdout=subprocess.DEVNULL)
            for name in sys.argv[1:] or cases:
                print("--", name, flush=True)
                cases[name]()
        finally:
            os.kill(here["server"], signal.SIGCONT)
            subprocess.run([f"{SERVERS}/redis.sh", "stop", work], check=False)
    print("all passed")


main()
