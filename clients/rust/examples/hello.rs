//! The program of the README.

use std::time::Duration;

use fairlock::Locks;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Locks::new(&redis::Client::open(&std::env::var("URL").unwrap()[..])?)?;

    let held = locks
        .lock("orders")
        .wait(Duration::from_secs(30))
        .lease(Duration::from_secs(10))
        .acquire()?;
    println!("working with token {}", held.token());
    held.release()?;

    println!("free again");
    Ok(())
}
