#!/usr/bin/python3
"""wear.py DATA_FOLDER PATH CVERSION: sets how many children a node has ever had, in the latest snapshot of a ZooKeeper
that is stopped.

A snapshot is sealed, once or several times, by the Adler-32 of everything before it: eight bytes, then the string "/".
"""
import glob
import struct
import sys
import zlib

folder, path, cversion = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
name = max(glob.glob(f"{folder}/version-2/snapshot.*"), key=lambda file: int(file.rsplit(".", 1)[1], 16))
with open(name, "rb") as file:
    data = bytearray(file.read())

SEAL = struct.pack(">i", 1) + b"/"
seals, sum_so_far, done = [], 1, 0
at = data.find(SEAL)
while at >= 0:
    if at >= 8:
        sum_so_far, done = zlib.adler32(data[done : at - 8], sum_so_far), at - 8
        if data[at - 8 : at] == struct.pack(">q", sum_so_far):
            seals.append(at - 8)
    at = data.find(SEAL, at + 1)
if not seals:
    sys.exit(f"{name} is not sealed")

# A node: its path, its data, the number of its ACL, czxid, mzxid, ctime, mtime, version, cversion, …
label = struct.pack(">i", len(path)) + path
if data.count(label) != 1:
    sys.exit(f"{name} has {data.count(label)} nodes {path.decode()}")
at = data.find(label) + len(label)
at += 4 + max(struct.unpack_from(">i", data, at)[0], 0) + 8 + 4 * 8 + 4
struct.pack_into(">i", data, at, cversion)

for seal in seals:
    struct.pack_into(">q", data, seal, zlib.adler32(data[:seal]))
with open(name, "wb") as file:
    file.write(data)
