"""docs/servers/, compared with the command and the sources: servers_test.py DLOCK

Each backend is on one page, with all its schemes and exactly its keys; the pages have one form; the tables of README.md
agree with the pages' tables and with `dlock backends`. Where they do not, the text that README.md should have is
printed."""
import glob
import json
import os
import re
import subprocess
import sys

TREE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
FOLDER = os.path.join(TREE, "docs", "servers")
PAGE_OF = {"rediss": "redis", "memcached_tls": "memcached", "memcached_sasl": "memcached"}  # others have their own
LACKS = {"memcached_sasl": ["list"]}  # less than the others of their page; README.md says so below the table
SECTIONS = ["What it promises", "What breaks it", "Set-up", "Rights"]
ROWS = [
    "excludes", "order of waiters", "a waiter learns of its turn", "holder dies", "holder stops (SIGSTOP, suspend)", "server restarts",
    "failover", "cut-off holder", "memory or disk is full", "clock steps", "fences grow, unless",
]  # fmt: skip
SHORT = {"README.md": 120}  # lines; 90 for a server
WORDS_OF_PARAGRAPH, WORDS_OF_CELL, BULLETS = 120, 15, 6

failed = False


def complain(*words):
    global failed
    failed = True
    print("docs/servers:", *words, file=sys.stderr)


def read(path):
    with open(os.path.join(TREE, path)) as file:
        return file.read()


def table(text, head):
    """The rows below a table's head, as lists of cells."""
    found = re.search(rf"^\|{head}.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.M)
    return [cells(line) for line in found[1].splitlines()] if found else []


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split(" |")]


def section(text, title):
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1] if found else ""


def check_form(name, text):
    """Length, paragraphs and cells; of a server's page also its sections, in order."""
    if text.count("\n") > SHORT.get(name, 90):
        complain(f"{name} has {text.count(chr(10))} lines, more than {SHORT.get(name, 90)}")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-#|])", prose):
        if not paragraph.strip().startswith("|"):
            if len(paragraph.split()) > WORDS_OF_PARAGRAPH:
                complain(f"{name}: a paragraph has more than {WORDS_OF_PARAGRAPH} words: {paragraph[:60]}…")
            continue
        for cell in cells(paragraph.strip()):
            if len(cell.split()) > WORDS_OF_CELL:
                complain(f"{name}: a cell has more than {WORDS_OF_CELL} words: {cell}")
    if name == "README.md":
        return
    if [title for title in re.findall(r"^## (.*)", text, re.M) if title in SECTIONS] != SECTIONS:
        complain(f"{name} does not have the sections {', '.join(SECTIONS)}")
    if [row[0] for row in table(text, r" \|")] != ROWS:
        complain(f"{name}: the rows of its promises are not {', '.join(ROWS)}")
    if len(re.findall(r"^- ", section(text, "What breaks it"), re.M)) not in range(1, BULLETS + 1):
        complain(f"{name} has more than {BULLETS} points that break it, or none")


def keys_of(dlock, backend):
    """As the command says when it meets a key that it does not know. One that takes what its client library takes has its
    own keys in its source."""
    said = subprocess.run([dlock, "list", "-b", f"{backend['schemes'][0]}:?no-such-key=1"], capture_output=True, text=True).stderr
    found = re.search(r"it takes (.*?),? and as every backend", said)
    if found:
        return set(re.sub(r"[,*]", "", found[1]).split()) - {"nothing"}
    if "no-such-key" not in said:
        complain(f"{backend['name']} does not refuse an unknown key: {said}")
    return set(re.findall(r'strcmp\(key, "([a-z]+)"\)', read(f"backends/{backend['name']}/address.c")))


def check_backends(dlock, backends, pages):
    """Schemes and keys, of all backends of a page together."""
    for name in sorted({page_of(backend) for backend in backends}):
        if name not in pages:
            complain(f"there is no page {name}.md")
            continue
        text, mine = pages[name], [backend for backend in backends if page_of(backend) == name]
        for scheme in [scheme for backend in mine for scheme in backend["schemes"]]:
            if not re.search(rf"(?<![a-z+]){re.escape(scheme)}:", text):
                complain(f"{name}.md does not say what {scheme}: is")
        known = set().union(*[keys_of(dlock, backend) for backend in mine])
        said = {key for row in table(text, " key ") for key in re.findall(r"`([a-z_]+)`", row[0])}
        if known != said:
            complain(f"{name}.md: keys that are missing, or that do not exist: {' '.join(sorted(known ^ said))}")


