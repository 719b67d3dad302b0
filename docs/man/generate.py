#!/usr/bin/env python3
"""Writes the man pages of the library, of URIs and of backends: generate.py FOLDER [HOMEPAGE]

Their text comes from the headers' comments and from docs/; this file says on which page it goes. A function of dlock.h that is on
no page is an error. Each function and each struct has a link to its page, so that `man dlock_acquire` finds it."""
import os
import re
import sys

import header
import roff

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DATE = "November 25, 2026"

# Page: what it is about, its functions, its types, and where to read on.
PAGES = {
    "dlock_client": (
        "open and close a client of a lock server",
        ["dlock_open", "dlock_client_stop", "dlock_close", "dlock_close_within", "dlock_client_backend", "dlock_client_quarantine_ms", "dlock_client_guard", "dlock_guard"],
        ["struct dlock_client_options", "enum dlock_client_flag"],
        ["dlock_new 3", "dlock_stats 3", "dlock\\-uri 7"],
    ),
    "dlock_new": (
        "handles for locks, and what is asked of them",
        ["dlock_new", "dlock_free", "dlock_name"],
        ["struct dlock_options", "enum dlock_mode", "enum dlock_owner", "enum dlock_flag", "dlock_callback"],
        ["dlock_acquire 3", "dlock_client 3"],
    ),
    "dlock_acquire": (
        "acquire and release locks",
        ["dlock_acquire", "dlock_release", "dlock_cancel", "dlock_ready", "dlock_acquire_all", "dlock_release_all", "dlock_acquire_any"],
        [],
        ["dlock_async 3", "dlock_held 3", "dlock_new 3"],
    ),
    "dlock_held": (
        "what the caller holds, its fence, and changes of its lease and mode",
        ["dlock_held", "dlock_remaining_ms", "dlock_fence", "dlock_token", "dlock_lost", "dlock_extend", "dlock_downgrade"],
        ["enum dlock_loss"],
        ["dlock_acquire 3"],
    ),
    "dlock_async": (
        "locks in event loops",
        ["dlock_acquire_async", "dlock_release_async", "dlock_client_fd", "dlock_client_dispatch"],
        ["dlock_callback"],
        ["dlock_acquire 3", "dlock_client 3"],
    ),
    "dlock_export": (
        "hand a grant to another process",
        ["dlock_export", "dlock_import"],
        [],
        ["dlock\\-acquire 1", "dlock_acquire 3"],
    ),
    "dlock_inspect": (
        "look at locks and servers, and break locks",
        ["dlock_inspect", "dlock_waiters", "dlock_list", "dlock_break", "dlock_check"],
        ["struct dlock_info", "dlock_each", "struct dlock_finding", "enum dlock_health", "dlock_each_finding"],
        ["dlock\\-doctor 1", "dlock\\-inspect 1"],
    ),
    "dlock_stats": (
        "what a client has counted",
        ["dlock_client_stats"],
        ["struct dlock_stats"],
        ["dlock_client 3"],
    ),
    "dlock_backends": (
        "which servers there are backends for",
        ["dlock_backends", "dlock_register"],
        ["struct dlock_backend_info", "dlock_each_backend"],
        ["dlock\\-backends 1", "dlock\\-backend 7"],
    ),
    "dlock_error": (
        "what went wrong",
        ["dlock_strerror"],
        ["struct dlock_error"],
        ["libdlock 3"],
    ),
    "dlock_parse_duration": (
        "read durations, hide passwords, and which version this is",
        ["dlock_parse_duration", "dlock_uri_without_secrets", "dlock_version"],
        [],
        ["libdlock 3", "dlock\\-uri 7"],
    ),
}


def read(*path):
    with open(os.path.join(TREE, *path)) as file:
        return file.read()


def head(title, section, names, about):
    return [
        '.\\" SPDX-License-Identifier: MIT',
        f".Dd {DATE}",
        f".Dt {title.upper()} {section}",
        ".Os",
        ".Sh NAME",
        *[f".Nm {name} ," for name in names[:-1]],
        f".Nm {names[-1]}",
        f".Nd {about}",
    ]


