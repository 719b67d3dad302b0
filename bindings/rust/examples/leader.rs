//! leader URI NAME: one of all the processes that run this leads, until it ends or loses its lock; then another one does.

use dlock::{Client, Error, Grant};
use std::time::Duration;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let client = Client::open(&arguments[1])?;
    loop {
        match client.lock(&arguments[2]).run(lead) {
            Err(error) if error.is_retryable() || matches!(error, Error::Lost(_)) => {
                eprintln!("{error}"); // not the leader, or not any more
                std::thread::sleep(Duration::from_millis(100));
            }
            result => return result,
        }
    }
}

/// Works until somebody else may lead.
fn lead(grant: &Grant) -> Result<(), Error> {
    println!("leads, fence {}", grant.fence());
    while grant.is_held() {
        // One step of the work goes here. What it changes is told the fence.
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