def page_of(backend):
    return PAGE_OF.get(backend["name"], backend["name"])


def variants(pages):
    """The rows of README.md's tables: each page, and each mode=session that a page has."""
    order = ["file", "redis", "quorum", "memcached", "zookeeper", "etcd", "postgresql", "mysql", "mem"]
    for name in order + sorted(set(pages) - set(order)):
        yield name, None
        if "`mode=session` |" in pages.get(name, ""):
            yield name, "session"


def check_table(title, text, head, rows):
    """What a table of README.md has to be."""
    wanted = ["| | " + " | ".join(head) + " |", "|" + "---|" * (len(head) + 1)]
    for (name, mode), values in rows:
        label = f"[{name}]({name}.md)" + (f", `mode={mode}`" if mode else "")
        wanted.append("| " + " | ".join([label, *values]) + " |")
    said = "\n".join(line for line in section(text, title).splitlines() if line.startswith("|"))
    if said != "\n".join(wanted):
        complain(f"README.md, {title}: the table has to be\n" + "\n".join(wanted))


def check_readme(text, backends, pages):
    head = ["excludes", "order of waiters", "holder dies", "server restarts", "failover"]
    rows = []
    for name, mode in variants(pages):
        promises = {row[0]: row[2 if mode else 1] for row in table(pages[name], r" \|")}
        rows.append(((name, mode), [promises.get(row, "") for row in head]))
    check_table("Promises", text, head, rows)

    capabilities = {}
    for backend in backends:
        lacks = LACKS.get(backend["name"], [])
        if not all(f"`{backend['schemes'][0]}` all of" in text and f"but `{word}`" in text for word in lacks):
            complain(f"README.md does not say that {backend['name']} lacks {' '.join(lacks)}")
        mine = sorted(backend["capabilities"] + lacks)
        if sorted(capabilities.setdefault((page_of(backend), None), mine)) != mine:
            complain(f"{backend['name']} has other capabilities than {page_of(backend)}")
    for name, mode in variants(pages):
        if mode:
            source = re.search(r"by_sessions = \{.*?\.caps =(.*?),\n", read(f"backends/{name}/{name}.c"), re.S)
            capabilities[name, mode] = [word.lower() for word in re.findall(r"DLOCK_CAP_([A-Z]+)", source[1])]
    words = re.findall(r'X\([A-Z]+, \d+, "([a-z]+)"', re.search(r"define DLOCK_CAPS.*?\n\n", read("include/dlock/dlock.h"), re.S)[0])
    head = [word for word in words if word not in ("threadsafe", "local", "private")]
    rows = [(variant, ["✓" if word in capabilities.get(variant, []) else "–" for word in head]) for variant in variants(pages)]
    check_table("Capabilities", text, head, rows)


def main():
    dlock = os.path.realpath(sys.argv[1])
    os.environ.pop("DLOCK_URI", None)
    os.environ.pop("DLOCK_PLUGIN_PATH", None)
    listed = subprocess.run([dlock, "backends", "--json"], check=True, capture_output=True, text=True).stdout
    backends = json.loads(listed)["backends"]
    for backend in backends:
        if backend["error"]:
            complain(f"{backend['name']} cannot be loaded: {backend['error']}")
    texts = {os.path.basename(path): read(path) for path in glob.glob(os.path.join(FOLDER, "*.md"))}
    for name, text in sorted(texts.items()):
        check_form(name, text)
    pages = {name[:-3]: text for name, text in texts.items() if name != "README.md"}
    check_backends(dlock, [backend for backend in backends if not backend["error"]], pages)
    check_readme(texts["README.md"], backends, pages)
    print("docs/servers: OK" if not failed else "docs/servers: failed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
