#!/usr/bin/env python3
"""Breaks a copy of the source in each of the ways that the lists in this folder describe, and runs the tests that each
names until one notices it. Prints a table; fails unless each is noticed. tests/run.sh mutations starts the servers.

    mutations.py [WORD ...]             only the lists of these names, and what has one of the words in its title
    mutations.py --servers [WORD ...]   prints the servers that these take
    mutations.py --copy FOLDER ...      the copy stays there, for the next time

A list has lines of these kinds. What stands before its first title counts for the whole list.

    # a remark
    $ servers that the tests take (tests/servers/)
    % a regular expression for names of tests, as for `ctest -R`; `simulation`: the simulation, for a minute
    == what is broken
    @ file
    lines of it that stand there once, whatever their indentation: ' ' stays, '-' goes, '+' comes
"""
import argparse
import contextlib
import filecmp
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
SIMULATION = "simulation"
PRODUCT = ["core/all", "backends/all", "guardian/all", "cli/all"]


class Mutation:
    def __init__(self, title, tests):
        self.title = title
        self.tests = tests
        self.edits = []


class List:
    """One of the lists; the head of this file describes its lines."""

    def __init__(self, path):
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.servers = []
        self.mutations = []
        self._tests = None
        self._lines = None
        with open(path, encoding="utf-8") as source:
            for number, line in enumerate(source, 1):
                line = line.rstrip("\n")
                if line and not line.startswith("#") and not self._take(line):
                    sys.exit(f"{path}:{number}: not a line of a list of mutations")
        for mutation in self.mutations:
            if not mutation.tests or not mutation.edits:
                sys.exit(f"{path}: no tests, or no change: {mutation.title}")

    def _take(self, line):
        if line.startswith("$ "):
            self.servers = line[2:].split()
        elif line.startswith("== "):
            self.mutations.append(Mutation(line[3:], self._tests))
            self._lines = None
        elif line.startswith("% ") and self.mutations:
            self.mutations[-1].tests = line[2:]
        elif line.startswith("% "):
            self._tests = line[2:]
        elif line.startswith("@ ") and self.mutations:
            self._lines = ([], [])
            self.mutations[-1].edits.append((line[2:], *self._lines))
        elif line[0] in " -+" and self._lines is not None:
            if line[0] != "+":
                self._lines[0].append(line[1:])
            if line[0] != "-":
                self._lines[1].append(line[1:])
        else:
            return False
        return True


def choose(words):
    """Returns the lists with the mutations that the words choose."""
    lists = [List(path) for path in sorted(glob.glob(os.path.join(HERE, "*.txt")))]
    for part in lists:
        if words and part.name not in words:
            part.mutations = [m for m in part.mutations if any(word in m.title for word in words)]
    return [part for part in lists if part.mutations]


def write(path, text):
    with open(path, "w", encoding="utf-8") as target:
        target.write(text)


@contextlib.contextmanager
def mutated(folder, edits):
    """The source is mutated inside. Yields False if an edit does not fit it. Lines are compared without their
    indentation, so that a move into a block does not matter."""
    before, fits = {}, True
    try:
        for name, old, new in edits:
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as source:
                text = source.read()
            pattern = r"\n".join(r"[ \t]*" + re.escape(line.strip()) for line in old)
            found = list(re.finditer("^" + pattern + "$", text, re.MULTILINE))
            if len(found) != 1:
                fits = False
                break
            before.setdefault(path, text)
            write(path, text[: found[0].start()] + "\n".join(new) + text[found[0].end() :])
        yield fits
    finally:
        for path, text in before.items():
            write(path, text)


def run(arguments, **options):
    return subprocess.run(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **options
    )


