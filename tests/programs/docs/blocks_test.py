#!/usr/bin/env python3
"""Every block of code in the documents does what it says: blocks_test.py --list | DLOCK LIBRARY CC CXX

Shell blocks run against the suite's servers, in the place that scratch.py makes; C and C++ are compiled and run, Python
runs page by page, units of systemd are verified and their commands run, and so on. blocks.py's comments on a block
decide. The test fails on a block that it cannot run, and lists those that are not run. --list shows the treatment of
each, and runs nothing."""
import collections
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

import blocks
import scratch

FRAMES = os.path.join(blocks.TREE, "tests", "programs", "docs", "frames")
LONG_S = 120  # a virtual environment takes most of it on a busy machine

# In the shell: every command that fails is noted with its status.
NOTE_FAILURES = """set -E -o pipefail
trap 'echo "$? $BASH_COMMAND" >>"$FAILURES"' ERR
"""


class Wrong(Exception):
    """A block does not do what it says."""


def brief(output):
    """The beginning and the end of something long."""
    lines = output.splitlines()
    return "\n".join(lines if len(lines) < 25 else [*lines[:5], "…", *lines[-15:]])


def end_session(leader):
    """Kills all processes of a session: commands under dlock have their own process group."""
    for _ in range(1000):
        if subprocess.run(["pkill", "-KILL", "-s", str(leader)], check=False).returncode != 0:
            return
        time.sleep(0.01)


