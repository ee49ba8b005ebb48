//! The program of the README.

use std::time::Duration;

use fairlock_client::{Locks, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Locks::new(redis::Client::open(&std::env::var("URL")?[..])?)?;

    let options = Options {
        wait: Some(Duration::from_secs(30)),
        lease: Duration::from_secs(10),
        ..locks.options()
    };
    let held = locks.acquire("orders", options).wait()?; // Without `let held =` it would be released right here.
    println!("working with token {}", held.token());
    held.release().wait()?; // A guard that is dropped releases, too, but cannot say that the lock was lost.

    println!("free again");
    Ok(())
}
