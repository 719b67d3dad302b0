"""abi.py ABI_JSON FFI_RS: prints Rust code that compares FFI_RS with <dlock/dlock.h>; what differs does not compile, or panics."""

import json
import re
import sys

SCALARS = {"int": "c_int", "bool": "bool", "void": "c_void", "char": "c_char", "size_t": "usize", "int64_t": "i64", "uint64_t": "u64",
           "uint32_t": "u32", "dlock_client": "ffi::dlock_client", "dlock_lock": "ffi::dlock_lock"}  # fmt: skip


def rust(c):
    """The spelling of a type of C."""
    c = " ".join(c.replace("*", " * ").split()).replace("_Bool", "bool")
    if c in ("dlock_callback", "dlock_each"):
        return f"ffi::{c}"
    *before, last = c.rsplit(" ", 1)
    if last == "*":
        return pointer(before[0].rstrip())
    if last == "const":  # a constant pointer, or `T const`
        return rust(before[0])
    return SCALARS.get(c) or f"ffi::{c.split()[-1]}"


def pointer(target):
    if target.endswith("*const") or target.endswith("* const"):
        return "*const " + rust(target[: target.rindex("const")])
    constant = target.startswith("const ")
    return ("*const " if constant else "*mut ") + rust(target[6:] if constant else target)


def main():
    with open(sys.argv[1]) as file:
        abi = json.load(file)
    with open(sys.argv[2]) as file:
        source = file.read()
    numbers = dict(abi["constants"])
    for names in abi["enums"].values():
        numbers.update(names)
    print("fn compare() {")
    for name in re.findall(r"pub const (\w+):", source):
        print(f"    assert_eq!(ffi::{name} as i64, {numbers[name]}, \"{name}\");")
    for name in re.findall(r"pub struct (\w+)", source):
        if name not in abi["structs"]:
            continue
        layout = abi["structs"][name]
        print(f"    assert_eq!(size_of::<ffi::{name}>(), {layout['size']}, \"{name}\");")
        print(f"    let value = MaybeUninit::<ffi::{name}>::uninit();")
        for member in layout["members"]:
            print(f"    let at = unsafe {{ addr_of!((*value.as_ptr()).{member['name']}) }};")
            print(f"    assert_eq!(at as usize - value.as_ptr() as usize, {member['offset']}, \"{name}.{member['name']}\");")
            print(f"    assert_eq!(size_of_pointed(at), {member['size']}, \"{name}.{member['name']}\");")
    for name in re.findall(r"pub fn (\w+)\(", source):
        function = abi["functions"][name]
        parameters = ", ".join(rust(parameter["type"]) for parameter in function["parameters"])
        result = "" if function["result"] == "void" else " -> " + rust(function["result"])
        print(f"    let _: unsafe extern \"C\" fn({parameters}){result} = ffi::{name};")
    print("}")
    print("const ERRORS: &[(i32, &str, &str)] = &[")
    for error in abi["errors"][1:]:
        print(f"    ({error['number']}, {json.dumps(error['text'])}, {json.dumps(error['advice'])}),")
    print("];")
    print("const CAPABILITIES: &[(u32, &str)] = &[")
    for capability in abi["capabilities"]:
        print(f"    ({capability['bit']}, \"{capability['word']}\"),")
    print("];")


main()