def finish(command, **options):
    """Its status and its output. No process of it continues to write into the folder if it does not end."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options
    ) as process:
        try:
            printed = process.communicate(timeout=LONG_S)[0]
        except subprocess.TimeoutExpired:
            end_session(process.pid)
            raise Wrong(f"does not end: {shlex.join(command)}\n{process.communicate()[0]}") from None
    return process.returncode, printed


def run(command, **options):
    """What it printed; Wrong if it fails."""
    status, printed = finish(command, **options)
    if status != 0:
        raise Wrong(f"status {status}: {shlex.join(command)}\n{printed}")
    return printed


class Runner:
    def __init__(self, place, library, cc, cxx):
        self.place = place
        self.library = library
        self.compilers = {"c": [cc, "-std=gnu11"], "c++": [cxx, "-std=c++11"]}
        self.python = collections.defaultdict(list)  # the blocks of a page up to here
        self.number = 0

    def folder(self):
        self.number += 1
        return self.place.new_folder(f"block{self.number}")

    # ---- by language

    def run_sh(self, block):
        self.shell(block.text, allowed=[rule.strip() for rule in block.rules.get("may fail", "").split(";") if rule])

    def shell(self, text, allowed=(), **variables):
        folder = self.folder()
        failures = os.path.join(folder, "failures")
        script = os.path.join(folder, "block.sh")
        with open(script, "w") as file:
            file.write(NOTE_FAILURES + self.place.fit(text, quoted=True))
        environment = {**self.place.environment, "FAILURES": failures, **variables}
        try:
            output = run(["bash", script], cwd=folder, env=environment)
        except Wrong as wrong:
            if not allowed:
                raise
            output = str(wrong)
        if os.path.exists(failures):
            with open(failures) as file:
                failed = [line for line in file.read().splitlines() if not self.may_fail(line, allowed)]
            if failed:
                raise Wrong("\n".join(failed) + "\n" + output)
        missing = self.place.programs_named(text) - self.place.programs_run()
        if missing:
            raise Wrong(f"did not run: {', '.join(sorted(missing))}\n{output}")

    def run_console(self, block):
        """Each command behind a "$ " prints the lines below it, but for spaces, and "…" stands for anything; on files."""
        folder = self.folder()
        environment = {name: value for name, value in self.place.environment.items() if name != "DLOCK_URI"}
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.M):
            _, printed = finish(["bash", "-c", self.place.fit(command, quoted=True)], cwd=folder, env=environment)
            pattern = ".*".join(map(re.escape, " ".join(shown.split()).split("…")))
            if not re.fullmatch(pattern, " ".join(printed.split())):
                raise Wrong(f"{command}\nprints\n{printed}and not\n{shown}")

    @staticmethod
    def may_fail(line, allowed):
        """Only with 1, which says no; whatever else a command answers is an error."""
        status, _, command = line.partition(" ")
        return status == "1" and any(command.startswith(start) for start in allowed)

    def run_c(self, block):
        folder = self.folder()
        language = block.language
        suffix = {"c": ".c", "c++": ".cpp"}[language]
        source = os.path.join(folder, "block" + suffix)
        with open(source, "w") as file:
            file.write(self.place.fit(block.text))
        frame = block.rules.get("frame")
        program = os.path.join(folder, "program")
        where = os.path.dirname(self.library)
        run([
            *self.compilers[language], "-Wall", "-Wextra", "-Werror", "-I", os.path.join(blocks.TREE, "include"),
            f'-DBLOCK="{source}"', os.path.join(FRAMES, frame) if frame else source, "-o", program,
            self.library, f"-Wl,-rpath,{where}", "-pthread",
        ])  # fmt: skip
        run([program], cwd=folder, env=self.place.environment)

    def run_python(self, block):
        """After those before it on its page, as a reader would type them."""
        before = self.python[block.page]
        before.append(self.place.fit(block.text))
        script = os.path.join(self.folder(), "block.py")
        with open(os.path.join(FRAMES, "report.py")) as frame, open(script, "w") as file:
            file.write("\n".join([frame.read(), *before, "client.close()\n"]))
        package = {"PYTHONPATH": os.path.join(blocks.TREE, "bindings", "python", "src")}
        run([sys.executable, "-B", script], env={**self.place.environment, **package})

    def run_sql(self, block):
        """The statement refuses a fence that is smaller than the last one."""
        database = sqlite3.connect(":memory:")
        database.execute("CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER)")
        database.execute("INSERT INTO report VALUES (1, 'nothing yet', 0)")
        for body, fence, taken in (("first", 33, 1), ("second", 34, 1), ("late", 33, 0)):
            if database.execute(block.text, {"1": body, "2": fence, "3": 1}).rowcount != taken:
                raise Wrong(f"fence {fence}: {'refused' if taken else 'taken'}")

    def run_ini(self, block):
        unit = block.rules["unit"]
        folder = self.folder()
        text = self.place.fit(block.text).replace("User=app\n", "")
        with open(os.path.join(folder, unit), "w") as file:
            file.write(text)
        if "[Unit]" in text:
            with open(os.path.join(folder, unit.replace(".timer", ".service")), "a") as file:
                if unit.endswith(".timer"):
                    file.write("[Service]\nExecStart=/bin/true\n")
        if shutil.which("systemd-analyze"):
            said = run(["systemd-analyze", "verify", "--recursive-errors=no", os.path.join(folder, unit)])
            if unit in said:
                raise Wrong(said)
        start = re.search(r"^ExecStart=(.*)", text, re.M)
        if start:
            if "\nSuccessExitStatus=143\n" not in text:  # dlock exits so for a command that dies of systemd's SIGTERM
                raise Wrong("systemctl stop leaves a failed unit")
            uri = re.search(r"^Environment=DLOCK_URI=(.*)", text, re.M)[1]
            self.shell(start[1] + "\n", DLOCK_URI=uri)

    def run_crontab(self, block):
        for line in block.text.splitlines():
            found = re.fullmatch(r"(?:[\d*/,-]+ +){5}[a-z]+ +(.*)", line)
            if not found:
                raise Wrong(f"no line of /etc/crontab: {line}")
            self.shell(found[1] + "\n")

    def run_yaml(self, block):
        import yaml  # Debian's python3-yaml

        document = yaml.safe_load(block.text)
        pod = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        mounted = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            if {mount["name"] for mount in container["volumeMounts"]} != mounted:
                raise Wrong("volumes and mounts differ")
            variables = {variable["name"]: self.place.fit(variable["value"]) for variable in container["env"]}
            self.shell(shlex.join(container["command"]) + "\n", **variables)

    # ---- by rule

    def run_uris(self, block):
        """Each URI's scheme and keys are known."""
        for uri in re.findall(r"(?<!\S)[a-z][a-z+]*:(?=\S|  )[^\s]*|(?<!\S)(?:file|mem):(?=\s)", block.text):
            scheme = uri.partition(":")[0]
            if scheme not in self.schemes():
                raise Wrong(f"no backend has the scheme {scheme}: {uri}")
            for key in re.findall(r"[?&]([a-z_]+)=", uri):
                if key != "key" and not self.takes(scheme, key):
                    raise Wrong(f"{scheme}: does not take {key}: {uri}")

    def schemes(self):
        listed = json.loads(run([self.place.dlock, "backends", "--json"]))["backends"]
        return {scheme for backend in listed for scheme in backend["schemes"] or []}

    def takes(self, scheme, key):
        """As the command says when it meets a key that it does not know."""
        said = subprocess.run(
            [self.place.dlock, "doctor", f"{scheme}:?no-such-key=1"], capture_output=True, text=True, env=self.place.environment
        ).stderr
        if "it takes" not in said:  # one that asks its client library
            return True
        return re.search(rf"\b{key}\b", said.partition("it takes")[2]) is not None

    def check_paths(self, block):
        top = block.rules["paths under"]
        for line in block.text.splitlines():
            path = line.split()[0]
            if not line.startswith(" ") and not os.path.exists(os.path.join(blocks.TREE, top, path.replace("<name>", "file"))):
                raise Wrong(f"there is no {path} in {top}")

    def check_reader(self, block):
        with open(os.path.join(blocks.TREE, block.rules["run by"])) as file:
            if os.path.basename(block.page) not in file.read():
                raise Wrong(f"{block.rules['run by']} does not read this page")

    def do(self, block):
        if "run by" in block.rules:
            self.check_reader(block)
        elif "not run" in block.rules:
            if block.language == "sh":
                run(["bash", "-n", "-c", block.text])
        elif "URIs" in block.rules:
            self.run_uris(block)
        elif "paths under" in block.rules:
            self.check_paths(block)
        else:
            getattr(self, "run_" + block.language.replace("c++", "c"))(block)


