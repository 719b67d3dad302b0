use crate::ffi;
use std::ffi::{CStr, NulError};
use std::fmt;
use std::os::raw::c_int;

/// A result of this package.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a grant was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// It was not renewed in time.
    Expired,
    /// Its fixed lease has ended.
    FixedEnd,
    /// Somebody took it away.
    Broken,
    /// The server no longer has it, and cannot tell why.
    Forgotten,
    /// The connection or session in which it lived has ended.
    Session,
}

impl Loss {
    pub(crate) fn of(number: c_int) -> Option<Loss> {
        Some(match number {
            ffi::DLOCK_LOSS_EXPIRED => Loss::Expired,
            ffi::DLOCK_LOSS_FIXED_END => Loss::FixedEnd,
            ffi::DLOCK_LOSS_BROKEN => Loss::Broken,
            ffi::DLOCK_LOSS_FORGOTTEN => Loss::Forgotten,
            ffi::DLOCK_LOSS_SESSION => Loss::Session,
            _ => return None,
        })
    }
}

/// What an error is about.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Details {
    /// What is wrong and what to do, for a person.
    pub message: String,
    /// The lock's name, if the error is about one.
    pub lock: Option<String>,
    /// Of a loss: the grant's fence.
    pub fence: u64,
    /// Of a loss: the reason, unless only the release reported it.
    pub loss: Option<Loss>,
    source: Option<NulError>,
}

macro_rules! errors {
    ($($name:ident = $code:literal, $text:literal, $advice:literal;)*) => {
        /// Every error of the library, by its code.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum Error {
            $(#[doc = concat!($text, ": ", $advice)] $name(Details),)*
        }

        impl Error {
            pub(crate) fn new(code: c_int, details: Details) -> Error {
                match code {
                    $($code => Error::$name(details),)*
                    _ => Error::Protocol(details),
                }
            }

            /// The negative number of the code in dlock.h.
            pub fn code(&self) -> i32 {
                match self { $(Error::$name(_) => $code,)* }
            }

            /// What the code means.
            pub fn text(&self) -> &'static str {
                match self { $(Error::$name(_) => $text,)* }
            }

            /// What the caller should do.
            pub fn advice(&self) -> &'static str {
                match self { $(Error::$name(_) => $advice,)* }
            }

            /// What the error is about.
            pub fn details(&self) -> &Details {
                match self { $(Error::$name(details))|* => details }
            }

            fn details_mut(&mut self) -> &mut Details {
                match self { $(Error::$name(details))|* => details }
            }
        }
    };
}

errors! {
    Busy = -1, "somebody else holds the lock", "try later, or acquire with a timeout";
    TimedOut = -2, "the lock was not free in time", "try later, or wait longer";
    Canceled = -3, "the wait was cancelled, or the client was stopped or closed", "stop";
    Lost = -4, "the lock was lost before it was released", "treat the protected work as possibly overlapped";
    NotOwner = -5, "the caller does not hold the lock", "fix the caller: acquire and release must pair up";
    Deadlock = -6, "the wait could never end",
        "fix the caller: do not upgrade, nor acquire a non-reentrant lock twice";
    Unavailable = -7, "the server cannot be reached or did not answer in time", "try later; check the server";
    Auth = -8, "the server refused the credentials or the rights", "fix the URI or the server's access rules";
    Invalid = -9, "an argument is invalid", "fix the caller; the message names the argument";
    NoMemory = -10, "out of memory, threads, descriptors or disk",
        "free some, or raise the limit that the message names";
    Unsupported = -11, "this backend cannot do that", "use another backend, or do without";
    Protocol = -12, "the server sent an invalid answer", "check that the URI names the right kind of server";
    NoBackend = -13, "no backend for this URI scheme", "install the backend, or set DLOCK_PLUGIN_PATH";
    Abi = -14, "the backend module does not fit this library", "rebuild or replace the module";
    Forked = -15, "the handle was made before fork()", "open a client in the child";
    NotReady = -16, "the server was started recently and grants nothing yet",
        "wait; the message says for how long";
}

impl Error {
    /// True if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Busy(_) | Error::TimedOut(_) | Error::Unavailable(_) | Error::NotReady(_))
    }

    pub(crate) fn deadlock(lock: &str) -> Error {
        let message = format!("lock \"{lock}\" is held by the block around this call");
        Error::Deadlock(Details { message, lock: Some(lock.to_owned()), ..Details::default() })
    }

    pub(crate) fn closed() -> Error {
        Error::Canceled(Details { message: "the client is closed".to_owned(), ..Details::default() })
    }

    pub(crate) fn invalid(message: String) -> Error {
        Error::Invalid(Details { message, ..Details::default() })
    }

    /// An error without a message of its own.
    pub(crate) fn bare(code: c_int, lock: &str) -> Error {
        let text = unsafe { CStr::from_ptr(ffi::dlock_strerror(code)) }.to_string_lossy();
        let message = format!("lock \"{lock}\": {text}");
        Error::new(code, Details { message, lock: Some(lock.to_owned()), ..Details::default() })
    }

    pub(crate) fn from_c(err: &ffi::dlock_error) -> Error {
        let message = unsafe { CStr::from_ptr(err.message.as_ptr()) }.to_string_lossy().into_owned();
        Error::new(err.code, Details { message, ..Details::default() })
    }

    pub(crate) fn about(mut self, lock: &str) -> Error {
        self.details_mut().lock = Some(lock.to_owned());
        self
    }

    pub(crate) fn lost(mut self, fence: u64, loss: Option<Loss>) -> Error {
        let details = self.details_mut();
        (details.fence, details.loss) = (fence, loss);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.details().message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.details().source.as_ref().map(|source| source as _)
    }
}

impl From<NulError> for Error {
    fn from(source: NulError) -> Error {
        let message = "a name or a URI has a NUL in it".to_owned();
        Error::Invalid(Details { message, source: Some(source), ..Details::default() })
    }
}

/// Calls a function of the library with its output for an error.
pub(crate) fn check(call: impl FnOnce(*mut ffi::dlock_error) -> c_int) -> Result<()> {
    let mut err = ffi::dlock_error { code: 0, message: [0; 508] };
    match call(&mut err) {
        0 => Ok(()),
        rc => {
            err.code = rc;
            Err(Error::from_c(&err))
        }
    }
}
