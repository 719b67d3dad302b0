#!/bin/bash
# probes_test.sh LIBRARY: the probes for tracers are there, with as many arguments as docs/internals.md says, and no others.
set -euo pipefail
cd "$(dirname "$0")/../.."
notes=$(readelf --notes "$1")
found=$(awk '/Provider:/ { dlock = $NF == "dlock" } dlock && /Name:/ { name = $2 } dlock && /Arguments:/ { print name, NF - 1 }' \
    <<<"$notes" | sort -u)
told=$(sed -n 's/^| `\([a-z_]*\)` | \(`.*`\) | .*/\1 \2/p' <<<"$(sed -n '/^## Probes/,/^## /p' docs/internals.md)" |
    awk '{ print $1, NF - 1 }' | sort -u)
if [ "$(wc -l <<<"$told")" != 6 ] || [ "$found" != "$told" ]; then
    printf 'in the library:\n%s\nin docs/internals.md:\n%s\n' "$found" "$told" >&2
    exit 1
fi
