"""Completion in bash, zsh and fish, each as it runs: every command and every option that the help has is offered, and what
an option takes. DLOCK_COMPLETIONS is the folder with the scripts."""

import fcntl, os, pty, re, select, shutil, struct, subprocess, sys, tempfile, termios, time

DLOCK, SCRIPTS = os.environ["DLOCK"], os.environ["DLOCK_COMPLETIONS"]
PATIENCE_S = 60
failed = False
environment = dict(os.environ, PATH=os.path.dirname(DLOCK) + ":" + os.environ["PATH"], TERM="dumb", LC_ALL="C.UTF-8")


def complain(text):
    global failed
    failed = True
    print("completion: " + text, file=sys.stderr)


class Terminal:
    """A shell on a terminal, in which `key` lists the line's possible continuations."""

    def __init__(self, arguments, setup, key):
        self.key, self.text = key, ""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execvpe(arguments[0], arguments, environment)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 1000, 200, 0, 0))
        self.send(setup + "; echo RE''ADY\n")
        if self.missing(["READY"]):
            raise SystemExit("completion: %s does not start: %r" % (arguments[0], self.text))

    def send(self, text):
        os.write(self.descriptor, text.encode())

    def missing(self, words):
        """The words that are not shown, after waiting for them."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            left = [w for w in words if not re.search(r"(^|\s)" + re.escape(w) + r"(\s|$)", self.text)]
            if not left or time.monotonic() > deadline:
                return left
            if select.select([self.descriptor], [], [], 1)[0]:
                self.text += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(self.descriptor, 65536).decode(errors="replace"))

    def lacks(self, line, words):
        self.send("\x15\n")  # a fresh line, so that what is shown from here on is about this one
        time.sleep(0.05)
        while select.select([self.descriptor], [], [], 0.1)[0]:
            os.read(self.descriptor, 65536)
        self.text = ""
        self.send(line + self.key)
        return self.missing(words)

    def close(self):
        os.close(self.descriptor)
        os.waitpid(self.pid, 0)


class Fish:
    def lacks(self, line, words):
        script = "source %s/dlock.fish; complete -C '%s'" % (SCRIPTS, line)
        done = subprocess.run(["fish", "--no-config", "-c", script], env=environment, capture_output=True, text=True)
        if done.stderr:
            complain("fish: %s: %s" % (line, done.stderr))
        offered = [l.split("\t")[0] for l in done.stdout.splitlines()]
        surplus = [w for w in offered if w.startswith("-") and w not in words]
        if surplus:
            complain("fish: %s offers %s, which the help has not" % (line, surplus))
        return [w for w in words if w not in offered]

    def close(self):
        pass


def help_of(*arguments):
    return subprocess.run([DLOCK, *arguments], capture_output=True, text=True, check=True).stdout


commands = re.findall(r"^  ([a-z]+)  ", help_of("--help"), re.M)
assert len(commands) > 10, commands
lines = {"dlock ": commands + ["--help", "--version"]}
for command in commands:
    if command == "help":
        continue
    text = help_of("help", command)
    options = re.findall(r"(?<![\w-])--?[a-zA-Z][a-z-]*", "\n".join(re.findall(r"^ +(-.*?)(?:   *|$)", text, re.M)))
    assert "--help" in options, options
    # A shell shows both kinds for "-"; fish shows the long ones for "--".
    lines["dlock %s -" % command] = options
lost = ["term", "kill", "warn"]
for word in lost:
    assert re.search(r"\b%s\b" % word, help_of("help", "run")), word
lines.update({
    "dlock run --on-lost ": lost,
    "dlock run -b fil": ["file:"],
    "dlock run nightly -- uniq-of-": ["uniq-of-this-test"],
    "dlock run -w 5s nightly uniq-of-": ["uniq-of-this-test"],
    "dlock run nightly -": ["-c", "--command", "--"],
    "dlock schema fi": ["file"],
    "dlock doctor fil": ["file:"],
})

work = tempfile.mkdtemp()
program = os.path.join(work, "uniq-of-this-test")
with open(program, "w") as file:
    file.write("#!/bin/sh\n")
os.chmod(program, 0o755)
environment["PATH"] += ":" + work
os.chdir(work)
try:
    bash_setup = "bind 'set page-completions off' 'set completion-query-items 0' 'set bell-style none'; PS1='$ '"
    shells = {
        "bash": lambda: Terminal(["bash", "--norc", "--noprofile"], bash_setup + "; source %s/dlock.bash" % SCRIPTS, "\x1b?"),
        "zsh": lambda: Terminal(["zsh", "-f"], "PS1='$ '; LISTMAX=10000; autoload -Uz compinit; compinit -u -D; "
                                "source %s/dlock.zsh 2>/dev/null; compdef _dlock dlock" % SCRIPTS, "\x04"),
        "fish": Fish,
    }
    for name, start in shells.items():
        shell = start()
        for line, words in lines.items():
            missing = shell.lacks(line, words)
            if missing:
                complain("%s: after \"%s\" there is no %s: %s" % (name, line, missing, getattr(shell, "text", "")))
        shell.close()
finally:
    shutil.rmtree(work)
sys.exit(failed)
