use crate::client::duration;
use crate::error::check;
use crate::lock::milliseconds;
use crate::wait::{Handle, Releasing};
use crate::{ffi, Client, Error, Loss, Result};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A lock that is held. Its end releases the lock, and blocks for that up to the URI's `timeout`.
///
/// The compiler warns of a grant that is dropped at once, and refuses a second release:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// let client = dlock::Client::open("mem:").unwrap();
/// client.acquire("job").unwrap();
/// ```
///
/// ```compile_fail,E0382
/// let client = dlock::Client::open("mem:").unwrap();
/// let grant = client.acquire("job").unwrap();
/// grant.release().unwrap();
/// grant.release().unwrap();
/// ```
///
/// ```
/// let client = dlock::Client::open("mem:").unwrap();
/// let grant = client.acquire("job").unwrap();
/// assert!(grant.is_held() && grant.fence() > 0);
/// grant.release().unwrap();
/// ```
#[must_use = "the lock is released when its grant is dropped"]
pub struct Grant {
    handle: Option<Handle>, // None: released
    client: Client,         // after the handle, which is freed first
}

impl Grant {
    pub(crate) fn new(client: Client, handle: Handle) -> Grant {
        handle.shared().granted(unsafe { ffi::dlock_fence(handle.raw()) });
        Grant { client, handle: Some(handle) }
    }

    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("a grant has its handle until it is dropped")
    }

    fn raw(&self) -> *mut ffi::dlock_lock {
        self.handle().raw()
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.handle().name()
    }

    /// True until the lock is lost. It is cheap enough for the condition of a loop.
    pub fn is_held(&self) -> bool {
        unsafe { ffi::dlock_held(self.raw()) }
    }

    /// Greater than that of every earlier grant of the name: the resource that the lock protects refuses smaller ones.
    pub fn fence(&self) -> u64 {
        unsafe { ffi::dlock_fence(self.raw()) }
    }

    /// For how long the lock is valid without a further renewal; `Duration::MAX` where it ends with the process.
    pub fn remaining(&self) -> Duration {
        duration(unsafe { ffi::dlock_remaining_ms(self.raw()) }).unwrap_or_default()
    }

    /// Names the holder at the server.
    pub fn token(&self) -> Result<String> {
        let mut token = [0; ffi::DLOCK_TOKEN_MAX + 1];
        self.call(|lock, err| unsafe { ffi::dlock_token(lock, token.as_mut_ptr(), token.len(), err) })?;
        Ok(crate::client::string(token.as_ptr()))
    }

    /// Why the lock was lost: [`Error::Lost`] with the fence and the reason. `None` while it is held.
    pub fn loss(&self) -> Option<Error> {
        let mut loss = 0;
        let told = check(|err| unsafe {
            loss = ffi::dlock_lost(self.raw(), err);
            loss
        });
        if loss <= 0 {
            return None;
        }
        told.err()
            .map(|err| Error::new(-4, err.details().clone()).about(self.name()).lost(self.fence(), Loss::of(loss)))
    }

    /// Ends when the lock is lost.
    pub fn lost(&self) -> LostFuture<'_> {
        LostFuture(self)
    }

    /// Restarts the lease; with a new length if the grant is fixed. Blocks up to the URI's `timeout`.
    pub fn extend(&self, lease: Option<Duration>) -> Result<()> {
        let ms = lease.map_or(0, milliseconds);
        self.call(|lock, err| unsafe { ffi::dlock_extend(lock, ms, err) })
    }

    /// Makes a reader of the writer. Blocks up to the URI's `timeout`.
    pub fn downgrade(&self) -> Result<()> {
        self.call(|lock, err| unsafe { ffi::dlock_downgrade(lock, err) })
    }

    /// Releases the lock. [`Error::Lost`] means that it was lost before, so that the work may have overlapped another
    /// holder's. Blocks up to the URI's `timeout`.
    pub fn release(mut self) -> Result<()> {
        self.release_now()
    }

    /// As `release`, without blocking: it begins here, and dropping the future does not end it.
    pub fn release_async(mut self) -> Releasing {
        Releasing::begin(self.handle.take().expect("a grant has its handle until it is dropped"), self.client.clone())
    }

    fn release_now(&mut self) -> Result<()> {
        let fence = self.fence();
        let result = self.call(|lock, err| unsafe { ffi::dlock_release(lock, err) });
        self.handle = None;
        result.map_err(|err| err.lost(fence, None))
    }

    fn call(&self, f: impl FnOnce(*mut ffi::dlock_lock, *mut ffi::dlock_error) -> i32) -> Result<()> {
        check(|err| f(self.raw(), err)).map_err(|err| err.about(self.name()))
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.handle.is_some() {
            let _ = self.release_now(); // release() reports the errors
        }
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grant").field("name", &self.name()).field("fence", &self.fence()).finish()
    }
}

/// See [`Grant::lost`].
#[must_use = "a future does nothing until it is polled"]
pub struct LostFuture<'a>(&'a Grant);

impl Future for LostFuture<'_> {
    type Output = Error;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Error> {
        self.0.handle().shared().poll_lost(cx)
    }
}
