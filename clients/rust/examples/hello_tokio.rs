//! The second program of the README.

use std::time::Duration;

use fairlock::aio::Locks;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Locks::new(&redis::Client::open(&std::env::var("URL").unwrap()[..])?)?;

    let held = locks
        .lock("orders")
        .wait(Duration::from_secs(30))
        .lease(Duration::from_secs(10))
        .acquire()
        .await?;
    println!("working with token {}", held.token());
    held.release().await?; // Not by a drop at the end of main: the runtime ends before that has released.

    println!("free again");
    Ok(())
}
