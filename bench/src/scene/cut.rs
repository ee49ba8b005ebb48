//! Thousands of blocked clients whose connections break at once.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::bench::Bench;
use crate::resp::encoded;
use crate::server::{Kind, Server};

/// A process that holds connections; killed when dropped.
pub struct Crowd(Child);

impl Crowd {
    /// Starts it; its clients block in this way.
    pub fn start(server: &Server, manner: &str, number: u32) -> Result<Self> {
        let program = std::env::current_exe()?;
        let (address, number) = (server.address().to_string(), number.to_string());
        let child = Command::new(program)
            .args(["hold", &address, manner, &number])
            .stdin(Stdio::null())
            .spawn()
            .context("starting the clients")?;
        Ok(Self(child))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Cuts blocked clients off: milliseconds until all are gone, and of the longest PING.
pub fn cut(bench: &Bench, kind: Kind, number: u32) -> Result<(f64, f64)> {
    let mut server = bench.server(kind, &[])?;
    let manner = if kind == Kind::Module {
        let _: i64 = server.run(&[b"FAIRLOCK.ACQUIRE", b"lock", b"holder"])?;
        "acquire"
    } else {
        "blpop"
    };
    let crowd = Crowd::start(&server, manner, number)?;
    server.wait("blocked_clients", |blocked| blocked >= f64::from(number))?;
    beside_pings(&mut server, |server| {
        drop(crowd);
        server.wait("blocked_clients", |blocked| blocked < 0.5)?;
        queue_empty(server)
    })
}

/// Waits until the lock's queue is empty.
pub fn queue_empty(server: &mut Server) -> Result<()> {
    let mut waiting = 1;
    while waiting > 0 {
        waiting = server.run(&[b"LLEN", b"redisson_lock_queue:{lock}"])?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Does something, and waits until all of it is done: milliseconds until it is, and of the longest PING.
pub fn beside_pings(
    server: &mut Server,
    act: impl FnOnce(&mut Server) -> Result<()>,
) -> Result<(f64, f64)> {
    let stop = AtomicBool::new(false);
    let address = server.address();
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| longest_ping(address, &stop));
        // Let it get going.
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        let acted = act(server);
        let elapsed = start.elapsed();
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        let longest = pings.join().map_err(|_| anyhow::anyhow!("PING failed"))??;
        acted?;
        Ok((elapsed.as_secs_f64() * 1e3, longest.as_secs_f64() * 1e3))
    })
}

/// The longest PING until it is to stop.
fn longest_ping(address: std::net::SocketAddr, stop: &AtomicBool) -> Result<Duration> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let mut connection = client.get_connection()?;
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        redis::cmd("PING").query::<String>(&mut connection)?;
        longest = longest.max(start.elapsed());
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(longest)
}

/// What the process of the clients does: it connects them, blocks them, and waits to be killed.
pub fn hold(address: std::net::SocketAddr, manner: &str, number: u32) -> Result<()> {
    /// Long enough that all are blocked before the first times out.
    const WAIT: Duration = Duration::from_secs(6);
    let mut connections = Vec::new();
    for _ in 0..number {
        connections.push(std::net::TcpStream::connect(address)?);
    }
    let start = Instant::now();
    for (index, connection) in connections.iter_mut().enumerate() {
        let owner = format!("owner:{index}");
        let command = if manner == "acquire" {
            encoded(&[b"FAIRLOCK.ACQUIRE", b"lock", owner.as_bytes()])
        } else if manner == "wait" {
            let left = WAIT.saturating_sub(start.elapsed()).as_millis().max(1);
            let left = left.to_string();
            let [lock, owner] = [&b"lock"[..], owner.as_bytes()];
            encoded(&[b"FAIRLOCK.ACQUIRE", lock, owner, b"WAIT", left.as_bytes()])
        } else {
            encoded(&[b"BLPOP", b"lock", b"0"])
        };
        std::io::Write::write_all(connection, &command)?;
    }
    loop {
        std::thread::park();
    }
}
