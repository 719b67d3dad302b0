#!/usr/bin/env python3
"""`dlock run` on a terminal: the foreground, Ctrl-C, Ctrl-Z, fg and bg, pipelines, a shell inside the lock.

Each case talks to an interactive bash on its own terminal. DLOCK is the program under test. The locks are
files, or on the server that DLOCK_TEST_TERMINAL_URI names. Arguments: cases to run; default all.
"""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DLOCK = os.environ["DLOCK"]
PATIENCE = 20  # seconds for anything to appear


def stat_of(pid):
    """The fields of /proc/PID/stat behind the name: state, parent, group, session."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rsplit(")", 1)[1].split()[:4]


def parent_of(pid):
    return int(stat_of(pid)[1])


def session_of(pid):
    return int(stat_of(pid)[3])


class Terminal:
    """A program on its own terminal, as the session leader."""

    def __init__(self, argv, env):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, env)

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:  # the last process has left the terminal
                return False
        return True

    def send(self, text, until=None):
        """And waits for what matches `until`."""
        os.write(self.fd, text.encode())
        if until:
            self.expect(until)

    def line(self, text, until=None, runs=None):
        """And waits until `runs` is in the foreground."""
        self.send(text + "\n", until)
        if runs:
            self.foreground_is(runs)

    def expect(self, pattern, seconds=PATIENCE):
        """Waits for what matches, and forgets all up to its end."""
        deadline = time.monotonic() + seconds
        while True:
            match = re.search(pattern, self.seen)
            if match:
                self.seen = self.seen[match.end():]
                return match
            left = deadline - time.monotonic()
            if left <= 0 or not self.read(left):
                raise AssertionError(f"no {pattern!r} on the terminal, but {self.seen!r}")

    def refuse(self, pattern, seconds):
        """What matches does not appear for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.read(max(0, deadline - time.monotonic()))
        if re.search(pattern, self.seen):
            raise AssertionError(f"{pattern!r} on the terminal: {self.seen!r}")

    def foreground_is(self, command):
        """Waits until the foreground process group's leader runs `command`."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                with open(f"/proc/{os.tcgetpgrp(self.fd)}/comm", encoding="utf-8") as comm:
                    name = comm.read().strip()
            except OSError:
                name = None
            if name == command:
                return
            self.read(0.02)
        raise AssertionError(f"the foreground is {name!r}, not {command!r}; on the terminal: {self.seen!r}")

    def close(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if session_of(pid) == self.pid:
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:  # it has ended
                pass
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass
        os.close(self.fd)


class Shell(Terminal):
    """An interactive bash. Its prompt is `$> `, and `$status` of a line is asked for in a way the echo does not match."""

    def __init__(self, env):
        super().__init__(["bash", "--norc", "--noprofile", "-i"], dict(env, PS1="$> ", HISTFILE=""))
        self.expect(r"\$> ")

    def expect_status(self, status):
        self.line('echo "stat""us $?"', until=rf"status {status}\b")


class Case:
    """What a case needs: a shell, the environment, a lock server."""

    def __init__(self, uri):
        self.env = dict(os.environ, DLOCK_URI=uri, D=DLOCK, LC_ALL="C")
        self.env.pop("DLOCK_TEST_DETACHED", None)
        self.shell = Shell(self.env)

    def is_busy(self, name):
        done = subprocess.run([DLOCK, "run", "-n", "-E", "42", name, "true"], env=self.env, stdin=subprocess.DEVNULL,
                              start_new_session=True, timeout=60, check=False)
        assert done.returncode in (0, 42), done
        return done.returncode == 42

    def until(self, condition, complaint):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, complaint
            time.sleep(0.05)


def reads_the_terminal(case):
    """The command reads the terminal, and the shell has it again afterwards."""
    case.shell.line("$D run x -- cat", runs="cat")
    case.shell.line("hel" "lo", until="hello\r\nhello")
    case.shell.send("\x04", until=r"\$> ")
    case.shell.foreground_is("bash")
    case.shell.expect_status(0)


def interrupt(case):
    """Ctrl-C ends the command."""
    case.shell.line("$D run x -- sleep 1000", runs="sleep")
    case.shell.send("\x03", until=r"\$> ")
    case.shell.expect_status(130)
    assert not case.is_busy("x")


def interrupt_ends_a_script(case):
    """Ctrl-C also ends the script that the command was part of, as it would without dlock."""
    case.shell.line("""bash -c 'while :; do $D run x -- sleep 1000; echo "ag""ain"; done'""", runs="sleep")
    case.shell.send("\x03", until=r"\$> ")
    assert "again" not in case.shell.seen
    case.shell.expect_status(130)


def interrupt_ends_a_redirected_script(case):
    """… also where the command is not in the foreground, since not all of its streams are the terminal."""
    for redirection in (">/dev/null", "</dev/null"):
        case.shell.line(f"""bash -c 'while :; do $D run x -- sleep 1000 {redirection}; echo "ag""ain"; done'""")
        case.until(lambda: case.is_busy("x"), "not held")
        case.shell.send("\x03", until=r"\$> ")
        assert "again" not in case.shell.seen, redirection
        case.shell.expect_status(130)


def handled_interrupt(case):
    """A command that lives on after Ctrl-C does not take the script with it."""
    case.shell.line("""bash -c '$D run x -- bash -c "trap told=1 INT; echo ar""med; until [ \\$told ]; do sleep 0.1; done; """
                    """exit 6"; echo "went"" on $?"'""")
    case.shell.expect("armed")
    case.shell.send("\x03", until=r"went on 6")


