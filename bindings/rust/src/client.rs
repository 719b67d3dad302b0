use crate::error::check;
use crate::wait::in_callback;
use crate::{ffi, Error, Grant, Lock, Result};
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// The version of the C library.
pub fn version() -> &'static str {
    unsafe { CStr::from_ptr(ffi::dlock_version()) }.to_str().unwrap_or("")
}

/// How many owners may hold a name at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// A reader beside other readers.
    Shared,
    /// One of several permits.
    Permit,
}

impl Mode {
    pub(crate) fn number(self) -> c_uint {
        match self {
            Mode::Exclusive => ffi::DLOCK_EXCLUSIVE,
            Mode::Shared => ffi::DLOCK_SHARED,
            Mode::Permit => ffi::DLOCK_PERMIT,
        }
    }
}

/// A holder of a lock, as the server reports it; it may be outdated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The lock's name.
    pub name: String,
    /// The holder's name at the server; "" where the server does not say.
    pub token: String,
    /// How the lock is held.
    pub mode: Mode,
    /// The number of waiters in the server's queue.
    pub waiters: u32,
    /// The number of permits; 1 in other modes.
    pub limit: u32,
    /// 0 if it is unknown.
    pub fence: u64,
    /// What is left of the lease; `Duration::MAX` if it ends with its holder.
    pub remaining: Option<Duration>,
    /// How long ago it was granted.
    pub held_for: Option<Duration>,
    /// The holder's machine; "" where the token does not tell.
    pub host: String,
    /// The holder's process; 0 where the token does not tell.
    pub pid: i64,
    /// What the holder's client is for.
    pub label: String,
}

/// Some counters of a client since it was opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct Stats {
    pub grants: u64,
    pub losses: u64,
    pub renewals: u64,
    pub renewal_failures: u64,
    pub reconnects: u64,
    pub waits: u64,
    pub waited: Duration,
    /// Waits in progress now.
    pub waiting: u64,
    /// Grants that are held now.
    pub held: u64,
    /// How long ago the server last answered.
    pub last_answer: Option<Duration>,
}

/// Milliseconds of the library: negative is unknown.
pub(crate) fn duration(ms: i64) -> Option<Duration> {
    match ms {
        ffi::DLOCK_FOREVER => Some(Duration::MAX),
        _ => u64::try_from(ms).ok().map(Duration::from_millis),
    }
}

pub(crate) fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(crate) struct Inner {
    open: RwLock<*mut ffi::dlock_client>, // null: closed; locked for reading during calls with it
}

// dlock.h: every function may be called from any thread at any time.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}

impl Inner {
    /// Calls `f` with the open client.
    pub(crate) fn with<T>(&self, f: impl FnOnce(*mut ffi::dlock_client) -> Result<T>) -> Result<T> {
        let open = self.open.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        if open.is_null() {
            return Err(Error::closed());
        }
        f(*open)
    }

    fn stop(&self) {
        let _ = self.with(|client| check(|_| unsafe { ffi::dlock_client_stop(client) }));
    }

