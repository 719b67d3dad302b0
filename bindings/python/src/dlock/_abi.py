"""<dlock/dlock.h> for ctypes: its structs, constants and functions. A test compares each with the header.

ctypes releases the GIL during every call, and acquires it for every callback.
"""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p

from ._library import load

FOREVER = 2**63 - 1
TOKEN_MAX = 127
LABEL_MAX = 48
TICKET_MAX = 1279
LEASE_MIN_MS = 100
LEASE_MAX_MS = 366 * 24 * 3600 * 1000

EXCLUSIVE, SHARED, PERMIT = 0, 1, 2
OWNER_HANDLE = 1
FIXED_LEASE = 1
WAIT_BUCKETS = 24
CLIENT_LAZY, CLIENT_MANUAL, CLIENT_GUARDIAN = 1, 2, 4
FINE = 0

# DLOCK_EVENTS: the words for the numbers.
EVENTS = ("", "granted", "released", "lost", "waiting", "given-up", "late", "reconnected", "quarantine")

# DLOCK_CAPS: the words for the bits, from the lowest on.
CAPABILITIES = (
    "fence", "queue", "wake", "shared", "permit", "inspect", "list", "break", "export", "session", "threadsafe",
    "volatile", "local", "wanted", "private", "floor", "lease",
)  # fmt: skip


class ClientPointer(c_void_p):
    """dlock_client *"""


class LockPointer(c_void_p):
    """dlock_lock *"""


class ErrorStruct(Structure):
    """struct dlock_error"""

    _fields_ = [("code", c_int), ("message", c_char * 508)]


class Info(Structure):
    """struct dlock_info"""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("token", c_char_p),
        ("mode", c_int),
        ("waiters", c_uint32),
        ("limit", c_uint32),
        ("fence", c_uint64),
        ("remaining_ms", c_int64),
        ("host", c_char_p),
        ("pid", c_int64),
        ("label", c_char_p),
        ("held_ms", c_int64),
    ]


class BackendInfo(Structure):
    """struct dlock_backend_info"""

    _fields_ = [
        ("name", c_char_p),
        ("schemes", POINTER(c_char_p)),
        ("caps", c_uint32),
        ("path", c_char_p),
        ("error", c_char_p),
        ("schema", c_char_p),
    ]


class FindingStruct(Structure):
    """struct dlock_finding"""

    _fields_ = [("size", c_size_t), ("health", c_int), ("what", c_char_p), ("advice", c_char_p)]


class StatsStruct(Structure):
    """struct dlock_stats"""

    _fields_ = [
        ("size", c_size_t),
        ("grants", c_uint64),
        ("local_grants", c_uint64),
        ("reentries", c_uint64),
        ("losses", c_uint64),
        ("renewals", c_uint64),
        ("renewal_failures", c_uint64),
        ("reconnects", c_uint64),
        ("waiting", c_uint64),
        ("waits", c_uint64),
        ("wait_us", c_uint64),
        ("wait_counts", c_uint64 * WAIT_BUCKETS),
        ("held", c_uint64),
        ("last_answer_ms", c_int64),
        ("holds", c_uint64),
        ("hold_us", c_uint64),
        ("hold_counts", c_uint64 * WAIT_BUCKETS),
        ("quarantines", c_uint64),
    ]


class EventStruct(Structure):
    """struct dlock_event"""

    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("dropped", c_uint32),
        ("name", c_char_p),
        ("token", c_char_p),
        ("text", c_char_p),
        ("fence", c_uint64),
        ("waited_us", c_int64),
        ("held_us", c_int64),
    ]


Callback = CFUNCTYPE(None, c_void_p, POINTER(ErrorStruct), c_void_p)
Each = CFUNCTYPE(c_int, POINTER(Info), c_void_p)
EachFinding = CFUNCTYPE(c_int, POINTER(FindingStruct), c_void_p)
EachBackend = CFUNCTYPE(c_int, POINTER(BackendInfo), c_void_p)
Log = CFUNCTYPE(None, c_int, c_char_p, c_void_p)
OnEvent = CFUNCTYPE(None, POINTER(EventStruct), c_void_p)