def shell_inside(case):
    """An interactive shell inside the lock has its own job control."""
    case.shell.line("$D run x -- bash --norc --noprofile -i")
    case.shell.line('echo "in""ner $DLOCK_NAME"', until=r"inner x")
    case.shell.line("sleep 1000", runs="sleep")
    case.shell.send("\x1a", until=r"Stopped +sleep")
    assert case.is_busy("x")
    case.shell.line("fg", runs="sleep")
    case.shell.send("\x03")
    case.shell.line('echo "still"" here"', until="still here")
    case.shell.line("exit 3", until="exit\r\n")
    case.shell.expect_status(3)
    assert not case.is_busy("x")


def stop_and_continue(case):
    """Ctrl-Z stops command and job; the lock stays, far beyond its lease; fg continues both."""
    case.shell.line("$D run -l 3 x -- cat", runs="cat")
    case.shell.send("\x1a", until=r"Stopped +\$D run")
    case.shell.foreground_is("bash")
    time.sleep(7)
    assert case.is_busy("x")
    case.shell.line("fg", runs="cat")
    case.shell.line("on" "ward", until="onward\r\nonward")
    case.shell.send("\x1a", until=r"Stopped +\$D run")
    case.shell.line("fg", runs="cat")
    case.shell.send("\x04", until=r"\$> ")
    case.shell.expect_status(0)
    assert not case.is_busy("x")


def kill_while_stopped(case):
    """A stopped job can be killed."""
    case.shell.line("$D run x -- sleep 1000", runs="sleep")
    case.shell.send("\x1a", until=r"Stopped +\$D run")
    case.shell.line("kill %1")
    case.until(lambda: not case.is_busy("x"), "the lock is still held")
    case.shell.line("wait %1")  # the lock is free a moment before the job has ended
    case.shell.expect(r"(Terminated|Exit 143) +\$D run")


def stop_while_waiting(case):
    """Ctrl-Z while waiting also stops the wait: nothing is run unnoticed."""
    case.shell.line("$D run x -- sleep 1000 &", until=r"\$> ")
    case.until(lambda: case.is_busy("x"), "not held")
    case.shell.line("""$D run x -- sh -c 'echo "got"" it"'""")
    time.sleep(0.5)
    case.shell.send("\x1a", until=r"Stopped +\$D run")
    case.shell.line("kill %1; wait %1")
    case.shell.expect_status(143)
    case.shell.refuse("got it", 1)
    case.shell.line("fg", until="got it")
    case.shell.expect_status(0)


