"""A place where the shell blocks of the documents run: a folder with the programs that they name, and with replacements
for a reader's own servers, files and users."""
import os
import re
import shlex
import shutil
import subprocess

import blocks

# Programs of the reader's that a block may run. Each notes its name and ends well.
PROGRAMS = [
    "backup.sh", "git", "make", "make-report", "migrate", "migrated", "nightly", "rebuild", "scheduler", "search", "wget",
]  # fmt: skip
SCRIPTS = ["deploy.sh", "first-step.sh", "report", "second-step.sh", "step.sh"]  # in the working folder

# Hosts in URIs, and the backend whose server of the test suite replaces them.
HOSTS = {
    ("redis", "locks.example"): "redis",
    ("redis", "redis.example"): "redis",
    ("redis", "locks"): "redis",
    ("postgresql", "locks.example"): "postgresql",
    ("postgresql", ""): "postgresql",
}
DATABASES = ["app", "locks"]

# Commands that take too long for a test, and their shorter form.
SHORTER = {"--hold 30s": "--hold 1s", "dlock bench ": "dlock bench --time 200ms --rounds 1 -w cycle "}

PASSWORD = "word of the documents"
REDIS = os.path.join(blocks.TREE, "tests", "servers", "redis.sh")


class NoServer(Exception):
    """The suite's server of this backend is not there."""