def fate(block):
    """The treatment of a block, as one line; None if there is no way to run it."""
    for rule, words in {"not run": "not run", "run by": "run by", "URIs": "URIs", "paths under": "paths"}.items():
        if rule in block.rules:
            return f"{words} {block.rules[rule]}".strip()
    if block.language == "ini" and "unit" not in block.rules:
        return None
    known = {name.removeprefix("run_") for name in dir(Runner) if name.startswith("run_")} | {"c++"}
    return "run" if block.language in known else None


def main():
    found = blocks.all_blocks()
    unknown = [block for block in found if fate(block) is None]
    for block in unknown:
        print(f"{block}: {block.language or 'a block'}: say how it is run, or why not (tests/programs/docs/blocks.py)", file=sys.stderr)
    if sys.argv[1:] == ["--list"]:
        for block in found:
            print(f"{str(block):32} {block.language:8} {fate(block)}")
        return bool(unknown)

    dlock, library, cc, cxx = sys.argv[1:]
    folder = tempfile.mkdtemp(prefix="docs.", dir=os.environ.get("DLOCK_TEST_DIR"))
    place = scratch.Scratch(folder, dlock, os.path.realpath(library))
    runner = Runner(place, os.path.realpath(library), cc, cxx)
    failed = []
    try:
        for block in found:
            if block in unknown:
                continue
            try:
                runner.do(block)
            except (Wrong, scratch.NoServer) as wrong:
                failed.append(block)
                print(f"{block}: {brief(str(wrong))}")
    finally:
        place.end()

    fates = collections.Counter(re.sub(r"(not run|run by|paths) .*", r"\1", fate(block) or "unknown") for block in found)
    print(f"{len(found)} blocks:", ", ".join(f"{count} {name}" for name, count in fates.items()))
    for block in found:
        if "not run" in block.rules:
            print(f"not run: {block}: {block.rules['not run']}")
    if len(found) < 60 or fates["run"] < 25:
        print("too few blocks are found")
        return True
    return bool(failed or unknown)


if __name__ == "__main__":
    sys.exit(main())