class Copy:
    """A copy of the source, with a build."""

    def __init__(self, folder):
        self.folder = folder
        self.build = os.path.join(folder, "build")
        self._copy_files()
        # A compiler cache, if there is one, finds what another copy has compiled.
        os.environ.update(CCACHE_BASEDIR=folder, CCACHE_NOHASHDIR="1")
        if not os.path.exists(os.path.join(self.build, "build.ninja")):
            cached = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
            done = run(["cmake", "--preset", "dev", "-DDLOCK_WERROR=OFF", "-DDLOCK_MAN=OFF", *cached], cwd=folder)
            if done.returncode != 0:
                sys.exit(done.stdout)

    def _copy_files(self):
        files = run(["git", "-C", ROOT, "ls-files", "-z"]).stdout.split("\0")
        for name in filter(None, files):
            source, target = os.path.join(ROOT, name), os.path.join(self.folder, name)
            if not os.path.isfile(source) or (os.path.exists(target) and filecmp.cmp(source, target, shallow=False)):
                continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(source, target)

    def tests(self, pattern):
        """Returns the tests of the pattern, as CTest describes them."""
        listed = run(["ctest", "--test-dir", self.build, "-R", pattern, "--show-only=json-v1"])
        return json.loads(listed.stdout[listed.stdout.index("{") :])["tests"]

    def programs(self, pattern):
        """Returns the targets that the tests run."""
        if pattern == SIMULATION:
            return ["dlock-simulate"]
        words = json.dumps([(test.get("command"), test.get("properties")) for test in self.tests(pattern)])
        return PRODUCT + sorted({"bin/" + name for name in re.findall(re.escape(self.build) + r'/bin/([^"; :]+)', words)})

    def folders(self, pattern):
        """Returns the targets of all that belongs to the tests: some find programs beside their own."""
        folders = set()
        for test in self.tests(pattern):
            for each in test.get("properties", []):
                if each["name"] == "WORKING_DIRECTORY":
                    folders.add(os.path.relpath(each["value"], self.build) + "/all")
        return sorted(folders)

    def make(self, targets):
        return run(["cmake", "--build", self.build, "--target", *targets, "--", "--quiet"])

    def notice(self, pattern, *options):
        """Runs the tests until one fails. Returns what failed, or None."""
        if pattern == SIMULATION:
            program = os.path.join(self.build, "bin", "dlock-simulate")
            kept = os.path.join(self.folder, "tests", "systems", "simulation", "seeds.txt")
            done = run([program, "--file", kept, "--faults", "1", "--seconds", "60"])
            seen = re.search(r"^seed .*", done.stdout, re.MULTILINE)
        else:
            test = ["ctest", "--test-dir", self.build, "-R", pattern, "--no-tests=error", "--timeout", "100"]
            done = run([*test, "--stop-on-failure", "--output-on-failure", "-j", "4", *options])
            seen = re.search(r"(?<=: )\S+ \.*\*\*\*\w+", done.stdout)
        if done.returncode == 0:
            return None
        return re.sub(r" \.*\*\*\*", " ", seen.group()) if seen else done.stdout[-500:]


def sound(copy, mutations):
    """The named tests have to exist, and to pass as long as nothing is broken. Returns whether they do."""
    patterns = sorted({m.tests for m in mutations} - {SIMULATION})
    empty = [pattern for pattern in patterns if not copy.tests(pattern)]
    for pattern in empty:
        print(f"no test has such a name: {pattern}")
    built = copy.make(
        sorted({target for m in mutations for target in copy.programs(m.tests)})
        + sorted({target for pattern in patterns for target in copy.folders(pattern)})
    )
    if built.returncode != 0:
        sys.exit(built.stdout)
    names = sorted({test["name"] for pattern in patterns for test in copy.tests(pattern)})
    union = "|".join(f"^{re.escape(name)}$" for name in names)
    red = copy.notice(union, "--repeat", "until-pass:2") if names else None
    if red:
        print(f"fails though nothing is broken: {red}")
    return not empty and not red


def judge(copy, mutation):
    """Returns whether the mutation is noticed, and a line about it."""
    with mutated(copy.folder, mutation.edits) as fits:
        if not fits:
            return False, "DOES NOT FIT THE SOURCE"
        if copy.make(copy.programs(mutation.tests)).returncode != 0:
            return False, "DOES NOT COMPILE"
        begun = time.monotonic()
        seen = copy.notice(mutation.tests)
        return bool(seen), f"{time.monotonic() - begun:4.0f} s  {seen}" if seen else "NOT NOTICED"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", action="store_true")
    parser.add_argument("--copy")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    lists = choose(options.words)
    if options.servers:
        print(*sorted({server for part in lists for server in part.servers}))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the ends of the blocks
    mutations = [mutation for part in lists for mutation in part.mutations]
    if not mutations:
        sys.exit(f"no list and no title has one of these words: {' '.join(options.words)}")
    with tempfile.TemporaryDirectory(prefix="dlock-mutations.") as folder:
        os.chmod(folder, 0o755)  # for tests that run as another user
        copy = Copy(os.path.realpath(options.copy or folder))
        missed = 0 if sound(copy, mutations) else 1
        for part in lists:
            for mutation in part.mutations:
                noticed, line = judge(copy, mutation)
                missed += not noticed
                print(f"{part.name + ': ' + mutation.title:78}  {line}", flush=True)
    print(f"{len(mutations)} mutations, {missed} not noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
