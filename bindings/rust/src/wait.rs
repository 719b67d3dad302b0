//! Handles of the C library, and its callbacks: the futures.

use crate::error::check;
use crate::{ffi, Client, Error, Grant, Loss, Result};
use std::cell::Cell;
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
    shared: Arc<Shared>, // after `lock` is freed no callback begins with it
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

thread_local! {
    static IN_CALLBACK: Cell<bool> = Cell::new(false);
}

/// True where a client must not be closed: a waker or `on_lost` may drop the last clone of its client.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.with(Cell::get)
}

/// Calls code of the program in a callback. A panic has been reported by its hook, and ends here.
fn call_program(f: impl FnOnce()) {
    let outer = IN_CALLBACK.with(|inside| inside.replace(true));
    let _ = catch_unwind(AssertUnwindSafe(f));
    IN_CALLBACK.with(|inside| inside.set(outer));
}

/// The callback's own reference, since the program may drop the handle in it.
unsafe fn shared_of(arg: *mut c_void) -> Arc<Shared> {
    let shared = arg.cast::<Shared>();
    Arc::increment_strong_count(shared);
    Arc::from_raw(shared)
}

unsafe extern "C" fn ended(_: *mut ffi::dlock_lock, err: *const ffi::dlock_error, arg: *mut c_void) {
    let shared = shared_of(arg);
    let mut state = shared.state();
    let result = match err.as_ref() {
        None => Ok(()),
        Some(err) => Err(Error::from_c(err)),
    };
    match state.orphan.take() {
        Some(handle) => {
            drop(state);
            end_orphan(handle, result);
        }
        None => {
            state.ended = Some(result);
            let waker = state.waker.take();
            drop(state);
            call_program(|| waker.into_iter().for_each(Waker::wake));
        }
    }
}

unsafe extern "C" fn told_lost(lock: *mut ffi::dlock_lock, err: *const ffi::dlock_error, arg: *mut c_void) {
    let shared = shared_of(arg);
    let loss = Loss::of(ffi::dlock_lost(lock, null_mut()));
    let name = CStr::from_ptr(ffi::dlock_name(lock)).to_string_lossy();
    let mut state = shared.state();
    let error = Error::from_c(&*err).about(&name).lost(state.fence, loss);
    state.lost = Some(error.clone());
    let wakers = std::mem::take(&mut state.lost_wakers);
    drop(state);
    call_program(|| wakers.into_iter().for_each(Waker::wake));
    if let Some(on_lost) = &shared.on_lost {
        call_program(|| on_lost(&error));
    }
}

/// An acquire or release in progress, or why it could not begin.
struct Operation {
    begun: Option<Result<Handle>>,
    client: Client,
}

impl Operation {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Handle>> {
        let result = match self.begun.as_ref().expect("the future has ended") {
            Ok(handle) => match handle.shared.poll_ended(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result,
            },
            Err(_) => Ok(()),
        };
        let handle = self.begun.take().expect("it was there")?;
        let fence = handle.shared.state().fence;
        Poll::Ready(result.map_err(|err| err.about(&handle.name).lost(fence, None)).map(|()| handle))
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if let Some(Ok(handle)) = self.begun.take() {
            handle.abandon();
        }
    }
}

/// A wait for a lock: see [`Lock::acquire_async`](crate::Lock::acquire_async).
#[must_use = "dropping the future ends the wait"]
pub struct Acquiring(Operation);

impl Acquiring {
    pub(crate) fn begin(client: Client, handle: Result<Handle>, timeout_ms: i64) -> Acquiring {
        let begun = handle.and_then(|handle| {
            match unsafe { ffi::dlock_acquire_async(handle.lock, timeout_ms, Some(ended), handle.arg()) } {
                0 => Ok(handle),
                code => Err(Error::bare(code, &handle.name)),
            }
        });
        Acquiring(Operation { begun: Some(begun), client })
    }
}

impl Future for Acquiring {
    type Output = Result<Grant>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Grant>> {
        let client = &self.0.client.clone();
        self.0.poll(cx).map(|ended| ended.map(|handle| Grant::new(client.clone(), handle)))
    }
}

/// A release: see [`Grant::release_async`].
pub struct Releasing(Operation);

impl Releasing {
    pub(crate) fn begin(handle: Handle, client: Client) -> Releasing {
        let begun = handle.begin_release().map(|()| handle);
        Releasing(Operation { begun: Some(begun), client })
    }
}

impl Future for Releasing {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll(cx).map(|ended| ended.map(drop))
    }
}
