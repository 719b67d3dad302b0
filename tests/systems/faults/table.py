"""table.py [--matrix FILE] FOLDER…: prints a Markdown table of the results that faults_test.py has left in these folders, and
writes all of them to FILE: tab-separated, a row for each count (beginning with "=") and each fault, a column for each server.
docs/reliability.md has such a table and explains the cells. Several runs of a server are added up."""
import argparse
import collections
import glob
import os
import sys

import nemesis

ORDER = list(nemesis.FAULTS)
KILLED, GUARDED = "process killed", "process killed, guardian"
SESSIONS = ("postgresql-session", "mysql-session")
AT_ONCE = ("file", *SESSIONS)  # The server itself notices the death of a holder.
LOST = "wire: answers lost time and again"  # counted in connections
STOPPED = ("process stopped", "wire: ", "server stopped", "leader stopped", "node stopped", "minority stopped",
           "majority stopped")
BACK = ("server ", "leader ", "follower ", "node ", "minority ", "majority ", "all killed")


class Server:
    """The results of one kind of server: the number and the recoveries of each fault, and the counts of the whole run."""

    def __init__(self, target):
        self.target = target
        self.times = collections.Counter()
        self.recoveries = collections.defaultdict(list)
        self.counts = collections.Counter()

    def add(self, fault, rest):
        if fault:
            self.times[fault] += int(rest[0])
            self.recoveries[fault] += map(int, filter(None, rest[1].split(",")))
        else:
            self.counts.update({name: int(count) for name, count in (word.split("=") for word in rest[0].split())})

    def forgets(self, name):
        if name == LOST:
            return self.target in SESSIONS
        return any(fault.name == name and fault.forgets for fault in nemesis.FAULTS[self.target])

    def cell(self, fault):
        if fault not in self.times:
            return ""
        seen = sorted(self.recoveries[fault])
        times = "{:,}×".format(self.times[fault]) + "*" * self.forgets(fault)
        return times + (" %d (%d)" % (seen[len(seen) // 2], seen[-1]) if seen else "")

    def number(self, name):
        return "{:,}".format(self.counts[name])

    def longest_ms(self, *beginnings):
        """Returns the longest recovery from faults whose names begin so."""
        times = [max(times) for name, times in self.recoveries.items() if times and name.startswith(beginnings)]
        return "{:,}".format(max(times)) if times else ""

    def guarded(self):
        """Returns how many kills of guarded processes were judged, how many of them were excused because the machine was
        overloaded, and the longest recovery."""
        if not self.counts["guarded"]:
            return ""
        excused = ", excused: %d" % self.counts["excused"] if self.counts["excused"] else ""
        return "%d×%s, longest %s" % (self.counts["guarded"], excused, self.longest_ms(GUARDED))

    def tried(self, keeps):
        """How often there were faults that grants have to outlast, or need not."""
        return sum(times for name, times in self.times.items() if name != LOST and self.forgets(name) != keeps)


def read(folders):
    servers = {}
    for folder in folders:
        for path in glob.glob(os.path.join(folder, "**", "*.tsv"), recursive=True):
            with open(path) as file:
                for line in file:
                    target, fault, *rest = line.rstrip("\n").split("\t")
                    servers.setdefault(target, Server(target)).add(fault, rest)
    return [servers[target] for target in ORDER if target in servers]


def figures(server):
    """Returns what is counted of a whole run, by the name of its row."""
    stops = sum(times for name, times in server.times.items() if name.startswith(STOPPED) and name != LOST)
    dead = "{:,}".format(max(server.recoveries[KILLED])) if server.recoveries[KILLED] else "not seen alone"
    return {
        "minutes": "%.1f" % (server.counts["seconds"] / 60),
        "runs": server.number("runs"),
        "grants": server.number("grants"),
        "contended grants": server.number("contended"),
        "granted by the server": server.number("served"),
        "faults to survive": "{:,}".format(server.tried(True)),
        "faults that grants need not survive": "{:,}".format(server.tried(False)),
        "stopped or cut-off holders": "{:,}".format(stops),
        "acquires without an answer": server.number("unheard"),
        "violations": server.number("violations"),
        "locks left behind": server.number("left"),
        "dead holder, ms": ("at once: " if server.target in AT_ONCE else "after 1 s: ") + dead,
        "dead holder with a guardian, ms (limit 250)": server.guarded(),
        "server back, ms (limit 1,000)": server.longest_ms(*BACK),
    }


def print_table(servers):
    columns = ["contended grants", "faults to survive", "acquires without an answer", "violations", "locks left behind"]
    rows = [["server", *columns]]
    rows += [[server.target, *(figures(server)[column] for column in columns)] for server in servers]
    numbers = [[int(cell.replace(",", "")) for cell in row[1:]] for row in rows[1:]]
    rows.append(["**all**", *("{:,}".format(sum(column)) for column in zip(*numbers))])
    rows.insert(1, ["-" * len(title) for title in rows[0]])
    for row in rows:
        print("| " + " | ".join(row) + " |")


def write_matrix(servers, path):
    columns = [figures(server) for server in servers]
    rows = [["fault", *(server.target for server in servers)]]
    rows += [["= " + title, *(column[title] for column in columns)] for title in figures(Server(""))]
    rows += [[fault, *(server.cell(fault) for server in servers)]
             for fault in sorted(set().union(*(server.times for server in servers)))]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines("\t".join(row) + "\n" for row in rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--matrix")
    parser.add_argument("folders", nargs="+")
    options = parser.parse_args()
    servers = read(options.folders)
    if not servers:
        sys.exit("table.py: no results in these folders")
    print_table(servers)
    if options.matrix:
        write_matrix(servers, options.matrix)


if __name__ == "__main__":
    main()