class ClientOptions(Structure):
    """struct dlock_client_options"""

    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("log", Log), ("log_arg", c_void_p), ("label", c_char_p),
                ("event", OnEvent), ("event_arg", c_void_p)]


class Options(Structure):
    """struct dlock_options"""

    _fields_ = [
        ("size", c_size_t),
        ("mode", c_int),
        ("owner", c_int),
        ("limit", c_uint32),
        ("flags", c_uint32),
        ("lease_ms", c_int64),
        ("on_lost", Callback),
        ("on_lost_arg", c_void_p),
        ("on_wanted", Callback),
        ("on_wanted_arg", c_void_p),
    ]


_Err = POINTER(ErrorStruct)
_Text = POINTER(c_char)  # a buffer that the function writes into
_Locks = POINTER(LockPointer)

# The result type, then the argument types, of each function that the package calls.
FUNCTIONS = {
    "dlock_version": (c_char_p,),
    "dlock_strerror": (c_char_p, c_int),
    "dlock_open": (c_int, c_char_p, POINTER(ClientOptions), POINTER(ClientPointer), _Err),
    "dlock_client_stop": (c_int, ClientPointer),
    "dlock_close_within": (None, ClientPointer, c_int64),
    "dlock_client_fd": (c_int, ClientPointer),
    "dlock_client_dispatch": (c_int, ClientPointer),
    "dlock_client_guard": (c_int, ClientPointer, c_int, _Err),
    "dlock_client_backend": (POINTER(BackendInfo), ClientPointer),
    "dlock_client_quarantine_ms": (c_int64, ClientPointer),
    "dlock_client_stats": (c_int, ClientPointer, POINTER(StatsStruct), _Err),
    "dlock_backends": (c_int, EachBackend, c_void_p, _Err),
    "dlock_parse_duration": (c_int, c_char_p, POINTER(c_int64), _Err),
    "dlock_uri_without_secrets": (c_int, c_char_p, _Text, c_size_t, _Err),
    "dlock_new": (c_int, ClientPointer, c_char_p, POINTER(Options), POINTER(LockPointer), _Err),
    "dlock_free": (None, LockPointer),
    "dlock_acquire": (c_int, LockPointer, c_int64, _Err),
    "dlock_release": (c_int, LockPointer, _Err),
    "dlock_acquire_async": (c_int, LockPointer, c_int64, Callback, c_void_p),
    "dlock_release_async": (c_int, LockPointer, Callback, c_void_p),
    "dlock_downgrade": (c_int, LockPointer, _Err),
    "dlock_extend": (c_int, LockPointer, c_int64, _Err),
    "dlock_cancel": (c_int, LockPointer),
    "dlock_held": (c_bool, LockPointer),
    "dlock_remaining_ms": (c_int64, LockPointer),
    "dlock_fence": (c_uint64, LockPointer),
    "dlock_lost": (c_int, LockPointer, _Err),
    "dlock_token": (c_int, LockPointer, _Text, c_size_t, _Err),
    "dlock_name": (c_char_p, LockPointer),
    "dlock_guard": (c_int, LockPointer, c_int, _Err),
    "dlock_acquire_all": (c_int, _Locks, c_size_t, c_int64, _Err),
    "dlock_acquire_any": (c_int, _Locks, c_size_t, c_int64, POINTER(c_size_t), _Err),
    "dlock_release_all": (c_int, _Locks, c_size_t, _Err),
    "dlock_export": (c_int, LockPointer, _Text, c_size_t, _Err),
    "dlock_import": (c_int, ClientPointer, c_char_p, POINTER(Options), POINTER(LockPointer), _Err),
    "dlock_inspect": (c_int, ClientPointer, c_char_p, Each, c_void_p, _Err),
    "dlock_waiters": (c_int, ClientPointer, c_char_p, Each, c_void_p, _Err),
    "dlock_list": (c_int, ClientPointer, c_char_p, Each, c_void_p, _Err),
    "dlock_break": (c_int, ClientPointer, c_char_p, _Err),
    "dlock_check": (c_int, ClientPointer, EachFinding, c_void_p, _Err),
}

lib = load()
for _name, (_result, *_arguments) in FUNCTIONS.items():
    _function = getattr(lib, _name)
    _function.restype = _result
    _function.argtypes = _arguments
