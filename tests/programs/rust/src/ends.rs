//! Losses, the ends of clients and processes, many locks, errors.

use crate::support::{block_on, fails, threads, until, uri, Tools, LONG};
use dlock::{Client, Error, Grant, Lock, Loss, Mode};
use std::error::Error as _;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

pub const CASES: &[(u32, fn(&Tools))] = &[
    (26, |t| {
        let (told, lost) = channel();
        let told = Mutex::new(told);
        let client = t.short();
        let grant =
            t.lock(&client).on_lost(move |error| told.lock().unwrap().send(error.clone()).unwrap()).acquire().unwrap();
        t.other.break_lock(&t.name).unwrap();
        let error = lost.recv_timeout(LONG).unwrap();
        assert!(error.code() == -4 && error.to_string().contains(&t.name));
        assert_eq!(error.details().lock.as_ref(), Some(&t.name));
        assert_eq!(error.details().fence, grant.fence());
        assert!(t.backend == "redis" || error.details().loss == Some(Loss::Broken), "{error:?}");
        assert!(!grant.is_held() && grant.remaining().is_zero());
        assert_eq!(grant.loss().unwrap().details().loss, error.details().loss);
        fails(grant.release(), -4);
        assert!(lost.try_recv().is_err());
    }),
    (27, |t| {
        let result = t.short().lock(&t.name).run(|grant| {
            t.other.break_lock(&t.name)?;
            until("lost", || !grant.is_held());
            Ok::<_, Error>(())
        });
        fails(result, -4);
    }),
    (28, |t| {
        let client = t.short();
        let grant = t.acquire(&client);
        t.other.break_lock(&t.name).unwrap();
        assert_eq!(block_on(grant.lost()).code(), -4);
        assert_eq!(block_on(grant.lost()).code(), -4);
        drop(grant);
        // Who is told may end everything: the grant, and with it the last clone of the client.
        let (told, lost) = channel();
        let slot = std::sync::Arc::new(Mutex::new((None, Some(told))));
        let inside = slot.clone();
        let lock = t.lock(&client).on_lost(move |_| {
            let (grant, told) = std::mem::take(&mut *inside.lock().unwrap());
            drop(grant);
            drop(told);
        });
        slot.lock().unwrap().0 = Some(lock.acquire().unwrap());
        drop((client, lock));
        t.other.break_lock(&t.name).unwrap();
        assert_eq!(lost.recv_timeout(LONG), Err::<(), _>(RecvTimeoutError::Disconnected));
        t.until_free();
    }),
    (29, |t| {
        let client = t.short();
        let grant = t.acquire(&client);
        let fence = grant.fence();
        t.other.break_lock(&t.name).unwrap();
        block_on(grant.lost());
        assert_eq!(fails(grant.release(), -4).details().fence, fence);
        assert!(t.acquire(&client).fence() > fence);
    }),
    (30, |t| {
        fails(t.other.break_lock(&t.name), -5);
        let grant = t.acquire(&t.short());
        t.other.break_lock(&t.name).unwrap();
        block_on(grant.lost());
        t.until_free();
    }),
    (31, |t| {
        let _grant = t.acquire(&t.other);
        let wait = t.lock(&t.client).acquire_async();
        thread::scope(|scope| {
            let blocked = scope.spawn(|| t.client.acquire(&t.name).map(drop));
            t.waits(&t.client, 2);
            t.client.close();
            fails(blocked.join().unwrap(), -3);
        });
        fails(block_on(wait), -3);
    }),
    (32, |t| {
        let grant = t.acquire(&t.client);
        t.client.close();
        assert!(!grant.is_held() && t.free(&t.other));
        fails(grant.release(), -3);
    }),
    // Also in the middle of waits that are granted and dropped at the same time, which leave nothing behind.
    (33, |t| {
        for _ in 0..5 {
            let client = t.open(&[]);
            thread::scope(|scope| {
                for i in 0..8u64 {
                    let client = &client;
                    scope.spawn(move || loop {
                        let mut waits: Vec<_> = (0..5).map(|_| t.lock(client).acquire_async()).collect();
                        thread::sleep(Duration::from_micros(i * 100));
                        let first = waits.pop().unwrap();
                        drop(waits);
                        match block_on(first).map(Grant::release_async) {
                            Err(error) if error.code() == -3 => break,
                            released => drop(released), // its end is not waited for
                        }
                    });
                }
                thread::sleep(Duration::from_millis(100));
                client.close();
            });
        }
        t.acquire(&t.other).release().unwrap();
        t.client.close();
        t.client.close();
        fails(t.client.acquire(&t.name), -3);
        fails(t.client.inspect(&t.name), -3);
    }),
    (34, |t| {
        fn anywhere<T: Send + Sync>() {}
        anywhere::<Client>();
        anywhere::<Lock>();
        anywhere::<Grant>();
        anywhere::<dlock::Acquiring>();
        anywhere::<dlock::Releasing>();
        let number = Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let grant = t.client.acquire(&t.name).unwrap();
                        *number.try_lock().expect("another thread has the lock") += 1;
                        grant.release().unwrap();
                    }
                });
            }
        });
        assert_eq!(number.into_inner().unwrap(), 80);
        let child = unsafe { fork() };
        if child == 0 {
            let forked = matches!(t.client.acquire(&t.name), Err(Error::Forked(_)));
            unsafe { _exit(if forked { 3 } else { 4 }) };
        }
        let mut status = 0;
        assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 3 << 8);
    }),
    (35, |t| {
        let mut process = t.run("exit", &[("lease", "1s")]);
        assert_eq!(process.child.wait().unwrap().code(), Some(3));
        t.until_free();
    }),
    (36, |t| {
        let grant = t.acquire(&t.client);
        let mut process = t.run("wait", &[]);
        assert_eq!(process.line(), "waits");
        process.kill(15);
        process.child.wait().unwrap();
        grant.release().unwrap();
        assert!(t.acquire(&t.client).is_held());
    }),
    (37, |t| {
        use std::os::unix::process::ExitStatusExt;
        let _grant = t.acquire(&t.client);
        let (mut plain, mut handled) = (t.run("wait", &[]), t.run("handle", &[]));
        assert_eq!((plain.line(), handled.line()), ("waits".to_owned(), "waits".to_owned()));
        plain.kill(15);
        assert_eq!(plain.child.wait().unwrap().signal(), Some(15));
        handled.kill(2);
        assert!(handled.line().contains("cancelled") || handled.line().contains("stopped"));
        assert_eq!(handled.child.wait().unwrap().code(), Some(4));
    }),
    (38, |t| {
        assert!(t.free(&t.client));
        let before = threads();
        let waits: Vec<_> = (0..1000).map(|i| t.client.lock(&format!("{}-{i}", t.name)).acquire_async()).collect();
        let grants: Vec<Grant> = waits.into_iter().map(|wait| block_on(wait).unwrap()).collect();
        assert!(grants.iter().all(Grant::is_held));
        assert!(threads() <= before + 4, "{before} threads, then {}", threads());
        let releases: Vec<_> = grants.into_iter().map(Grant::release_async).collect();
        releases.into_iter().for_each(|release| block_on(release).unwrap());
        assert_eq!(t.client.stats().unwrap().held, 0);
    }),
    (39, |t| {
        assert!(t.free(&t.client));
        let _grant = t.acquire(&t.other);
        let before = threads();
        let waits: Vec<_> = (0..1000).map(|_| t.client.lock(&t.name).acquire_async()).collect();
        t.waits(&t.client, 1000);
        assert!(threads() <= before + 4, "{before} threads, then {}", threads());
        t.client.close();
        waits.into_iter().for_each(|wait| drop(fails(block_on(wait), -3)));
    }),
    (40, |t| {
        let details = fails(t.other.break_lock(&t.name), -5).details().clone();
        let all = [
            Error::Busy,
            Error::TimedOut,
            Error::Canceled,
            Error::Lost,
            Error::NotOwner,
            Error::Deadlock,
            Error::Unavailable,
            Error::Auth,
            Error::Invalid,
            Error::NoMemory,
            Error::Unsupported,
            Error::Protocol,
            Error::NoBackend,
            Error::Abi,
            Error::Forked,
            Error::NotReady,
        ];
        assert_eq!(all.len(), crate::abi::errors().len());
        for (make, (number, text, advice)) in all.iter().zip(crate::abi::errors()) {
            let error: Error = make(details.clone());
            assert_eq!((error.code(), error.text(), error.advice()), (*number, *text, *advice));
        }
    }),
    (41, |t| {
        let grant = t.acquire(&t.other);
        let error = fails(t.client.lock(&t.name).timeout(Duration::from_millis(100)).acquire(), -2);
        assert!(error.is_retryable() && !error.advice().is_empty() && error.to_string().contains(&t.name));
        let holders = t.client.inspect(error.details().lock.as_ref().unwrap()).unwrap();
        assert_eq!((holders.len(), holders[0].mode), (1, Mode::Exclusive));
        assert_eq!((&holders[0].token, holders[0].pid), (&grant.token().unwrap(), i64::from(std::process::id())));
        let listed = t.client.list(&t.name).unwrap();
        assert_eq!((listed.len(), &listed[0].name), (1, &t.name));
    }),
    (42, |t| {
        let refused = |lock: Lock, word: &str| {
            let error = fails(lock.acquire(), -9);
            assert!(error.to_string().contains(word), "{error}");
            error
        };
        let lock = t.lock(&t.client);
        refused(t.client.lock(""), "name");
        assert!(refused(t.client.lock("a\0b"), "NUL").source().is_some());
        refused(lock.clone().lease(Duration::from_millis(1)), "lease");
        refused(lock.clone().lease(Duration::ZERO), "lease");
        refused(lock.permits(0), "permits");
        let error = fails(Client::open(&uri(&t.backend, &[("no_such_key", "1")])).map(drop), -9);
        assert!(error.to_string().contains("no_such_key"), "{error}");
    }),
    (43, |t| {
        fails(Client::open("redis://127.0.0.1:1?timeout=1s").map(drop), -7);
        let client = Client::open_lazy("redis://127.0.0.1:1?timeout=1s").unwrap();
        let wait = client.lock(&t.name).timeout(Duration::from_millis(500)).acquire_async();
        assert!(t.free(&t.client)); // other work
        assert!(fails(block_on(wait), -7).is_retryable());
    }),
    // Nothing is collected in Rust; the package's documentation has the test that the compiler complains.
    (44, |t| {
        let _ = t.client.acquire(&t.name).unwrap();
        assert!(t.free(&t.other));
    }),
];

