use crate::error::check;
use crate::wait::{Acquiring, Handle, OnLost};
use crate::{ffi, Client, Error, Grant, Mode, Result};
use std::cell::RefCell;
use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

/// Rounds up, so that no wait and no lease is shorter than it was meant.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from((duration.as_nanos() + 999_999) / 1_000_000).unwrap_or(ffi::DLOCK_FOREVER)
}

/// The name of a lock, with the options of its acquisitions. It holds nothing, and can be used several times.
#[derive(Clone)]
pub struct Lock {
    pub(crate) client: Client,
    name: String,
    mode: Mode,
    permits: u32,
    lease: Option<Duration>,
    timeout: Option<Duration>,
    flags: u32,
    on_lost: Option<OnLost>,
}

impl Lock {
    pub(crate) fn new(client: Client, name: &str) -> Lock {
        let name = name.to_owned();
        Lock { client, name, mode: Mode::Exclusive, permits: 0, lease: None, timeout: None, flags: 0, on_lost: None }
    }

    /// Acquires as a reader.
    pub fn shared(mut self) -> Lock {
        self.mode = Mode::Shared;
        self
    }

    /// Acquires one of so many permits; all holders give the same number.
    pub fn permits(mut self, permits: u32) -> Lock {
        (self.mode, self.permits) = (Mode::Permit, permits);
        self
    }

    /// How long the lock outlives its holder. The default is the URI's `lease`.
    pub fn lease(mut self, lease: Duration) -> Lock {
        self.lease = Some(lease);
        self
    }

    /// The grant is not renewed: it ends with its lease, unless it is extended.
    pub fn fixed(mut self) -> Lock {
        self.flags |= ffi::DLOCK_FIXED_LEASE;
        self
    }

    /// Bounds the wait, which then ends with [`Error::TimedOut`]. 0 tries once, which may end with [`Error::Busy`].
    pub fn timeout(mut self, timeout: Duration) -> Lock {
        self.timeout = Some(timeout);
        self
    }

    /// Is called once when a grant is lost, with [`Error::Lost`], its fence and the reason, in the client's worker thread: it
    /// must not block for long.
    pub fn on_lost(mut self, told: impl Fn(&Error) + Send + Sync + 'static) -> Lock {
        self.on_lost = Some(Arc::new(told));
        self
    }

    /// Waits for the lock, and blocks the thread. [`Client::stop`] ends the wait.
    pub fn acquire(&self) -> Result<Grant> {
        self.acquire_within(self.timeout_ms())
    }

    /// Does not wait: `None` if somebody else holds the lock.
    pub fn try_acquire(&self) -> Result<Option<Grant>> {
        match self.acquire_within(0) {
            Err(Error::Busy(_)) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Begins a wait without a thread, for any executor. It begins here, and not with the first poll; dropping the future ends
    /// it.
    pub fn acquire_async(&self) -> Acquiring {
        Acquiring::begin(self.client.clone(), self.handle(), self.timeout_ms())
    }

    /// Holds the lock while `work` runs. Returns the error of `work`, or else [`Error::Lost`] if the lock was lost.
    ///
    /// An acquisition of the same lock by this thread in `work` fails with [`Error::Deadlock`] instead of waiting for itself.
    pub fn run<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&Grant) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let grant = self.acquire()?;
        let counts = self.mode != Mode::Permit;
        if counts {
            ENTERED.with(|entered| entered.borrow_mut().push((self.key(), self.mode == Mode::Shared)));
        }
        let leave = Leave(counts);
        let result = work(&grant);
        drop(leave);
        let value = result?; // drops the grant, which releases it
        grant.release()?;
        Ok(value)
    }

    fn timeout_ms(&self) -> i64 {
        self.timeout.map_or(ffi::DLOCK_FOREVER, milliseconds)
    }

    fn acquire_within(&self, timeout_ms: i64) -> Result<Grant> {
        let handle = self.handle()?;
        self.check_entered()?;
        check(|err| unsafe { ffi::dlock_acquire(handle.raw(), timeout_ms, err) })
            .map_err(|err| err.about(&self.name))?;
        Ok(Grant::new(self.client.clone(), handle))
    }

    pub(crate) fn handle(&self) -> Result<Handle> {
        if self.mode == Mode::Permit && self.permits == 0 {
            return Err(Error::invalid("there cannot be 0 permits".to_owned()).about(&self.name));
        }
        if self.lease == Some(Duration::ZERO) {
            return Err(Error::invalid("the lease is 0".to_owned()).about(&self.name));
        }
        let name = CString::new(self.name.as_str())?;
        let mut options: ffi::dlock_options = unsafe { std::mem::zeroed() };
        options.size = std::mem::size_of::<ffi::dlock_options>();
        options.owner = ffi::DLOCK_OWNER_HANDLE; // a grant may move between threads
        options.mode = self.mode.number();
        options.limit = self.permits;
        options.flags = self.flags;
        options.lease_ms = self.lease.map_or(0, milliseconds);
        let made = self.client.inner.with(|client| Handle::new(client, &name, options, self.on_lost.clone()));
        made.map_err(|err| err.about(&self.name))
    }

    /// Refuses what would wait for a block of this thread.
    pub(crate) fn check_entered(&self) -> Result<()> {
        let key = self.key();
        let shared = self.mode == Mode::Shared;
        let waits = self.mode != Mode::Permit
            && ENTERED.with(|entered| entered.borrow().iter().any(|(k, s)| *k == key && !(shared && *s)));
        if waits {
            Err(Error::deadlock(&self.name))
        } else {
            Ok(())
        }
    }

    fn key(&self) -> (usize, String) {
        (Arc::as_ptr(&self.client.inner) as usize, self.name.clone())
    }
}

type Entered = ((usize, String), bool);

thread_local! {
    /// The locks of the blocks that this thread is in, and whether they are shared.
    static ENTERED: RefCell<Vec<Entered>> = RefCell::new(Vec::new());
}

struct Leave(bool);

impl Drop for Leave {
    fn drop(&mut self) {
        if self.0 {
            ENTERED.with(|entered| entered.borrow_mut().pop());
        }
    }
}
