//! What the package uses of dlock.h. A test compares it with the header.
#![allow(non_camel_case_types, missing_docs)]

use std::os::raw::{c_char, c_int, c_uint, c_void};

#[repr(C)]
pub struct dlock_client {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dlock_lock {
    _private: [u8; 0],
}

pub const DLOCK_FOREVER: i64 = i64::MAX;
pub const DLOCK_TOKEN_MAX: usize = 127;
pub const DLOCK_WAIT_BUCKETS: usize = 24;
pub const DLOCK_EXCLUSIVE: c_uint = 0;
pub const DLOCK_SHARED: c_uint = 1;
pub const DLOCK_PERMIT: c_uint = 2;
pub const DLOCK_OWNER_HANDLE: c_uint = 1;
pub const DLOCK_FIXED_LEASE: u32 = 1;
pub const DLOCK_CLIENT_LAZY: u32 = 1;
pub const DLOCK_LOSS_EXPIRED: c_int = 1;
pub const DLOCK_LOSS_FIXED_END: c_int = 2;
pub const DLOCK_LOSS_BROKEN: c_int = 3;
pub const DLOCK_LOSS_FORGOTTEN: c_int = 4;
pub const DLOCK_LOSS_SESSION: c_int = 5;

#[repr(C)]
pub struct dlock_error {
    pub code: c_int,
    pub message: [c_char; 508],
}

#[repr(C)]
pub struct dlock_info {
    pub size: usize,
    pub name: *const c_char,
    pub token: *const c_char,
    pub mode: c_uint,
    pub waiters: u32,
    pub limit: u32,
    pub fence: u64,
    pub remaining_ms: i64,
    pub host: *const c_char,
    pub pid: i64,
    pub label: *const c_char,
    pub held_ms: i64,
}

#[repr(C)]
pub struct dlock_backend_info {
    pub name: *const c_char,
    pub schemes: *const *const c_char,
    pub caps: u32,
    pub path: *const c_char,
    pub error: *const c_char,
    pub schema: *const c_char,
}

pub type dlock_callback = Option<unsafe extern "C" fn(*mut dlock_lock, *const dlock_error, *mut c_void)>;
pub type dlock_each = Option<unsafe extern "C" fn(*const dlock_info, *mut c_void) -> c_int>;

#[repr(C)]
pub struct dlock_client_options {
    pub size: usize,
    pub flags: u32,
    pub log: Option<unsafe extern "C" fn(c_int, *const c_char, *mut c_void)>,
    pub log_arg: *mut c_void,
    pub label: *const c_char,
    pub event: Option<unsafe extern "C" fn(*const c_void, *mut c_void)>, // a struct dlock_event, which this crate does not use
    pub event_arg: *mut c_void,
}

#[repr(C)]
pub struct dlock_options {
    pub size: usize,
    pub mode: c_uint,
    pub owner: c_uint,
    pub limit: u32,
    pub flags: u32,
    pub lease_ms: i64,
    pub on_lost: dlock_callback,
    pub on_lost_arg: *mut c_void,
    pub on_wanted: dlock_callback,
    pub on_wanted_arg: *mut c_void,
}

#[repr(C)]
pub struct dlock_stats {
    pub size: usize,
    pub grants: u64,
    pub local_grants: u64,
    pub reentries: u64,
    pub losses: u64,
    pub renewals: u64,
    pub renewal_failures: u64,
    pub reconnects: u64,
    pub waiting: u64,
    pub waits: u64,
    pub wait_us: u64,
    pub wait_counts: [u64; DLOCK_WAIT_BUCKETS],
    pub held: u64,
    pub last_answer_ms: i64,
    pub holds: u64,
    pub hold_us: u64,
    pub hold_counts: [u64; DLOCK_WAIT_BUCKETS],
    pub quarantines: u64,
}

extern "C" {
    pub fn dlock_strerror(code: c_int) -> *const c_char;
    pub fn dlock_version() -> *const c_char;
    pub fn dlock_open(
        uri: *const c_char,
        options: *const dlock_client_options,
        client: *mut *mut dlock_client,
        err: *mut dlock_error,
    ) -> c_int;
    pub fn dlock_client_stop(client: *mut dlock_client) -> c_int;
    pub fn dlock_close(client: *mut dlock_client);
    pub fn dlock_client_backend(client: *mut dlock_client) -> *const dlock_backend_info;
    pub fn dlock_client_stats(client: *mut dlock_client, stats: *mut dlock_stats, err: *mut dlock_error) -> c_int;
    pub fn dlock_new(
        client: *mut dlock_client,
        name: *const c_char,
        options: *const dlock_options,
        lock: *mut *mut dlock_lock,
        err: *mut dlock_error,
    ) -> c_int;
    pub fn dlock_free(lock: *mut dlock_lock);
    pub fn dlock_acquire(lock: *mut dlock_lock, timeout_ms: i64, err: *mut dlock_error) -> c_int;
    pub fn dlock_release(lock: *mut dlock_lock, err: *mut dlock_error) -> c_int;
    pub fn dlock_acquire_async(lock: *mut dlock_lock, timeout_ms: i64, done: dlock_callback, arg: *mut c_void)
        -> c_int;
    pub fn dlock_release_async(lock: *mut dlock_lock, done: dlock_callback, arg: *mut c_void) -> c_int;
    pub fn dlock_downgrade(lock: *mut dlock_lock, err: *mut dlock_error) -> c_int;
    pub fn dlock_extend(lock: *mut dlock_lock, lease_ms: i64, err: *mut dlock_error) -> c_int;
    pub fn dlock_cancel(lock: *mut dlock_lock) -> c_int;
    pub fn dlock_held(lock: *mut dlock_lock) -> bool;
    pub fn dlock_remaining_ms(lock: *mut dlock_lock) -> i64;
    pub fn dlock_fence(lock: *mut dlock_lock) -> u64;
    pub fn dlock_lost(lock: *mut dlock_lock, err: *mut dlock_error) -> c_int;
    pub fn dlock_token(lock: *mut dlock_lock, token: *mut c_char, size: usize, err: *mut dlock_error) -> c_int;
    pub fn dlock_name(lock: *mut dlock_lock) -> *const c_char;
    pub fn dlock_acquire_all(locks: *const *mut dlock_lock, n: usize, timeout_ms: i64, err: *mut dlock_error) -> c_int;
    pub fn dlock_inspect(
        client: *mut dlock_client,
        name: *const c_char,
        each: dlock_each,
        arg: *mut c_void,
        err: *mut dlock_error,
    ) -> c_int;
    pub fn dlock_list(
        client: *mut dlock_client,
        prefix: *const c_char,
        each: dlock_each,
        arg: *mut c_void,
        err: *mut dlock_error,
    ) -> c_int;
    pub fn dlock_break(client: *mut dlock_client, name: *const c_char, err: *mut dlock_error) -> c_int;
}
