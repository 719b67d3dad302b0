#!/usr/bin/env python3
"""Breaks a copy of the core, or of the simulated server, in each of the ways that mutations.txt lists, and runs the
simulation until it notices. Prints a table; fails unless each is noticed within a minute.

    mutations.py [--seconds S] [WORD ...]    only those with one of these words in their titles
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
LIST = os.path.join(ROOT, "tests", "systems", "simulation", "mutations.txt")


def read_list():
    """Returns [(title, [(file, old, new), ...]), ...]; the head of the list describes its format."""
    mutations, lines = [], None
    with open(LIST, encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            line = line.rstrip("\n")
            if line.startswith("#") or not line:
                continue
            if line.startswith("== "):
                mutations.append((line[3:], []))
            elif line.startswith("@ "):
                lines = ([], [])
                mutations[-1][1].append((line[2:], *lines))
            elif line[0] in " -+" and lines is not None:
                if line[0] != "+":
                    lines[0].append(line[1:])
                if line[0] != "-":
                    lines[1].append(line[1:])
            else:
                sys.exit(f"{LIST}:{number}: neither a title, a file nor a line of one")
    return mutations


def mutate(folder, edits):
    """Applies the edits. Returns what restore() needs to undo them, or None if one does not fit the source. Lines are
    compared without their indentation, so that a move into a block does not matter."""
    before = {}
    for name, old, new in edits:
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8") as source:
            text = source.read()
        before.setdefault(path, text)
        pattern = r"\n".join(r"[ \t]*" + re.escape(line.strip()) for line in old)
        found = list(re.finditer("^" + pattern + "$", text, re.MULTILINE))
        if len(found) != 1:
            restore(before)
            return None
        text = text[: found[0].start()] + "\n".join(new) + text[found[0].end() :]
        with open(path, "w", encoding="utf-8") as target:
            target.write(text)
    return before


def restore(before):
    for path, text in before.items():
        with open(path, "w", encoding="utf-8") as target:
            target.write(text)


def build(folder):
    return subprocess.run(
        ["cmake", "--build", os.path.join(folder, "build"), "--target", "dlock-simulate"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def simulate(folder, seconds):
    """Runs the simulation. Returns the fault that it reports, or None, and how long that took."""
    begun = time.monotonic()
    program = os.path.join(folder, "build", "bin", "dlock-simulate")
    kept = os.path.join(folder, "tests", "systems", "simulation", "seeds.txt")
    run = subprocess.run(
        [program, "--file", kept, "--faults", "1", "--seconds", str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        check=False,
    )
    seen = re.search(r"^seed .*", run.stdout, re.MULTILINE)
    word = seen.group() if seen else "?"
    return (word if run.returncode != 0 else None), time.monotonic() - begun


def copy(folder):
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, files):
        if not os.path.isfile(os.path.join(ROOT, name)):
            continue
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        shutil.copy2(os.path.join(ROOT, name), os.path.join(folder, name))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    mutations = [m for m in read_list() if not options.words or any(word in m[0] for word in options.words)]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="dlock-mutations.") as folder:
        copy(folder)
        quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "check": True}
        subprocess.run(["cmake", "--preset", "dev", "-DDLOCK_WERROR=OFF"], **quiet)
        built = build(folder)
        if built.returncode != 0:
            sys.exit(built.stdout)
        for title, edits in mutations:
            before = mutate(folder, edits)
            if before is None:
                outcome, missed = "DOES NOT FIT THE SOURCE", missed + 1
            elif build(folder).returncode != 0:
                outcome, missed = "DOES NOT COMPILE", missed + 1
            else:
                seen, took = simulate(folder, options.seconds)
                missed += seen is None
                outcome = f"{took:4.0f} s  {seen}" if seen else "NOT NOTICED"
            if before:
                restore(before)
            print(f"{title:58}  {outcome}", flush=True)
    print(f"{len(mutations)} mutations, {missed} not noticed")
    return 1 if missed or not mutations else 0


if __name__ == "__main__":
    sys.exit(main())
