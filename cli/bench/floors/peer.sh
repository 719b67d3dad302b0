#!/bin/sh
# peer-NAME: runs peer-NAME.py with the python3 of $PATH, where there is one. It is not a Python script itself, so that
# dlock-bench can be installed without Python.
command -v python3 >/dev/null || exit 77
exec python3 -B "$0.py" "$@"
