"""Finds libdlock and loads it."""

from __future__ import annotations

import ctypes
import ctypes.util
import os

from ._version import __version__

_SERIES = __version__.rsplit(".", 1)[0] + "."
_SONAME = "libdlock.so." + __version__.rsplit(".", 1)[0]
_BUNDLED = os.path.join(os.path.dirname(__file__), "_lib", _SONAME)  # in a wheel

_INSTALL = (
    "Install the library: the package libdlock0.1 of Debian or Ubuntu, or `cmake --install` of dlock's source, then "
    "`ldconfig`. If it is in another folder, set the environment variable DLOCK_LIBRARY to its path."
)


def _candidates() -> list[str]:
    chosen = os.environ.get("DLOCK_LIBRARY")
    if chosen:
        return [chosen]
    if os.path.exists(_BUNDLED):
        return [_BUNDLED]
    found = ctypes.util.find_library("dlock")
    return [_SONAME, *([found] if found else [])]


def _open(candidates: list[str]) -> ctypes.CDLL:
    reasons = []
    for name in dict.fromkeys(candidates):
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(f"cannot load dlock's library ({'; '.join(reasons)}). {_INSTALL}")


def load() -> ctypes.CDLL:
    """Loads the library from $DLOCK_LIBRARY, else the one in this package, else the one that the dynamic linker finds.
    Raises ImportError if there is none, or if its version does not fit this package."""
    library = _open(_candidates())
    try:
        library.dlock_version.restype = ctypes.c_char_p
        version = library.dlock_version().decode()
    except AttributeError:
        raise ImportError(f"{library._name} is not dlock's library: it has no dlock_version. {_INSTALL}") from None
    if not version.startswith(_SERIES):
        raise ImportError(
            f"{library._name} is dlock {version}, and this package is for dlock {_SERIES}x: install the package dlock "
            f"of that version, or another library. {_INSTALL}"
        )
    return library