class Scratch:
    """`path` is the working folder; `environment` has DLOCK_URI, a Redis, and a PATH with the programs."""

    def __init__(self, folder, dlock, library):
        self.folder = folder
        self.dlock = os.path.realpath(dlock)
        self.bin = os.path.join(folder, "bin")
        self.credentials = os.path.join(folder, "credentials")
        self.noted = os.path.join(folder, "noted")
        for name in (self.bin, self.credentials):
            os.makedirs(name)
        for name in PROGRAMS:
            self._program(os.path.join(self.bin, name))
        os.symlink(self.dlock, os.path.join(self.bin, "dlock"))
        for name in ("password", "locks", "redis"):
            path = os.path.join(self.credentials, name)
            with open(path, "w") as file:
                file.write(PASSWORD + "\n")
            os.chmod(path, 0o600)
        # The placeholders in documents for the reader's own values.
        self.texts = {
            "/usr/local/bin/": self.bin + "/",
            "/usr/bin/dlock": self.dlock,
            "/etc/dlock/": self.credentials + "/",
            "/run/secrets/locks/": self.credentials + "/",
            "/var/lib/team/": folder + "/team/",
            "/var/lib/prometheus/node-exporter": folder,
            "%d/": self.credentials + "/",
            "-g team": "-g " + str(os.getgid()),
            "group=team": "group=" + str(os.getgid()),
            "DATABASE": DATABASES[0],
            **SHORTER,
        }
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DLOCK_")},
            "PATH": self.bin + ":" + os.environ["PATH"],
            "NOTED": self.noted,
            "DLOCK_LIBRARY": library,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "XDG_STATE_HOME": os.path.join(folder, "state"),
        }
        self.redis_address = None
        self._prepare_redis()
        self._prepare_postgresql()
        self._prepare_mysql()

    def _program(self, path):
        with open(path, "w") as file:
            file.write('#!/bin/sh\necho "${0##*/}" >>"$NOTED"\n')
        os.chmod(path, 0o755)

    def new_folder(self, name):
        """An empty working folder with the scripts."""
        path = os.path.join(self.folder, name)
        os.makedirs(path)
        for script in SCRIPTS:
            self._program(os.path.join(path, script))
        ours = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(os.path.join(blocks.TREE, "bindings"), os.path.join(path, "bindings"), ignore=ours)
        if os.path.exists(self.noted):
            os.remove(self.noted)
        return path

    def programs_run(self):
        """Names of the reader's programs that have run since new_folder()."""
        if not os.path.exists(self.noted):
            return set()
        with open(self.noted) as file:
            return set(file.read().split())

    def programs_named(self, text):
        """Those of them that a block names."""
        words = re.findall(r"[\w./-]+", re.sub(r"#.*", "", text))
        scripts = {f"./{script}": script for script in SCRIPTS}
        return {scripts.get(word, word) for word in words if word in PROGRAMS or word in scripts} - {"migrate"}

    # ---- servers

    def _prepare_redis(self):
        """A separate Redis whose record says that it was started in 1970: so its quarantine is over, however long that
        is, and blocks run with the default one, which refuses longer leases."""
        if "DLOCK_TEST_REDIS" not in os.environ:
            return
        said = subprocess.run([REDIS, "start", self.folder], check=True, capture_output=True, text=True).stdout
        self.redis_address = re.search(r"^DLOCK_TEST_REDIS=(.*)", said, re.M)[1]
        self._redis_cli("ACL", "SETUSER", "documents", "reset", "on", ">" + PASSWORD, "~*", "&*", "+@all")
        run_id = re.search(r"run_id:(\w+)", self._redis_cli("INFO", "server"))[1]
        replication = re.search(r"master_replid:(\w+)", self._redis_cli("INFO", "replication"))[1]
        self._redis_cli("SET", "{}:dlock:incarnation", f"{run_id} {replication} 1 0 -")  # backends/redis/incarnation.lua
        self.environment["DLOCK_URI"] = self.uri("redis://locks.example")

    def _redis_cli(self, *words):
        port = self.redis_address.rpartition(":")[2]
        return subprocess.run(["redis-cli", "-p", port, *words], check=True, capture_output=True, text=True).stdout

    def _prepare_postgresql(self):
        setting = os.environ.get("DLOCK_TEST_POSTGRESQL")
        if setting is None:
            return
        host, port, _, programs = setting.split(":")
        self.environment.update(PGHOST=host, PGPORT=port, PGUSER="dlock", PATH=programs + ":" + self.environment["PATH"])
        self.environment["PATH"] = self.bin + ":" + self.environment["PATH"]
        for name in DATABASES:
            subprocess.run(["createdb", name], env=self.environment, check=True)

    def _prepare_mysql(self):
        """The command `mysql` finds the suite's server in the file of its settings."""
        if "DLOCK_TEST_MYSQL" not in os.environ:
            return
        host, port = os.environ["DLOCK_TEST_MYSQL"].split(":")
        with open(os.path.join(self.folder, "my.cnf"), "w") as file:
            file.write(f"[client]\nhost={host}\nport={port}\nuser=admin\npassword=secret\n")
        self.environment["MYSQL_HOME"] = self.folder
        self._mysql("CREATE DATABASE app")

    def _mysql(self, statement):
        subprocess.run(["mysql", "-e", statement], env=self.environment, check=True)

    def end(self):
        """Leaves the suite's servers as they were."""
        if "DLOCK_TEST_MYSQL" in os.environ:
            self._mysql("DROP DATABASE app")
        if "DLOCK_TEST_POSTGRESQL" in os.environ:
            for name in DATABASES:
                subprocess.run(["dropdb", "--force", name], env=self.environment, check=True)
        if self.redis_address:
            subprocess.run([REDIS, "stop", self.folder], check=True)
        shutil.rmtree(self.folder)

    def uri(self, text):
        """The URI of the suite's server in the place of one in a document, whose own keys go first."""
        scheme, host, path, query = re.fullmatch(r"(\w+)://(?:[^@/?]*@)?([^/?]*)(/[^?]*)?(?:\?(.*))?", text).groups()
        backend = HOSTS.get((scheme, host))
        if backend is None:
            raise NoServer(f"{scheme}://{host} is none of the names in tests/programs/docs/scratch.py")
        if backend == "redis":
            suite = self.redis_address and "redis://" + self.redis_address
        else:
            suite = os.environ.get("DLOCK_TEST_URI_" + backend)
        if not suite:
            raise NoServer(f"no server for {backend}: run the tests with tests/run.sh")
        address, _, usual = suite.partition("?")
        keys = dict(pair.split("=", 1) for pair in (usual + "&" + (query or "")).split("&") if pair)
        if backend == "postgresql" and path:
            address = address.rpartition("/")[0] + path
        if "password_file" in keys:
            address = address.replace("://", "://documents@")
        return address + "?" + "&".join("=".join(pair) for pair in keys.items()) if keys else address

    def fit(self, text, quoted=False):
        """A block as it runs here; in the shell a URI that is not inside of quotes has to be quoted."""

        def replaced(found):
            uri = self.uri(found[2])
            return found[1] + (shlex.quote(uri) if quoted and found[1] in ("", " ") else uri)

        text = re.sub(r"(^|.)((?:redis|postgresql)://[^\s'\"`]*)", replaced, text, flags=re.M)
        for theirs, ours in self.texts.items():
            text = text.replace(theirs, ours)
        return text