/// What the other processes of the cases do.
pub fn child(what: &str, uri: &str, name: &str) {
    let client = Client::open(uri).unwrap();
    if what == "exit" {
        let _grant = client.acquire(name).unwrap();
        std::process::exit(3);
    }
    if what == "handle" {
        stop_at_interrupt(client.clone());
    }
    let wait = client.lock(name).acquire_async();
    until("waits", || client.stats().unwrap().waiting == 1);
    println!("waits");
    match block_on(wait) {
        Ok(grant) => println!("{grant:?}"),
        Err(error) => println!("{error}"),
    }
    std::process::exit(4);
}

/// Without a crate for signals: a thread that waits for SIGINT.
fn stop_at_interrupt(client: Client) {
    extern "C" {
        fn sigemptyset(set: *mut [u64; 16]) -> i32;
        fn sigaddset(set: *mut [u64; 16], signal: i32) -> i32;
        fn pthread_sigmask(how: i32, set: *const [u64; 16], old: *mut [u64; 16]) -> i32;
        fn sigwait(set: *const [u64; 16], signal: *mut i32) -> i32;
    }
    let (mut set, mut signal) = ([0; 16], 0);
    unsafe {
        sigemptyset(&mut set);
        sigaddset(&mut set, 2);
        pthread_sigmask(0, &set, std::ptr::null_mut());
    }
    thread::spawn(move || {
        unsafe { sigwait(&set, &mut signal) };
        client.stop();
    });
}
