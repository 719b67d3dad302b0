//! What the cases work with.

use dlock::{Client, Error, Grant, Lock};
use std::env;
use std::fmt::Debug;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine; nothing waits for it to pass.
pub const LONG: Duration = Duration::from_secs(100);

/// The server's URI, with other values for some of its keys.
pub fn uri(backend: &str, keys: &[(&str, &str)]) -> String {
    let given = if backend == "mem" {
        "mem:".to_owned()
    } else {
        env::var(format!("DLOCK_TEST_URI_{backend}")).expect("no server: run the tests with tests/run.sh")
    };
    let (address, query) = given.split_once('?').unwrap_or((&given, ""));
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !keys.iter().any(|(key, _)| pair.starts_with(&format!("{key}="))))
        .map(str::to_owned)
        .collect();
    pairs.extend(keys.iter().map(|(key, value)| format!("{key}={value}")));
    if pairs.is_empty() {
        address.to_owned()
    } else {
        format!("{address}?{}", pairs.join("&"))
    }
}

/// Two clients, and a name of its own.
pub struct Tools {
    pub backend: String,
    pub client: Client,
    pub other: Client,
    pub name: String,
}

impl Tools {
    pub fn new(backend: &str) -> Tools {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let client = Client::open(&uri(backend, &[])).unwrap();
        let other = Client::open(&uri(backend, &[])).unwrap();
        Tools { backend: backend.to_owned(), client, other, name: format!("rust-{}-{count}", std::process::id()) }
    }

    /// Another client takes the lock away; the holder asks for a renewal so often.
    pub fn short(&self) -> Client {
        self.open(&[("lease", "1s")])
    }

    pub fn open(&self, keys: &[(&str, &str)]) -> Client {
        Client::open(&uri(&self.backend, keys)).unwrap()
    }

    pub fn acquire(&self, client: &Client) -> Grant {
        self.lock(client).acquire().unwrap()
    }

    /// The lock of this case, whose waits end.
    pub fn lock(&self, client: &Client) -> Lock {
        client.lock(&self.name).timeout(LONG)
    }

    /// Whether a client's try gets the lock.
    pub fn free(&self, client: &Client) -> bool {
        self.lock(client).try_acquire().unwrap().map(|grant| grant.release().unwrap()).is_some()
    }

    pub fn until_free(&self) {
        until("free", || self.free(&self.other));
    }

    pub fn waits(&self, client: &Client, n: u64) {
        until("waiting", || client.stats().unwrap().waiting == n);
    }

    /// This program again, for `child()`.
    pub fn run(&self, what: &str, keys: &[(&str, &str)]) -> Process {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["child", what, &uri(&self.backend, keys), &self.name]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Process { child, lines }
    }
}

pub struct Process {
    pub child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Process {
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn kill(&self, signal: i32) {
        extern "C" {
            fn kill(pid: i32, signal: i32) -> i32;
        }
        assert_eq!(unsafe { kill(self.child.id() as i32, signal) }, 0);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < end, "this did not become true: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// The error of a result, which has the code of `expected`.
pub fn fails<T: Debug>(result: Result<T, Error>, code: i32) -> Error {
    let error = result.expect_err("it did not fail");
    assert_eq!(error.code(), code, "{error}");
    error
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls once.
pub fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let waker = Arc::new(Unpark(thread::current())).into();
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// The smallest executor.
pub fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    loop {
        if let Poll::Ready(value) = poll(&mut future) {
            return value;
        }
        thread::park_timeout(LONG);
    }
}
