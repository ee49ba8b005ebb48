//! How a program that uses locks is tested: on a server of the test's own, without the module.

use std::process::{Child, Command};
use std::time::Duration;

use fairlock::{Error, Locks};

fn main() {
    let (mut process, url) = server();
    let client = redis::Client::open(&*url).unwrap();
    let locks = Locks::new(&client).unwrap();

    let held = locks
        .lock("orders")
        .lease(Duration::from_secs(3))
        .acquire()
        .unwrap();
    let late = locks
        .lock("orders")
        .wait(Duration::from_millis(50))
        .acquire();
    assert!(matches!(late, Err(Error::NotInTime(..))));

    // The lock is taken away.
    let mut connection = client.get_connection().unwrap();
    redis::cmd("DEL")
        .arg("orders")
        .exec(&mut connection)
        .unwrap();
    assert!(held.wait_lost(Duration::from_secs(30)).is_some());

    drop(locks);
    process.kill().unwrap();
    process.wait().unwrap();
}

/// A server for one test, and its address. Locks waits until it has started.
fn server() -> (Child, String) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let mut server = Command::new("redis-server");
    let server = server
        .args(["--port", &port, "--save", ""])
        .stdout(std::process::Stdio::null());
    (server.spawn().unwrap(), format!("redis://127.0.0.1:{port}"))
}
