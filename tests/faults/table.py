"""table.py FOLDER…: prints Markdown tables of the results that faults_test.py has left in these folders: counts by
server, promises by server, and faults by server. Several runs of a server are added up."""
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
NOTES = """
Each cell: the number of faults, then the median (and the longest) recovery in milliseconds. A recovery lasts from the end
of the fault to the next grant that proves it: after a fault on a connection, a grant over that connection; after a stopped
process, a grant of that process; after a killed exclusive holder, a grant of its lock. Recoveries during which another
fault occurred are left out. "Time and again" counts connections that lost answers. \\*: grants made before this fault need
not survive it and are not checked."""


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
        times = "{:,}×".format(self.times[fault]) + "\\*" * self.forgets(fault)
        return times + (" %d (%d)" % (seen[len(seen) // 2], seen[-1]) if seen else "")

    def number(self, name):
        return "{:,}".format(self.counts[name])

    def minutes(self):
        return "%.1f" % (self.counts["seconds"] / 60)

    def longest(self, beginnings):
        """Returns the longest recovery from faults whose names begin so, and the name of the fault."""
        seen = [(max(times), name) for name, times in self.recoveries.items() if times and name.startswith(beginnings)]
        return max(seen, default=(None, ""))

    def longest_ms(self, *names):
        longest, name = self.longest(names)
        return "" if longest is None else "{:,}".format(longest)

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


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def print_counts(servers):
    columns = [("runs", "runs"), ("grants", "grants"), ("contended", "contended"), ("served", "granted by the server"),
               ("unheard", "unanswered acquires"), ("violations", "violations"), ("left", "leftover locks")]
    rows = [["server", "minutes"] + [title for name, title in columns] + ["longest recovery, ms"]]
    total = Server("all")
    for server in servers:
        longest, fault = server.longest("")
        rows.append([server.target, server.minutes()] + [server.number(name) for name, title in columns] +
                    ["" if longest is None else "{:,}: {}".format(longest, fault)])
        total.counts.update(server.counts)
    rows.append(["**all**", total.minutes()] + [total.number(name) for name, title in columns] + [""])
    print_table(rows)


def print_promises(servers):
    rows = [["server", "faults that grants must survive", "faults that they need not survive", "stopped or cut-off holders",
             "dead holder, ms", "dead holder with a guardian (limit 250 ms)", "server back (limit 1 s), ms"]]
    for server in servers:
        stops = sum(times for name, times in server.times.items() if name.startswith(STOPPED) and name != LOST)
        holds = "{:,}×, %s broken".format(server.tried(True)) % server.number("violations")
        dead = ("at once: " if server.target in AT_ONCE else "after 1 s: ") + \
            ("{:,}".format(max(server.recoveries[KILLED])) if server.recoveries[KILLED] else "not seen alone")
        rows.append([server.target, holds, "{:,}×".format(server.tried(False)), "{:,}×".format(stops), dead,
                     server.guarded(), server.longest_ms(*BACK)])
    print_table(rows)


def print_faults(servers):
    rows = [["fault"] + [server.target for server in servers]]
    for fault in sorted(set().union(*(server.times for server in servers))):
        rows.append([fault] + [server.cell(fault) for server in servers])
    print_table(rows)
    print(NOTES)


def main():
    servers = read(sys.argv[1:])
    print_counts(servers)
    print()
    print_promises(servers)
    print()
    print_faults(servers)


if __name__ == "__main__":
    main()
