//! queue URI FOLDER: does the jobs in a folder, one file each, beside other processes that run this. Each job is done once.

use dlock::Client;
use std::error::Error;
use std::fs;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let client = Client::open(&arguments[1])?;
    for entry in fs::read_dir(&arguments[2])? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let grant = match client.lock(&name).try_acquire()? {
            Some(grant) => grant,
            None => continue, // somebody else is doing it
        };
        if let Ok(job) = fs::read_to_string(entry.path()) {
            print!("{name}: {job}"); // the work
            fs::remove_file(entry.path())?;
        } // else somebody else has done it since the folder was read
        grant.release()?;
    }
    Ok(())
}
