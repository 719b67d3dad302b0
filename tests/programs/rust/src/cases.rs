//! Blocks, waits, kinds of locks, leases and fences.

use crate::support::{block_on, fails, poll, Tools};
use dlock::{Client, Error, Grant};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug)]
enum Own {
    OfTheBlock,
    Dlock(#[allow(dead_code)] Error), // it is shown if the case fails
}

impl From<Error> for Own {
    fn from(error: Error) -> Own {
        Own::Dlock(error)
    }
}

pub const CASES: &[(u32, fn(&Tools))] = &[
    (1, |t| {
        let inside = t.client.lock(&t.name).run(|grant| Ok::<_, Error>((grant.is_held(), t.free(&t.other))));
        assert_eq!(inside.unwrap(), (true, false));
        assert!(t.free(&t.other));
    }),
    (2, |t| {
        let result: Result<(), Own> = t.client.lock(&t.name).run(|_| Err(Own::OfTheBlock));
        assert!(matches!(result, Err(Own::OfTheBlock)), "{result:?}");
        let panics = std::panic::AssertUnwindSafe(|| {
            t.client.lock(&t.name).run(|_| -> Result<(), Error> { std::panic::resume_unwind(Box::new(7)) })
        });
        assert_eq!(*std::panic::catch_unwind(panics).unwrap_err().downcast::<i32>().unwrap(), 7);
        assert!(t.free(&t.other));
    }),
    (3, |t| {
        let early = || -> Result<&str, Error> {
            let _grant = t.client.acquire(&t.name)?;
            for _ in 0.. {
                return Ok("early");
            }
            Ok("late")
        };
        assert_eq!(early().unwrap(), "early");
        assert!(t.free(&t.other));
    }),
    (4, |t| {
        // The task of a future that holds the lock is dropped.
        let mut task = Box::pin(async {
            let _grant = t.lock(&t.client).acquire_async().await.unwrap();
            std::future::pending::<()>().await;
        });
        crate::support::until("held", || poll(&mut task).is_pending() && t.client.stats().unwrap().held == 1);
        drop(task); // which releases in the background
        crate::support::until("free", || t.free(&t.other));
    }),
    (5, |t| {
        let grant = t.acquire(&t.client);
        grant.release().unwrap();
        let next = t.acquire(&t.other);
        assert!(next.is_held());
    }),
    (6, |t| {
        // The compiler refuses a second release of a grant: see the package's documentation.
        block_on(t.acquire(&t.client).release_async()).unwrap();
        let next = t.acquire(&t.other);
        assert!(next.is_held() && !t.free(&t.client));
    }),
    (7, |t| {
        let grant = t.lock(&t.client).try_acquire().unwrap().unwrap();
        assert!(grant.is_held() && !grant.token().unwrap().is_empty() && grant.name() == t.name);
        assert!(grant.remaining() > Duration::ZERO && grant.loss().is_none());
    }),
    (8, |t| {
        let _grant = t.acquire(&t.other);
        assert!(t.lock(&t.client).try_acquire().unwrap().is_none());
        fails(t.lock(&t.client).timeout(Duration::ZERO).acquire(), -1);
    }),
    (9, |t| {
        let _grant = t.acquire(&t.other);
        let begun = Instant::now();
        let lock = t.client.lock(&t.name).timeout(Duration::from_millis(300));
        fails(lock.acquire(), -2);
        fails(block_on(lock.acquire_async()), -2);
        assert!(begun.elapsed() >= Duration::from_millis(599));
    }),
    (10, |t| {
        let grant = t.acquire(&t.other);
        thread::scope(|scope| {
            let wait = scope.spawn(|| t.client.acquire(&t.name).unwrap().is_held());
            t.waits(&t.client, 1);
            grant.release().unwrap();
            assert!(wait.join().unwrap());
        });
    }),
    (11, |t| {
        let grant = t.acquire(&t.other);
        let waits: Vec<_> = (0..3).map(|_| t.lock(&t.client).acquire_async()).collect();
        t.waits(&t.client, 3);
        grant.release().unwrap();
        let mut last = 0;
        for wait in waits {
            let grant = block_on(wait).unwrap();
            assert!(grant.fence() > last);
            last = grant.fence();
        }
    }),
    (12, |t| {
        let grant = t.acquire(&t.other);
        let mut wait = t.client.lock(&t.name).acquire_async();
        assert!(matches!(poll(&mut wait), Poll::Pending));
        t.waits(&t.client, 1);
        drop(wait);
        t.waits(&t.client, 0);
        grant.release().unwrap();
        t.until_free();
        assert_eq!(t.client.stats().unwrap().held, 0);
    }),
    (13, |t| {
        let client = Client::open_lazy(&crate::support::uri(&t.backend, &[])).unwrap();
        client.stop();
        fails(client.acquire(&t.name), -3);
        fails(block_on(client.lock(&t.name).acquire_async()), -3);
        assert!(client.stats().unwrap().last_answer.is_none());
    }),
    (14, |t| {
        for pause in 0..20 {
            let grant = t.acquire(&t.other);
            let mut wait = t.lock(&t.client).acquire_async();
            t.waits(&t.client, 1);
            let released = grant.release_async();
            thread::sleep(Duration::from_micros(20 * pause));
            let _ = poll(&mut wait);
            drop(wait);
            block_on(released).unwrap();
        }
        t.until_free();
    }),
    (15, |t| {
        let nested = t.client.lock(&t.name).run(|_| {
            fails(t.client.acquire(&t.name), -6);
            fails(t.client.lock(&t.name).run(|_| Ok::<_, Error>(())), -6);
            fails(Client::acquire_all(&[t.client.lock("a"), t.client.lock(&t.name)], None), -6);
            Ok::<_, Error>(())
        });
        nested.unwrap();
        assert!(t.free(&t.client));
    }),
    (16, |t| {
        let one = t.lock(&t.client).shared().acquire().unwrap();
        let two = t.lock(&t.other).shared().acquire().unwrap();
        assert!(!t.free(&t.other));
        one.release().unwrap();
        assert!(!t.free(&t.client));
        two.release().unwrap();
        t.until_free();
    }),
    (17, |t| {
        let grant = t.acquire(&t.client);
        let fence = grant.fence();
        grant.downgrade().unwrap();
        assert!(grant.fence() > fence && grant.is_held() && !t.free(&t.other));
        t.lock(&t.other).shared().acquire().unwrap().release().unwrap();
    }),
    (18, |t| {
        let first = t.lock(&t.client).permits(2).acquire().unwrap();
        let _second = t.lock(&t.other).permits(2).acquire().unwrap();
        assert!(t.lock(&t.other).permits(2).try_acquire().unwrap().is_none());
        let wait = t.lock(&t.other).permits(2).acquire_async();
        first.release().unwrap();
        assert!(block_on(wait).unwrap().is_held());
    }),
    (19, |t| {
        let _grant = t.lock(&t.client).permits(2).acquire().unwrap();
        fails(t.lock(&t.other).permits(3).acquire(), -9);
    }),
    (20, |t| {
        let inside = AtomicBool::new(false);
        let times = AtomicUsize::new(0);
        let rounds = |client: &Client, order: [&str; 3]| {
            let locks: Vec<_> = order.iter().map(|end| client.lock(&format!("{}-{end}", t.name))).collect();
            for _ in 0..10 {
                let grants = Client::acquire_all(&locks, None).unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst) && grants.iter().all(Grant::is_held));
                inside.store(false, Ordering::SeqCst);
                times.fetch_add(1, Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| rounds(&t.client, ["a", "b", "c"]));
            scope.spawn(|| rounds(&t.other, ["c", "a", "b"]));
            scope.spawn(|| rounds(&t.client, ["b", "c", "a"]));
        });
        assert_eq!(times.into_inner(), 30);
    }),
    (21, |t| {
        let locks: Vec<_> = ["-a", "", "-z"].iter().map(|end| t.client.lock(&format!("{}{end}", t.name))).collect();
        let _grant = t.acquire(&t.other);
        fails(Client::acquire_all(&locks, Some(Duration::from_millis(300))), -2);
        fails(Client::acquire_all(&locks, Some(Duration::ZERO)), -1);
        for end in ["-a", "-z"] {
            assert!(t.other.lock(&format!("{}{end}", t.name)).try_acquire().unwrap().is_some());
        }
    }),
    (22, |t| {
        let locks = [t.client.lock(&t.name), t.client.lock("x"), t.client.lock(&t.name)];
        fails(Client::acquire_all(&locks, None), -6);
    }),
    (23, |t| {
        let grant = t.lock(&t.client).fixed().lease(Duration::from_secs(5)).acquire().unwrap();
        let fence = grant.fence();
        grant.extend(Some(Duration::from_secs(60))).unwrap();
        assert!(grant.remaining() > Duration::from_secs(30) && grant.fence() == fence);
    }),
    (24, |t| {
        let grant = t.acquire(&t.open(&[("lease", "800ms")]));
        thread::sleep(Duration::from_millis(2500));
        assert!(grant.is_held() && !t.free(&t.other));
    }),
    (25, |t| {
        let mut last = 0;
        for i in 0..6 {
            let grant = t.acquire(if i % 2 == 0 { &t.client } else { &t.other });
            assert!(grant.fence() > last);
            last = grant.fence();
        }
    }),
];
