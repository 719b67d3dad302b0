//! Handles of the C library, and its callbacks: the futures.

use crate::error::check;
use crate::{ffi, Client, Error, Grant, Loss, Result};
use std::ffi::{CStr, CString};
use std::future::Future;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

pub(crate) type OnLost = Arc<dyn Fn(&Error) + Send + Sync>;

/// What the callbacks know of a handle.
pub(crate) struct Shared {
    on_lost: Option<OnLost>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: Option<Result<()>>, // of the acquire or release in progress
    waker: Option<Waker>,      // of its future
    orphan: Option<Handle>,    // the future is dropped: the callback ends the handle
    fence: u64,
    lost: Option<Error>,
    lost_wakers: Vec<Waker>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn granted(&self, fence: u64) {
        self.state().fence = fence;
    }

    pub(crate) fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<Error> {
        let mut state = self.state();
        match &state.lost {
            Some(error) => Poll::Ready(error.clone()),
            None => {
                state.lost_wakers.retain(|waker| !waker.will_wake(cx.waker()));
                state.lost_wakers.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.state();
        match state.ended.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A handle of the C library, owned by nobody's thread.
pub(crate) struct Handle {
    lock: *mut ffi::dlock_lock,
    name: String,
    shared: Arc<Shared>, // after `lock` is freed no callback refers to it
}

// dlock.h: every function may be called from any thread at any time, and a lock of DLOCK_OWNER_HANDLE is of no thread.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) fn new(
        client: *mut ffi::dlock_client,
        name: &CStr,
        mut options: ffi::dlock_options,
        on_lost: Option<OnLost>,
    ) -> Result<Handle> {
        let shared = Arc::new(Shared { on_lost, state: Mutex::default() });
        options.on_lost = Some(told_lost);
        options.on_lost_arg = Arc::as_ptr(&shared) as *mut c_void;
        let mut lock = null_mut();
        check(|err| unsafe { ffi::dlock_new(client, name.as_ptr(), &options, &mut lock, err) })?;
        Ok(Handle { lock, name: CString::from(name).to_string_lossy().into_owned(), shared })
    }

    pub(crate) fn raw(&self) -> *mut ffi::dlock_lock {
        self.lock
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn arg(&self) -> *mut c_void {
        Arc::as_ptr(&self.shared) as *mut c_void
    }

    fn begin_release(&self) -> Result<()> {
        match unsafe { ffi::dlock_release_async(self.lock, Some(ended), self.arg()) } {
            0 => Ok(()),
            code => Err(Error::bare(code, &self.name)),
        }
    }

    /// Leaves the handle to the callback, which releases what it is granted.
    fn abandon(self) {
        let shared = self.shared.clone();
        let mut state = shared.state();
        match state.ended.take() {
            None => {
                let lock = self.lock;
                state.orphan = Some(self);
                unsafe { ffi::dlock_cancel(lock) }; // does not call back
            }
            Some(result) => {
                drop(state);
                end_orphan(self, result);
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { ffi::dlock_free(self.lock) };
    }
}

/// An acquire or a release of a handle without a future has ended.
fn end_orphan(handle: Handle, result: Result<()>) {
    if result.is_err() || !unsafe { ffi::dlock_held(handle.lock) } {
        return; // the release has ended, or there is nothing to release
    }
    let shared = handle.shared.clone();
    let mut state = shared.state();
    if handle.begin_release().is_ok() {
        state.orphan = Some(handle);
    } else {
        drop(state);
    }
}

unsafe extern "C" fn ended(lock: *mut ffi::dlock_lock, err: *const ffi::dlock_error, arg: *mut c_void) {
    let shared = &*arg.cast::<Shared>();
    let mut state = shared.state();
    let result = match err.as_ref() {
        None => Ok(()),
        Some(err) => Err(Error::from_c(err)),
    };
    match state.orphan.take() {
        Some(handle) => {
            drop(state);
            debug_assert!(handle.lock == lock);
            end_orphan(handle, result);
        }
        None => {
            state.ended = Some(result);
            let waker = state.waker.take();
            drop(state);
            wake(waker);
        }
    }
}

unsafe extern "C" fn told_lost(lock: *mut ffi::dlock_lock, err: *const ffi::dlock_error, arg: *mut c_void) {
    let shared = &*arg.cast::<Shared>();
    let loss = Loss::of(ffi::dlock_lost(lock, null_mut()));
    let name = CStr::from_ptr(ffi::dlock_name(lock)).to_string_lossy();
    let mut state = shared.state();
    let error = Error::from_c(&*err).about(&name).lost(state.fence, loss);
    state.lost = Some(error.clone());
    let wakers = std::mem::take(&mut state.lost_wakers);
    drop(state);
    wake(wakers);
    if let Some(on_lost) = &shared.on_lost {
        let _ = catch_unwind(AssertUnwindSafe(|| on_lost(&error))); // a panic has been reported by its hook
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// A wait for a lock: see [`Lock::acquire_async`](crate::Lock::acquire_async).
#[must_use = "dropping the future ends the wait"]
pub struct Acquiring {
    waiting: Option<Result<Handle>>,
    client: Client,
}

impl Acquiring {
    pub(crate) fn begin(client: Client, handle: Result<Handle>, timeout_ms: i64) -> Acquiring {
        let begun = handle.and_then(|handle| {
            match unsafe { ffi::dlock_acquire_async(handle.lock, timeout_ms, Some(ended), handle.arg()) } {
                0 => Ok(handle),
                code => Err(Error::bare(code, &handle.name)),
            }
        });
        Acquiring { waiting: Some(begun), client }
    }
}

impl Future for Acquiring {
    type Output = Result<Grant>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Grant>> {
        let result = match self.waiting.as_ref().expect("the future has ended") {
            Ok(handle) => match handle.shared.poll_ended(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result,
            },
            Err(_) => Ok(()),
        };
        let handle = self.waiting.take().expect("it was there")?;
        result.map_err(|err| err.about(&handle.name))?;
        Poll::Ready(Ok(Grant::new(self.client.clone(), handle)))
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if let Some(Ok(handle)) = self.waiting.take() {
            handle.abandon();
        }
    }
}

/// A release: see [`Grant::release_async`].
pub struct Releasing {
    releasing: Option<Result<Handle>>,
    _client: Client,
}

impl Releasing {
    pub(crate) fn begin(handle: Handle, client: Client) -> Releasing {
        let begun = handle.begin_release();
        Releasing { releasing: Some(begun.map(|()| handle)), _client: client }
    }
}

impl Future for Releasing {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let result = match self.releasing.as_ref().expect("the future has ended") {
            Ok(handle) => match handle.shared.poll_ended(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result,
            },
            Err(_) => Ok(()),
        };
        let handle = self.releasing.take().expect("it was there")?;
        let fence = handle.shared.state().fence;
        Poll::Ready(result.map_err(|err| err.about(&handle.name).lost(fence, None)))
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(Ok(handle)) = self.releasing.take() {
            handle.abandon();
        }
    }
}
