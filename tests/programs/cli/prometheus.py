"""prometheus.py [SAMPLE]: reads Prometheus' text format from standard input, strictly, and prints its samples, one a
line, or the value of one. Fails when something is wrong with it. Where all are printed, promtool checks them as well,
if it is installed."""
import re, shutil, subprocess, sys

sys.stdout.reconfigure(encoding="utf-8")
text = sys.stdin.buffer.read().decode("utf-8")  # strictly
samples, kinds, family = {}, {}, None


def wrong(why):
    sys.exit(f"{why}: {line!r}")


def labels_of(text):
    found = {}
    while text:
        m = re.match(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\x00-\x1f\x7f]|\\["\\n])*)"(,(?=.)|$)', text)
        if not m or m[1] in found: wrong("labels")
        found[m[1]] = m[2]
        text = text[m.end():]
    return found


if text and not text.endswith("\n"): sys.exit("the last line has no end")
for line in text.split("\n")[:-1]:
    if m := re.fullmatch(r"# HELP ([a-z_]+) (\S.*\.)", line):
        family = m[1]
        if family in kinds: wrong("a second heading")
        kinds[family] = None
    elif m := re.fullmatch(r"# TYPE ([a-z_]+) (counter|gauge|histogram)", line):
        if m[1] != family or kinds[family]: wrong("a type at the wrong place")
        kinds[family] = m[2]
        if (m[2] == "counter") != family.endswith("_total"): wrong("a counter's name ends with _total, and no other")
    elif m := re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\+Inf|-?[0-9]+(?:\.[0-9]+)?)", line):
        own = [family] if kinds.get(family) != "histogram" else [family + s for s in ("_bucket", "_sum", "_count")]
        if m[1] not in own or not kinds[family]: wrong("a sample outside of its family")
        key = m[1] + str(sorted(labels_of(m[2] or "").items()))
        if key in samples: wrong("a second time")
        samples[key] = (m[1], labels_of(m[2] or ""), m[3], f"{m[1]}{{{m[2]}}}")
    else:
        wrong("no line of this format")

# Buckets grow, and the last one is the count.
for name in [n for n, kind in kinds.items() if kind == "histogram"]:
    rows = [(float(l["le"]), int(v), l) for n, l, v, _ in samples.values() if n == name + "_bucket"]
    for series in {str({k: v for k, v in l.items() if k != "le"}) for _, _, l in rows}:
        own = [(le, v) for le, v, l in rows if str({k: v for k, v in l.items() if k != "le"}) == series]
        counts = [int(v) for n, l, v, _ in samples.values() if n == name + "_count" and str(l) == series]
        sums = [v for n, l, v, _ in samples.values() if n == name + "_sum" and str(l) == series]
        if own != sorted(own) or sorted(v for _, v in own) != [v for _, v in own]: sys.exit(f"{name}: buckets")
        if own[-1][0] != float("inf") or counts != [own[-1][1]] or len(sums) != 1: sys.exit(f"{name}: count and sum")

if len(sys.argv) == 1 and shutil.which("promtool"):
    done = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True)
    if done.returncode != 0 or done.stderr: sys.exit(done.stderr.decode())

# A sample is asked for by its name and some of its labels: dlock_lock_held,name=x
if len(sys.argv) > 1:
    name, *wanted = sys.argv[1].split(",")
    pairs = [w.split("=", 1) for w in wanted]
    values = [v for n, l, v, _ in samples.values() if n == name and all(l.get(k) == v for k, v in pairs)]
    print(*values)
else:
    print(*(f"{key} {value}" for _, _, value, key in samples.values()), sep="\n")
