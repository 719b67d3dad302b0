#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod client;
mod error;
#[doc(hidden)]
pub mod ffi;
mod grant;
mod lock;
mod wait;

pub use client::{version, Client, Holder, Mode, Stats};
pub use error::{Details, Error, Loss, Result};
pub use grant::{Grant, LostFuture};
pub use lock::Lock;
pub use wait::{Acquiring, Releasing};
