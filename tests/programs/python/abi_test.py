"""abi_test.py HEADER LAYOUT COMPILER: ctypes' declarations, compared with the C compiler's view of dlock.h."""
import ctypes
import re
import subprocess
import sys
import unittest

import dlock
from dlock import _abi, errors

compiler = sys.argv.pop(3)
layout = sys.argv.pop(2)
header = sys.argv.pop(1)

STRUCTS = {
    "dlock_error": _abi.ErrorStruct,
    "dlock_info": _abi.Info,
    "dlock_backend_info": _abi.BackendInfo,
    "dlock_finding": _abi.FindingStruct,
    "dlock_stats": _abi.StatsStruct,
    "dlock_client_options": _abi.ClientOptions,
    "dlock_options": _abi.Options,
}

# Functions that the package does without: a backend in Python, why a wait lasts, a close with a time of its own, and why a
# grant was lost, which the text of Lost says.
UNBOUND = {"dlock_register", "dlock_ready", "dlock_close_within", "dlock_lost"}

# ctypes' types as C spells them.
SPELLING = {
    None: "void",
    ctypes.c_bool: "bool",
    ctypes.c_int: "int",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_size_t: "size_t",
    ctypes.c_char_p: "const char *",
    ctypes.c_void_p: "void *",
    ctypes.POINTER(ctypes.c_char): "char *",
    _abi.ClientPointer: "dlock_client *",
    _abi.LockPointer: "dlock_lock *",
    ctypes.POINTER(_abi.ErrorStruct): "struct dlock_error *",
    ctypes.POINTER(_abi.Options): "const struct dlock_options *",
    ctypes.POINTER(_abi.ClientOptions): "const struct dlock_client_options *",
    ctypes.POINTER(_abi.BackendInfo): "const struct dlock_backend_info *",
    ctypes.POINTER(_abi.StatsStruct): "struct dlock_stats *",
    ctypes.POINTER(_abi.ClientPointer): "dlock_client **",
    ctypes.POINTER(ctypes.c_int64): "int64_t *",
    ctypes.POINTER(ctypes.c_size_t): "size_t *",
    _abi.Callback: "dlock_callback",
    _abi.Each: "dlock_each",
    _abi.EachFinding: "dlock_each_finding",
    _abi.EachBackend: "dlock_each_backend",
}

# The arguments of callbacks.
POINTED = {
    ctypes.c_void_p: "void *",
    ctypes.POINTER(_abi.ErrorStruct): "const struct dlock_error *",
    ctypes.POINTER(_abi.Info): "const struct dlock_info *",
    ctypes.POINTER(_abi.FindingStruct): "const struct dlock_finding *",
    ctypes.POINTER(_abi.BackendInfo): "const struct dlock_backend_info *",
}


def rows(kind):
    """The C program's output of one kind."""
    lines = [line.split(" ", 1) for line in printed]
    return [rest for word, rest in lines if word == kind]


class Layout(unittest.TestCase):
    def test_structs(self):
        seen = dict(row.split() for row in rows("struct"))
        self.assertEqual(seen, {name: str(ctypes.sizeof(kind)) for name, kind in STRUCTS.items()})

    def test_fields(self):
        told = [
            f"{name}.{field} {getattr(kind, field).offset} {getattr(kind, field).size}"
            for name, kind in STRUCTS.items()
            for field, _ in kind._fields_
        ]
        self.assertEqual(rows("field"), told)

    def test_no_field_of_the_header_is_left_out(self):
        """One that fills a hole would change neither size nor offsets."""
        for name, kind in STRUCTS.items():
            body = re.search(rf"^struct {name} {{\n(.*?)^}};", text, re.M | re.S).group(1)
            self.assertEqual(re.sub(r"/\*.*?\*/", "", body, flags=re.S).count(";"), len(kind._fields_), name)

    def test_numbers(self):
        numbers = dict(row.split() for row in rows("number"))
        self.assertGreater(len(numbers), 10)
        for name, value in numbers.items():
            self.assertEqual(int(value), getattr(_abi, name), name)

    def test_capabilities(self):
        self.assertEqual(rows("capability"), [f"{bit} {word}" for bit, word in enumerate(_abi.CAPABILITIES)])

    def test_every_code_has_its_exception(self):
        seen = {}
        for row in rows("error"):
            name, code, words = row.split(" ", 2)
            seen[int(code)] = name
            if name == "OK":
                continue
            error = errors.make(int(code))
            self.assertIsInstance(error, dlock.Error, name)
            self.assertEqual((error.code, str(error)), (int(code), words))
            self.assertIs(getattr(dlock, type(error).__name__), type(error))
            self.assertIn(f"DLOCK_{name}", type(error).__doc__)
        self.assertEqual(set(seen) - {0}, set(errors.BY_CODE))

    def test_version(self):
        self.assertEqual(rows("version"), [dlock.__version__])
        self.assertEqual(dlock.library_version(), dlock.__version__)


class Functions(unittest.TestCase):
    def test_none_is_left_out(self):
        exported = set(re.findall(r"^DLOCK_EXPORT [^;(]*?\b(dlock_[a-z_]+)\(", text, re.M))
        self.assertGreater(len(exported), 30)
        self.assertEqual(exported, set(_abi.FUNCTIONS) | UNBOUND)

    def test_types(self):
        """A C compiler takes each function for what ctypes takes it for."""
        lines = ["#include <dlock/dlock.h>"]
        for name, (result, *arguments) in _abi.FUNCTIONS.items():
            told = ", ".join(self.spell(name, kind) for kind in arguments) or "void"
            pointer = f"{self.spell(name, result)} (*)({told})"
            lines.append(f'_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), {pointer}), "{name}");')
        for kind in (_abi.Callback, _abi.Each, _abi.EachFinding, _abi.EachBackend):
            first = ["dlock_lock *"] if kind is _abi.Callback else []
            told = ", ".join(first + [POINTED[argument] for argument in kind._argtypes_[len(first) :]])
            pointer = f"{SPELLING[kind._restype_]} (*)({told})"
            name = SPELLING[kind]
            lines.append(f'_Static_assert(__builtin_types_compatible_p({name}, {pointer}), "{name}");')
        done = subprocess.run(
            [compiler, "-std=gnu11", "-fsyntax-only", "-I", header[: header.rindex("/dlock/")], "-x", "c", "-"],
            input="\n".join(lines), capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)

    def spell(self, name, kind):
        if kind is ctypes.POINTER(_abi.LockPointer):
            return "dlock_lock *const *" if name.endswith(("_all", "_any")) else "dlock_lock **"
        return SPELLING[kind]


printed = subprocess.run([layout], check=True, capture_output=True, text=True).stdout.splitlines()
with open(header) as file:
    text = file.read()
unittest.main(verbosity=2)