def interrupt_while_waiting(case):
    """Ctrl-C while waiting ends the wait."""
    case.shell.line("$D run x -- sleep 1000 &", until=r"\$> ")
    case.until(lambda: case.is_busy("x"), "not held")
    case.shell.line("$D run -v x -- true", until="waiting for")
    case.shell.send("\x03")
    case.shell.expect_status(130)
    case.shell.line("kill %1")


def background(case):
    """In the background a command that reads the terminal is stopped, and fg lets it read."""
    case.shell.line("""$D run x -- sh -c 'read a; echo "go""t:$a"' &""", until=r"\$> ")
    deadline = time.monotonic() + PATIENCE
    stopped = False
    while not stopped and time.monotonic() < deadline:
        case.shell.line("jobs")
        time.sleep(0.2)
        case.shell.read(0.2)
        stopped = re.search(r"Stopped.*\$D run", case.shell.seen)
    assert stopped, case.shell.seen
    case.shell.seen = ""
    case.shell.line("bg")
    time.sleep(0.5)
    case.shell.line("fg", runs="sh")
    case.shell.line("data", until="got:data")
    case.shell.expect_status(0)


def orphaned_background(case):
    """A job that cannot be brought to the foreground any more ends, instead of keeping the lock."""
    case.shell.line("""($D run x -- sh -c 'echo "wri""tten"; sleep 0.5; read a </dev/tty; sleep 1000' &)""")
    case.shell.expect("written")
    case.until(lambda: not case.is_busy("x"), "the lock is still held")


def pipeline(case):
    """In a pipeline the command gets the terminal only when it asks for it."""
    case.shell.line("""$D run x -- sh -c 'echo "wri""tten"; sleep 0.5; read a </dev/tty; echo "go""t:$a"' | cat""")
    case.shell.expect("written")
    case.shell.foreground_is("sh")
    case.shell.line("data", until="got:data", runs="bash")
    case.shell.expect_status(0)
    case.shell.line("""$D run x -- sh -c 'echo "a ""line"; sleep 1000' | (read a </dev/tty; cat)""")
    time.sleep(0.5)
    case.shell.line("for the other side", until="a line")
    case.shell.send("\x03")
    case.shell.expect_status(130)


def no_shell_above(case):
    """As a session leader, without a shell to continue it, it ignores Ctrl-Z as every such program does."""
    terminal = Terminal([DLOCK, "run", "x", "--", "cat"], case.env)
    try:
        terminal.foreground_is("cat")
        terminal.send("\x1a")
        time.sleep(0.5)
        terminal.line("hel" "lo", until="hello\r\nhello")
        terminal.send("\x04")
        assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 0
    finally:
        terminal.close()


def hold(case):
    """--hold tells how long it keeps the lock; Ctrl-C releases it, and ends the script that it was part of."""
    case.shell.line("""bash -c 'while :; do $D run --hold 1h x -- true; echo "ag""ain"; done'""")
    case.shell.expect(r'the command has ended with status 0; "x" is held for another (59m 5\d|60m 0)s \(--hold\), Ctrl-C releases it')
    assert case.is_busy("x")
    case.shell.send("\x03", until=r'SIGINT: "x" is released (59m \d+|60m 0)s before the end of --hold')
    case.shell.expect(r"\$> ")
    assert "again" not in case.shell.seen
    case.shell.expect_status(130)
    assert not case.is_busy("x")


def interrupt_leaves_no_hold(case):
    """Ctrl-C on the command gives the prompt back at once."""
    case.shell.line("$D run --hold 1h x -- sleep 1000", runs="sleep")
    case.shell.send("\x03", until=r'SIGINT: "x" is released')
    case.shell.expect(r"\$> ")
    case.shell.expect_status(130)
    assert not case.is_busy("x")


