"""abi.py COMPILER INCLUDE_FOLDER: prints <dlock/dlock.h> as JSON, for bindings that cannot include it, and for their tests.

    constants     the numbers among the macros
    enums         of each enum its names and numbers
    errors        DLOCK_ERRORS: name, number, text, advice
    capabilities  DLOCK_CAPS: name, bit, word, meaning
    structs       of each struct its size, and its members with type, offset and size
    callbacks     of each function type its result and parameters
    functions     of each function its result and parameters

Types are spelled as in C. The compiler's preprocessor reads the header, and a program that it compiles prints the numbers.
"""

import json
import os
import re
import subprocess
import sys
import tempfile


def preprocess(compile_, *flags):
    done = subprocess.run([*compile_, *flags, "-x", "c", "-"], input="#include <dlock/dlock.h>\n", check=True,
                          capture_output=True, text=True)  # fmt: skip
    return done.stdout


def declarations(compile_):
    """The header's declarations without those of the headers that it includes, each in one line without its semicolon."""
    own, kept = False, []
    for line in preprocess(compile_, "-E").splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            own = marker.group(1).endswith("dlock/dlock.h")
        elif own:
            kept.append(line)
    text = re.sub(r"__attribute__ *\(\(visibility\(\"default\"\)\)\)", "", " ".join(kept))
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == ";" and depth == 0:
            found.append(" ".join(text[start:at].split()))
            start = at + 1
    return found


def variable(text):
    """The name and the type of a declared parameter or member."""
    pointer = re.fullmatch(r"(.*)\(\*(\w+)\)(\(.*\))", text)
    if pointer:
        return {"name": pointer.group(2), "type": f"{pointer.group(1)}(*){pointer.group(3)}"}
    kind, name, array = re.fullmatch(r"(.*?)(\w+)(\[.*\])?", text).groups()
    return {"name": name, "type": kind.strip() + (array or "")}


def signature(result, parameters):
    told = [] if parameters == "void" else [variable(text.strip()) for text in parameters.split(",")]
    return {"result": result.strip(), "parameters": told}


def parse(compile_):
    """The description without its numbers: these are the names whose values the compiler knows."""
    abi = {"version": None, "constants": {}, "enums": {}, "errors": [], "capabilities": [], "structs": {}, "callbacks": {},
           "functions": {}}  # fmt: skip
    for macro in sorted(preprocess(compile_, "-E", "-dM").splitlines()):
        name, value = re.fullmatch(r"#define (\S+) ?(.*)", macro).groups()
        if re.fullmatch(r"DLOCK_\w+", name) and re.match(r"[-(\w]", value) and not value.startswith("__attribute__"):
            abi["constants"][name] = None
    for text in declarations(compile_):
        enum = re.fullmatch(r"enum (\w+) { (.*?),? }", text)
        struct = re.fullmatch(r"struct (\w+) { (.*); }", text)
        callback = re.fullmatch(r"typedef (.*)\(\*(\w+)\)\((.*)\)", text)
        function = re.fullmatch(r"(.*?)\b(dlock_\w+)\((.*)\)", text)
        if enum:
            abi["enums"][enum.group(1)] = {item.split(" =")[0].strip(): None for item in enum.group(2).split(",")}
        elif struct:
            abi["structs"][struct.group(1)] = {"size": None, "members": [variable(m.strip()) for m in struct.group(2).split(";")]}
        elif callback:
            abi["callbacks"][callback.group(2)] = signature(callback.group(1), callback.group(3))
        elif function and not text.startswith("typedef"):
            abi["functions"][function.group(2)] = signature(function.group(1), function.group(3))
        elif not re.fullmatch(r"(typedef )?struct \w+( \w+)?", text):
            sys.exit(f"abi.py cannot read this declaration: {text}")
    return abi


def program(abi):
    """A C program that prints every missing number, in the order in which fill() takes them."""
    values = [*abi["constants"], *(name for names in abi["enums"].values() for name in names)]
    for struct, layout in abi["structs"].items():
        values.append(f"sizeof(struct {struct})")
        for member in layout["members"]:
            values.append(f"offsetof(struct {struct}, {member['name']})")
            values.append(f"sizeof(((struct {struct} *)0)->{member['name']})")
    lines = ["#include <dlock/dlock.h>", "#include <stdio.h>", "int main(void) {"]
    lines += [f'printf("%lld\\n", (long long)({value}));' for value in values]
    lines += ["#define X(name, number, text, advice) puts(#name), printf(\"%d\\n\", number), puts(text), puts(advice);"]
    lines += ["DLOCK_ERRORS(X)", "#undef X", 'puts("");']
    lines += ["#define X(name, bit, word, meaning) puts(#name), printf(\"%d\\n\", bit), puts(word), puts(meaning);"]
    lines += ["DLOCK_CAPS(X)", 'puts(""); puts(DLOCK_VERSION); return 0; }']
    return "\n".join(lines)


def fill(abi, output):
    line = iter(output.splitlines())
    for names in (abi["constants"], *abi["enums"].values()):
        names.update({name: int(next(line)) for name in names})
    for layout in abi["structs"].values():
        layout["size"] = int(next(line))
        for member in layout["members"]:
            member.update(offset=int(next(line)), size=int(next(line)))
    for name in iter(lambda: next(line), ""):
        abi["errors"].append({"name": f"DLOCK_{name}", "number": int(next(line)), "text": next(line), "advice": next(line)})
    for name in iter(lambda: next(line), ""):
        abi["capabilities"].append({"name": f"DLOCK_CAP_{name}", "bit": int(next(line)), "word": next(line), "meaning": next(line)})
    abi["version"] = next(line)


def main():
    compiler, include = sys.argv[1:]
    compile_ = [*compiler.split(), "-std=gnu11", "-I", include]
    abi = parse(compile_)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "values")
        subprocess.run([*compile_, "-o", path, "-x", "c", "-"], input=program(abi), check=True, text=True)
        fill(abi, subprocess.run([path], check=True, capture_output=True, text=True).stdout)
    json.dump(abi, sys.stdout, indent=1)
    print()


main()