def see(others):
    """A cross-reference for each, by section and name."""
    ordered = sorted(set(others), key=lambda other: (other.split()[1], other))
    return [".Sh SEE ALSO", *[f".Xr {other} ," for other in ordered[:-1]], f".Xr {ordered[-1]}"]


def prototype(name, kind, arguments):
    return [f".Ft {roff.argument(kind)}", f".Fo {name}", *[f".Fa {roff.argument(one)}" for one in arguments or ["void"]], ".Fc"]


class Library:
    """The pages of section 3."""

    def __init__(self):
        self.text = read("include", "dlock", "dlock.h")
        self.functions = header.functions(self.text)
        self.types = header.types(self.text)
        self.errors = header.rows(self.text, "DLOCK_ERRORS")

    def page(self, name):
        about, functions, types, others = PAGES[name]
        out = head(name, 3, functions, about)
        out += [".Sh LIBRARY", "libdlock (\\-ldlock)", ".Sh SYNOPSIS", ".In dlock/dlock.h"]
        for function in functions:
            out += prototype(function, *self.functions[function][:2])
        out.append(".Sh DESCRIPTION")
        for function in functions:
            out += [f".Ss {function}", *roff.blocks(self.functions[function][2])]
        if types:
            out.append(".Sh TYPES")
        for kind in types:
            out += [f".Ss {kind}", *self.type(kind)]
        if name != "dlock_error":
            out += self.errors_of(functions)
        else:
            out += [".Sh ERRORS", *self.error_list([row[0] for row in self.errors])]
        return out + see([*others, "libdlock 3", "dlock_error 3"] if name != "dlock_error" else others)

    def type(self, kind):
        text, members = self.types[kind]
        out = []
        if text.startswith("typedef"):
            declaration, _, text = text.partition("\n\n")
            out = [*roff.literal(re.sub(r"\)\(", ")(\n    ", declaration).split("\n")), ".Pp"]
        out += roff.blocks(text) if text else []
        items = [(f"`{declaration}`", roff.sentences(about)) for declaration, about in members]
        return out + (roff.listed(items, "-tag") if items else [])

    def errors_of(self, functions):
        """The codes that the comments of these functions name."""
        named = "\n".join(self.functions[function][2] for function in functions)
        if "Errors:" not in named:
            return []
        codes = [row[0] for row in self.errors if re.search(rf"\b(?:DLOCK_)?{row[0]}\b", named) and row[0] != "OK"]
        return [".Sh ERRORS", *self.error_list(codes), *roff.sentences("libdlock(3) lists the common errors.")]

    def error_list(self, codes):
        items = []
        for code, number, text, action in self.errors:
            if code in codes:
                about = f"{number}: {text}" if code == "OK" else f"{number}: {text}. What to do: {action}."
                items.append((f"DLOCK_{code}", roff.sentences(about)))
        return roff.listed(items, "-tag")

    def overview(self):
        intro, code, conventions = re.match(r"(.*?)\n\n(    .*?)\n\n(.*)", header.top(self.text), re.S).groups()
        out = head("libdlock", 3, ["libdlock"], "one lock API for any coordination server")
        out += [".Sh LIBRARY", "libdlock (\\-ldlock)", ".Sh SYNOPSIS", ".In dlock/dlock.h", ".Sh DESCRIPTION"]
        out += [*roff.blocks(intro), *roff.blocks(code), ".Pp", *roff.blocks(conventions), ".Pp", "The functions are"]
        items = []
        for page, (about, functions, _, _) in PAGES.items():
            items.append((f"{page}(3)", [roff.inline(f"{about}: {', '.join(functions)}")]))
        out += roff.listed(items, "-tag")
        examples = read("examples", "first.c").split("\n", 1)[1].rstrip()
        out += [".Sh EXAMPLES", *roff.literal(examples.split("\n"))]
        out += see([f"{page} 3" for page in PAGES] + ["dlock 1", "dlock\\-backend 7", "dlock\\-uri 7"])
        return out + [line for address in sys.argv[2:] for line in (".Pp", f".Lk {address}")]


