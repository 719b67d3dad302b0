"""abi_test.py ABI: ctypes' declarations, compared with the description of dlock.h that bindings/abi.py makes."""
import ctypes
import json
import sys
import unittest

import dlock
from dlock import _abi, errors

with open(sys.argv.pop(1)) as file:
    abi = json.load(file)

STRUCTS = {
    "dlock_error": _abi.ErrorStruct,
    "dlock_info": _abi.Info,
    "dlock_backend_info": _abi.BackendInfo,
    "dlock_finding": _abi.FindingStruct,
    "dlock_event": _abi.EventStruct,
    "dlock_stats": _abi.StatsStruct,
    "dlock_client_options": _abi.ClientOptions,
    "dlock_options": _abi.Options,
}

# Functions that the package does without: a backend in Python, why a wait lasts, and a close that another one can do.
UNBOUND = {"dlock_register", "dlock_ready", "dlock_close"}

# ctypes' types as C spells them; its size_t is this one's uint64_t.
SPELLING = {
    None: "void",
    ctypes.c_bool: "_Bool",
    ctypes.c_int: "int",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint64: "uint64_t",
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
    ctypes.POINTER(ctypes.c_size_t): "uint64_t *",
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


NUMBERS = {
    **abi["constants"],
    **{name: number for numbers in abi["enums"].values() for name, number in numbers.items()},
}


class Layout(unittest.TestCase):
    def test_structs(self):
        self.assertEqual(set(abi["structs"]), set(STRUCTS))
        for name, kind in STRUCTS.items():
            told = abi["structs"][name]
            self.assertEqual(told["size"], ctypes.sizeof(kind), name)
            for member, (field, _) in zip(told["members"], kind._fields_, strict=True):
                place = getattr(kind, field)
                self.assertEqual((member["name"], member["offset"], member["size"]), (field, place.offset, place.size))

    def test_numbers(self):
        named = {name: value for name, value in vars(_abi).items() if f"DLOCK_{name}" in NUMBERS}
        self.assertGreater(len(named), 10)
        for name, value in named.items():
            self.assertEqual(NUMBERS[f"DLOCK_{name}"], value, name)

    def test_losses(self):
        losses = {f"DLOCK_LOSS_{loss.name}": loss.value for loss in dlock.Loss}
        self.assertEqual(abi["enums"]["dlock_loss"], {"DLOCK_NOT_LOST": 0, **losses})

    def test_events(self):
        words = {f"DLOCK_EVENT_{word.upper().replace('-', '_')}": at for at, word in enumerate(_abi.EVENTS) if at}
        self.assertEqual(abi["enums"]["dlock_event_kind"], words)

    def test_capabilities(self):
        self.assertEqual([(cap["bit"], cap["word"]) for cap in abi["capabilities"]], list(enumerate(_abi.CAPABILITIES)))

    def test_every_code_has_its_exception(self):
        for row in abi["errors"][1:]:
            error = errors.make(row["number"])
            self.assertIsInstance(error, dlock.Error, row)
            self.assertEqual((error.code, str(error)), (row["number"], row["text"]))
            self.assertIs(getattr(dlock, type(error).__name__), type(error))
            self.assertIn(row["name"], type(error).__doc__)
        self.assertEqual({row["number"] for row in abi["errors"][1:]}, set(errors.BY_CODE))

    def test_version(self):
        self.assertEqual(abi["version"], dlock.__version__)
        self.assertEqual(dlock.library_version(), dlock.__version__)


class Functions(unittest.TestCase):
    def test_none_is_left_out(self):
        self.assertEqual(set(abi["functions"]), set(_abi.FUNCTIONS) | UNBOUND)

    def test_types(self):
        for name, (result, *arguments) in _abi.FUNCTIONS.items():
            self.compare(name, abi["functions"][name], self.spell(name, result), [self.spell(name, a) for a in arguments])
        for kind in (_abi.Callback, _abi.Each, _abi.EachFinding, _abi.EachBackend):
            first = ["dlock_lock *"] if kind is _abi.Callback else []
            pointed = first + [POINTED[argument] for argument in kind._argtypes_[len(first) :]]
            self.compare(SPELLING[kind], abi["callbacks"][SPELLING[kind]], SPELLING[kind._restype_], pointed)

    def compare(self, name, told, result, arguments):
        types = [told["result"], *(parameter["type"] for parameter in told["parameters"])]
        self.assertEqual([kind.replace("size_t", "uint64_t") for kind in types], [result, *arguments], name)

    def spell(self, name, kind):
        if kind is ctypes.POINTER(_abi.LockPointer):
            return "dlock_lock *const *" if name.endswith(("_all", "_any")) else "dlock_lock **"
        return SPELLING[kind]


unittest.main(verbosity=2)