    fn take(&self) -> Closing {
        let mut open = self.open.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        Closing(std::mem::replace(&mut *open, null_mut()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let closing = self.take();
        if in_callback() {
            std::thread::spawn(move || closing.close());
        } else {
            closing.close();
        }
    }
}

/// A client that nobody else can use any more.
struct Closing(*mut ffi::dlock_client);

unsafe impl Send for Closing {}

impl Closing {
    fn close(self) {
        unsafe { ffi::dlock_close(self.0) };
    }
}

/// A client of one server. Clones are the same client, which is closed with the last of them and of its grants.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

impl Client {
    /// Connects to the server that the URI names. Blocks up to the URI's `timeout`.
    pub fn open(uri: &str) -> Result<Client> {
        Client::open_with(uri, 0)
    }

    /// Makes a client that connects with its first operation. Does not block.
    pub fn open_lazy(uri: &str) -> Result<Client> {
        Client::open_with(uri, ffi::DLOCK_CLIENT_LAZY)
    }

    fn open_with(uri: &str, flags: u32) -> Result<Client> {
        let uri = CString::new(uri)?;
        let size = std::mem::size_of::<ffi::dlock_client_options>();
        let options = ffi::dlock_client_options { size, flags, log: None, log_arg: null_mut(), label: null(), event: None, event_arg: null_mut() };
        let mut client = null_mut();
        check(|err| unsafe { ffi::dlock_open(uri.as_ptr(), &options, &mut client, err) })?;
        Ok(Client { inner: Arc::new(Inner { open: RwLock::new(client) }) })
    }

    /// Names a lock, whose options follow. Talks to no server.
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(self.clone(), name)
    }

    /// Waits for the exclusive lock.
    pub fn acquire(&self, name: &str) -> Result<Grant> {
        self.lock(name).acquire()
    }

    /// Acquires all locks, which may be of several clients, or none; whatever their order, without deadlock. `None` waits
    /// without a limit; the locks' own timeouts do not count.
    pub fn acquire_all(locks: &[Lock], timeout: Option<Duration>) -> Result<Vec<Grant>> {
        let handles = locks.iter().map(Lock::handle).collect::<Result<Vec<_>>>()?;
        for lock in locks {
            lock.check_entered()?;
        }
        let raw: Vec<_> = handles.iter().map(|handle| handle.raw()).collect();
        let ms = timeout.map_or(ffi::DLOCK_FOREVER, crate::lock::milliseconds);
        check(|err| unsafe { ffi::dlock_acquire_all(raw.as_ptr(), raw.len(), ms, err) })?;
        Ok(locks.iter().zip(handles).map(|(lock, handle)| Grant::new(lock.client.clone(), handle)).collect())
    }

    /// Ends the waits with [`Error::Canceled`], and refuses new ones; what is held stays held.
    pub fn stop(&self) {
        self.inner.stop();
    }

    /// Ends the waits with [`Error::Canceled`], releases all locks and closes the connection, for all clones. Blocks up to the
    /// URI's `timeout`.
    pub fn close(&self) {
        self.inner.stop();
        self.inner.take().close(); // callbacks may use the client in the meantime
    }

    /// The holders of a lock. Blocks up to the URI's `timeout`, as `list` and `break_lock` do.
    pub fn inspect(&self, name: &str) -> Result<Vec<Holder>> {
        self.walk(name, ffi::dlock_inspect)
    }

    /// The holders of all locks whose names begin with `prefix`.
    pub fn list(&self, prefix: &str) -> Result<Vec<Holder>> {
        self.walk(prefix, ffi::dlock_list)
    }

    /// Takes the lock away from its holders.
    pub fn break_lock(&self, name: &str) -> Result<()> {
        let text = CString::new(name)?;
        self.inner
            .with(|client| check(|err| unsafe { ffi::dlock_break(client, text.as_ptr(), err) }))
            .map_err(|err| err.about(name))
    }

    /// The client's counters.
    pub fn stats(&self) -> Result<Stats> {
        let mut stats: ffi::dlock_stats = unsafe { std::mem::zeroed() };
        stats.size = std::mem::size_of::<ffi::dlock_stats>();
        self.inner.with(|client| check(|err| unsafe { ffi::dlock_client_stats(client, &mut stats, err) }))?;
        Ok(Stats {
            grants: stats.grants,
            losses: stats.losses,
            renewals: stats.renewals,
            renewal_failures: stats.renewal_failures,
            reconnects: stats.reconnects,
            waits: stats.waits,
            waited: Duration::from_micros(stats.wait_us),
            waiting: stats.waiting,
            held: stats.held,
            last_answer: duration(stats.last_answer_ms),
        })
    }

    /// The name of the client's backend, such as "redis", and its capabilities: the bits `DLOCK_CAP_…` of dlock.h.
    pub fn backend(&self) -> Result<(String, u32)> {
        self.inner.with(|client| {
            let info = unsafe { &*ffi::dlock_client_backend(client) };
            Ok((string(info.name), info.caps))
        })
    }

    fn walk(&self, text: &str, function: Walk) -> Result<Vec<Holder>> {
        unsafe extern "C" fn each(info: *const ffi::dlock_info, arg: *mut c_void) -> c_int {
            let (info, holders) = (&*info, &mut *arg.cast::<Vec<Holder>>());
            holders.push(Holder {
                name: string(info.name),
                token: string(info.token),
                mode: [Mode::Exclusive, Mode::Shared, Mode::Permit][info.mode.min(2) as usize],
                waiters: info.waiters,
                limit: info.limit,
                fence: info.fence,
                remaining: duration(info.remaining_ms),
                held_for: duration(info.held_ms),
                host: string(info.host),
                pid: info.pid,
                label: string(info.label),
            });
            0
        }
        let c_text = CString::new(text)?;
        let mut holders: Vec<Holder> = Vec::new();
        let arg = &mut holders as *mut Vec<Holder>;
        self.inner
            .with(|client| check(|err| unsafe { function(client, c_text.as_ptr(), Some(each), arg.cast(), err) }))
            .map_err(|err| err.about(text))?;
        Ok(holders)
    }
}

type Walk = unsafe extern "C" fn(
    *mut ffi::dlock_client,
    *const c_char,
    ffi::dlock_each,
    *mut c_void,
    *mut ffi::dlock_error,
) -> c_int;