def stop_while_held(case):
    """Ctrl-Z stops the job, not the hold; a short one ends in that time."""
    case.shell.line("$D run --hold 1h x -- sh -c 'exit 3'", until="held for another")
    case.shell.send("\x1a", until=r"Stopped +\$D run")
    assert case.is_busy("x")
    case.shell.line("kill %1")
    case.until(lambda: not case.is_busy("x"), "the lock is still held")
    case.shell.line("wait %1", until=r"Exit 3 +\$D run")
    case.shell.line("$D run --hold 3 x -- sh -c 'exit 4'", until="held for another")
    case.shell.send("\x1a", until=r"Stopped +\$D run")
    case.until(lambda: not case.is_busy("x"), "the lock is still held")
    case.shell.line("fg", until=r"\$> ")
    case.shell.expect_status(4)


def pipeline_while_held(case):
    """A pipeline's reader sees the end of the output when the command has ended."""
    case.shell.line("""$D run --hold 1h x -- echo "a ""line" | (cat; echo "en""ded")""", until="a line")
    case.shell.expect("ended\r\n")
    assert case.is_busy("x")
    case.shell.send("\x03", until=r"\$> ")
    assert not case.is_busy("x")


def killed_front(case):
    """SIGKILL of the process that the shell knows takes the command along."""
    case.shell.line("$D run x -- sleep 1000", runs="sleep")
    command = os.tcgetpgrp(case.shell.fd)
    job = parent_of(parent_of(command))
    os.kill(job, signal.SIGKILL)
    case.shell.expect("Killed")
    case.until(lambda: not os.path.exists(f"/proc/{command}"), "the command is still there")


def hangup(case):
    """When the terminal goes away, so does the command."""
    case.shell.line("$D run x -- sleep 1000", runs="sleep")
    command = os.tcgetpgrp(case.shell.fd)
    os.close(case.shell.fd)
    case.shell.fd = os.open(os.devnull, os.O_RDWR)
    case.until(lambda: not os.path.exists(f"/proc/{command}"), "the command is still there")
    case.until(lambda: not case.is_busy("x"), "the lock is still held")


def nothing_held(case):
    """Without any holder, a terminal gets a message; a pipe gets no line."""
    case.shell.line("$D list", until=r"[\r\n]no lock is held\r\n")
    case.shell.line("$D list x", until=r'[\r\n]no lock is held whose name begins with "x"\r\n')
    case.shell.line("$D inspect x", until=r"[\r\n]x  free\r\n")
    case.shell.line('echo "<$($D list)>"', until=r"[\r\n]<>\r\n")
    case.shell.line("$D list --json", until=r'[\r\n]\{"prefix": "", "holders": \[\]\}\r\n')


def gives_up(case):
    """Whoever gives up on a terminal is told who has the lock; a file is told nothing."""
    case.shell.line("$D run x -- sleep 1000 & sleep 0", until=r"\$> ")
    case.until(lambda: case.is_busy("x"), "the lock is not held")
    who = r'dlock: "x" is held by sleep on \S+, pid \d+, for \d+ s\r\n'
    case.shell.line("$D run -n x true", until=who)
    case.shell.line("$D run -w 0.1 x true", until=who)
    case.shell.line('echo "<$($D run -n x true 2>&1)>"', until=r"[\r\n]<>\r\n")


CASES = [reads_the_terminal, interrupt, interrupt_ends_a_script, interrupt_ends_a_redirected_script, handled_interrupt,
         shell_inside, stop_and_continue, kill_while_stopped, stop_while_waiting, interrupt_while_waiting, background,
         orphaned_background, pipeline, no_shell_above, hold, interrupt_leaves_no_hold, stop_while_held,
         pipeline_while_held, killed_front, hangup, nothing_held, gives_up]


def main():
    chosen = sys.argv[1:]
    work = tempfile.mkdtemp(prefix="cli.", dir=os.environ.get("DLOCK_TEST_DIR"))
    failures = 0
    try:
        for number, case_of in enumerate(c for c in CASES if not chosen or c.__name__ in chosen):
            case = Case(os.environ.get("DLOCK_TEST_TERMINAL_URI", f"file:{work}/locks{number}"))
            try:
                case_of(case)
                print(f"ok      {case_of.__name__}")
            except AssertionError as error:
                failures += 1
                print(f"FAILED  {case_of.__name__} ({case_of.__doc__}): {error}")
            finally:
                case.shell.close()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if failures else 0)


main()
