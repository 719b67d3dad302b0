//! The cases of bindings/cases.md: dlock-tests BACKEND CASES_MD

mod cases;
mod ends;
mod support;

use std::collections::BTreeMap;
use std::mem::{size_of, MaybeUninit};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::addr_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use support::Tools;

/// The comparison with dlock.h that abi.py has written.
mod abi {
    use super::*;
    use dlock::ffi;
    use std::os::raw::{c_char, c_int, c_void};

    fn size_of_pointed<T>(_: *const T) -> usize {
        size_of::<T>()
    }

    include!(env!("DLOCK_ABI_RS"));

    pub fn check() {
        compare();
    }

    pub fn errors() -> &'static [(i32, &'static str, &'static str)] {
        ERRORS
    }

    pub fn words(caps: u32) -> Vec<&'static str> {
        CAPABILITIES.iter().filter(|(bit, _)| caps & (1 << bit) != 0).map(|(_, word)| *word).collect()
    }
}

type Case = fn(&Tools);

/// These look at the whole process.
const ALONE: [u32; 3] = [34, 38, 39];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments[0] == "child" {
        return ends::child(&arguments[1], &arguments[2], &arguments[3]);
    }
    abi::check();
    let (backend, page) = (&arguments[0], std::fs::read_to_string(&arguments[1]).unwrap());
    let folder = std::env::temp_dir().join(format!("dlock-rust-{}", std::process::id()));
    if backend == "file" && std::env::var_os("DLOCK_TEST_URI_file").is_none() {
        std::env::set_var("DLOCK_TEST_URI_file", format!("file:{}", folder.display()));
    }
    let caps = Tools::new(backend).client.backend().unwrap().1;
    let mut given = abi::words(caps);
    given.extend([backend.as_str(), ""]);
    given.extend(if backend == "mem" { None } else { Some("processes") });
    given.extend(if backend == "file" { None } else { Some("leases") });

    let cases: BTreeMap<u32, Case> = cases::CASES.iter().chain(ends::CASES).copied().collect();
    let mut chosen = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if let Ok(number) = cells[1].parse::<u32>() {
            let title = format!("{number} {}", cells[2]);
            match cases.get(&number) {
                _ if !given.contains(&cells[4]) => println!("skipped  {title}: {backend} has no {}", cells[4]),
                case => chosen.push((number, title, case.copied())),
            }
        }
    }
    let failed = AtomicUsize::new(0);
    let run = |title: &str, case: Option<Case>| {
        let begun = Instant::now();
        let case = case.unwrap_or(|_| panic!("there is no test for this case"));
        let passed = catch_unwind(AssertUnwindSafe(|| case(&Tools::new(backend)))).is_ok();
        println!("{}  {title} ({:.1} s)", if passed { "passed " } else { "FAILED " }, begun.elapsed().as_secs_f32());
        failed.fetch_add(usize::from(!passed), Ordering::Relaxed);
    };
    for (_, title, case) in chosen.iter().filter(|(number, ..)| ALONE.contains(number)) {
        run(title, *case);
    }
    let next = AtomicUsize::new(0);
    let beside: Vec<_> = chosen.iter().filter(|(number, ..)| !ALONE.contains(number)).collect();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some((_, title, case)) = beside.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(title, *case);
                }
            });
        }
    });
    let _ = std::fs::remove_dir_all(&folder);
    assert!(chosen.len() > 30, "the page has no cases");
    std::process::exit(i32::from(failed.into_inner() > 0));
}