def section(text, title):
    """What stands below a heading of a Markdown page."""
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.M | re.S)[1].strip()


def uri_page():
    guide, servers = read("docs", "guide.md"), os.path.join(TREE, "docs", "servers")
    out = head("dlock-uri", 7, ["dlock\\-uri"], "connection strings of lock servers")
    # The page has these keys itself, below SERVERS. That the guide has this sentence is checked by unpacking.
    before, after = re.split(r"\[[^]]*\]\(servers/README\.md\) describes? each backend's own keys\.", section(guide, "Connection strings"))
    out += [".Sh DESCRIPTION", *roff.blocks(before + after)]
    out += [".Sh PASSWORDS", *roff.blocks(section(guide, "Passwords"))]
    out += [".Sh LINGERING", *roff.blocks(section(guide, "Lingering"))]
    out += [".Sh GUARDIAN", *roff.blocks(section(guide, "Guardian"))]
    out.append(".Sh SERVERS")
    for page in sorted(os.listdir(servers), key=lambda page: (page == "README.md", page)):
        if not page.endswith(".md"):
            continue
        text = read("docs", "servers", page)
        out.append(f".Ss {page[:-3] if page != 'README.md' else 'TLS'}")
        forms = re.search(r"<!-- URIs -->\n```text\n(.*?)\n```", text, re.S)
        if forms:
            lines = [part for line in forms[1].split("\n") for part in re.sub(r" {2,}", "\n    ", line).split("\n")]
            out += roff.literal(lines)
        keys = re.search(r"^\| key \|.*\n(?:\|.*\n)+", text, re.M)
        if keys:
            out += roff.table(keys[0].strip().split("\n"))
    return out + see(["dlock 1", "dlock\\-backends 1", "dlock\\-doctor 1", "dlock_client 3", "dlock\\-backend 7"])


def backend_page():
    text = read("include", "dlock", "backend.h")
    out = head("dlock-backend", 7, ["dlock\\-backend"], "what a backend for dlock is")
    out += [".Sh SYNOPSIS", ".In dlock/backend.h", ".Sh DESCRIPTION", *roff.blocks(header.top(text))]
    out += [".Pp", "docs/writing\\-a\\-backend.md of dlock's source makes one, step by step."]
    out.append(".Sh STRUCT DLOCK_BACKEND")
    items = []
    for declaration, about in header.types(text)["struct dlock_backend"][1]:
        items.append((f"`{declaration}`", roff.blocks(about)))
    out += roff.listed(items, "-tag")
    out.append(".Sh CAPABILITIES")
    caps = header.rows(read("include", "dlock", "dlock.h"), "DLOCK_CAPS")
    out += roff.listed([(f"DLOCK_CAP_{name}", [roff.inline(meaning)]) for name, _, _, meaning in caps], "-tag")
    return out + see(["dlock\\-backends 1", "dlock_backends 3", "dlock\\-uri 7"])


def write(folder, name, lines):
    path = os.path.join(folder, f"man{name[-1]}", name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


def main():
    folder = sys.argv[1]
    library = Library()
    shown = [function for page in PAGES.values() for function in page[1]]
    if sorted(shown) != sorted(library.functions):
        sys.exit(f"generate.py: not on exactly one page: {', '.join(sorted(set(shown) ^ set(library.functions)))}")
    write(folder, "libdlock.3", library.overview())
    for page, (_, functions, types, _) in PAGES.items():
        write(folder, page + ".3", library.page(page))
        for name in functions + [kind.split()[-1] for kind in types]:
            if name not in PAGES:
                write(folder, name + ".3", [f".so man3/{page}.3"])
    write(folder, "dlock-uri.7", uri_page())
    write(folder, "dlock-backend.7", backend_page())


if __name__ == "__main__":
    main()
