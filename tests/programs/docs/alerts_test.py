"""alerts_test.py: the alerts in contrib/prometheus are right, and every sample that they or the dashboard ask for exists."""
import json
import os
import re
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.join(here, "../../..")
rules = os.path.join(root, "contrib/prometheus/dlock.rules.yml")


def read(path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def run(*command):
    done = subprocess.run(command, cwd=here, capture_output=True, text=True)
    print(done.stdout + done.stderr)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}")


def words(heading):
    return re.sub(r"[^a-z ]", "", heading.lower()).replace(" ", "-")


run("promtool", "check", "rules", rules)
run("promtool", "test", "rules", "alerts_test.yml")

board = json.loads(read("contrib/grafana/dlock.json"))
titles = [panel["title"] for panel in board["panels"]]
assert titles == ["Held since", "Waiters", "Wait, p90", "Losses", "Renewal failures", "Last success"], titles
asked = read(rules) + " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
documented = read("docs/man/dlock-metrics.1") + read("docs/man/dlock-run.1")
for sample in set(re.findall(r"\bdlock_[a-z_]+", asked)):
    name = re.sub(r"_bucket$", "", sample)
    assert re.search(rf"\b{name}\b", documented), f"no page of the manual explains {name}"

headings = {words(line[4:]) for line in read("docs/operate.md").splitlines() if line.startswith("### ")}
runbooks = set(re.findall(r"runbook: docs/operate\.md#(\S+)", asked))
assert runbooks == headings, runbooks ^ headings
