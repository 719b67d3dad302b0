#!/usr/bin/env python3
"""circles_test.py BUILD TARGET…: fails when files of a target call each other in a circle, and names them; and when one calls
upwards in the drawing that the target has of its files: the layers in docs/internals.md, or the list in a backend's header.

A file calls another when its object file needs a function or a datum that the other's defines. Each target is checked
separately: between targets there are only the headers of include/."""
import collections, pathlib, re, subprocess, sys

tree = pathlib.Path(__file__).resolve().parents[2]


def objects(build, target):
    """Those of files that are there: an older build may have left others."""
    for folder in build.glob(f"**/CMakeFiles/{target}.dir"):
        own = folder.parent.parent
        found = []
        for file in sorted(folder.rglob("*.o")):
            source = str(file.relative_to(folder).with_suffix("")).replace("__", "..")
            if (tree / own.relative_to(build) / source).exists() or (own / source).exists(): found.append(file)
        if found: return found  # else it is another build inside of this one
    sys.exit(f"{target} has no object files in {build}")


def calls(files):
    defined, needed = {}, collections.defaultdict(set)
    for line in subprocess.run(["nm", "-AP", *files], check=True, capture_output=True, text=True).stdout.splitlines():
        file, symbol, kind = line.split()[:3]
        file = file.rstrip(":")
        if kind in "TDBRC": defined[symbol] = file
        elif kind == "U": needed[file].add(symbol)
    return {str(file): {defined[s] for s in needed[str(file)] if s in defined} - {str(file)} for file in files}


def circles(graph):
    """Tarjan's strongly connected components of more than one file."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for next in graph[node]:
            if next not in index: visit(next)
            if next in stack: low[node] = min(low[node], low[next])
        if low[node] == index[node]:
            component = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(component) > 1: found.append(component)

    for node in graph:
        if node not in index: visit(node)
    return found


def stem(file):
    return file.split(".dir/")[-1].removesuffix(".c.o")


def drawing(target):
    """Where it is, and the row of each file, or folder, in it; None: there is none."""
    name = target.removeprefix("dlock-")
    header = tree / "backends" / name / f"{name}.h"
    if name == "core":
        header = tree / "docs/internals.md"
        rows = re.findall(r"^(\w+/) ", header.read_text(), re.M)
    elif header.exists():
        rows = re.search(r"each calls those below it only:\n((?: \*   .*\n)+)", header.read_text())
        if not rows: sys.exit(f"{header} does not draw which files call which")
        rows = [line.replace("*/", "") for line in rows[1].splitlines()]
    else:
        return None
    found = {}
    for i, row in enumerate(rows):
        for word in re.findall(r"(?:(?<=  )|^)(\w+/?)(?=  | ?$)", row): found.setdefault(word, i)
    return header, found


def upward(target, graph):
    """Calls against the drawing. A folder's files may call each other; files without a layer are left out."""
    if not drawing(target): return
    header, rows = drawing(target)
    layered = target == "dlock-core"
    key = (lambda file: stem(file).split("/")[0] + "/") if layered else stem
    for caller in graph:
        if not layered and key(caller) not in rows: yield f"{target}: {key(caller)} is not in the drawing in {header.relative_to(tree)}"
        for callee in graph[caller]:
            one, other = rows.get(key(caller)), rows.get(key(callee))
            if one is None or other is None or one < other or (layered and one == other): continue
            yield f"{target}: {stem(caller)} calls {stem(callee)}, which is not below it in {header.relative_to(tree)}"


def main():
    build, bad = pathlib.Path(sys.argv[1]), False
    for target in sys.argv[2:]:
        graph = calls(objects(build, target))
        for circle in circles(graph):
            bad = True
            print(f"{target}: these files call each other in a circle:")
            for file in sorted(circle):
                print(f"    {stem(file)} -> {', '.join(sorted(stem(f) for f in graph[file] & set(circle)))}")
        for line in upward(target, graph):
            bad = True
            print(line)
    sys.exit(bad)


main()
