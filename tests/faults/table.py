"""table.py FOLDER: one table of what faults_test.py has noted there, in Markdown: faults by servers."""
import glob
import os
import sys

import nemesis

ORDER = list(nemesis.FAULTS)


def forgets(target, name):
    return any(fault.name == name and fault.forgets for fault in nemesis.FAULTS[target])


def read(folder):
    """(cells, last): cells[fault][target] says how often and how long; last[target] is grants, problems, rounds, seed."""
    cells, last = {}, {}
    for path in glob.glob(os.path.join(folder, "*.tsv")):
        with open(path) as file:
            for line in file:
                target, fault, *rest = line.rstrip("\n").split("\t")
                if not fault:
                    last[target] = rest
                    continue
                times, seen, median, longest = rest
                cell = "%s×" % times + ("\\*" if forgets(target, fault) else "")
                cells.setdefault(fault, {})[target] = cell + (" %s (%s)" % (median, longest) if int(seen) else "")
    return cells, last


def main():
    cells, last = read(sys.argv[1])
    targets = [target for target in ORDER if target in last]
    rows = [["fault"] + targets]
    for fault in sorted(cells):
        rows.append([fault] + [cells[fault].get(target, "") for target in targets])
    rows.append(["**grants**"] + ["{:,}".format(int(last[target][0])) for target in targets])
    rows.append(["**violations**"] + [last[target][1] for target in targets])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print("""
How often each was tried, and, in milliseconds, the median (the longest) of the times until somebody was granted something
again, where no other fault fell into that time: after a fault of a wire, behind it; after one of a process that was
stopped, that process; after one that was killed while it held a lock alone, that lock. "Time and again": how many
connections lost answers. \\*: grants from before need not outlast it, and are not checked.""")


if __name__ == "__main__":
    main()
