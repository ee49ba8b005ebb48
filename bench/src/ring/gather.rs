//! Brings the clients of a ring together: connects them, and lets them go on until all but the holder wait.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::blocking::Blocking;
use super::retrying::Retrying;
use super::waiting::Waiting;
use crate::bench::{Bench, float};
use crate::crowd::{Crowd, Member};
use crate::server::Server;

/// Clients blocked in `FAIRLOCK.ACQUIRE`.
pub fn fairlock(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Blocking>> {
    let members = (0..clients).map(|number| Blocking::fairlock(key, number));
    let mut crowd = Crowd::connect(server.address(), members)?;
    all_wait(&mut crowd, clients - 1, || server.info("blocked_clients"))?;
    Ok(crowd)
}

/// Clients blocked in BLPOP on a list with one token.
pub fn token(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Blocking>> {
    let members = (0..clients).map(|_| Blocking::token(key));
    let mut crowd = Crowd::connect(server.address(), members)?;
    all_wait(&mut crowd, clients, || server.info("blocked_clients"))?;
    let _: i64 = server.run(&[b"RPUSH", key.as_bytes(), b"token"])?;
    Ok(crowd)
}

/// Clients that retry. The server does not know of them until they ask.
pub fn retrying(server: &Server, key: &str, clients: u32) -> Result<Crowd<Retrying>> {
    let members = (0..clients).map(|number| Retrying::new(key, number, clients));
    Crowd::connect(server.address(), members)
}

/// Clients that wait by ENQUEUE.
pub fn polling(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Waiting>> {
    queued(server, key, clients, |number| Waiting::polling(key, number))
}

/// Clients that wait by the script of ENQUEUE.
pub fn by_scripts(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Waiting>> {
    queued(server, key, clients, |number| {
        Waiting::by_scripts(key, number)
    })
}

/// Clients of Redisson's scripts.
pub fn redisson(
    bench: &Bench,
    server: &mut Server,
    key: &str,
    clients: usize,
) -> Result<Crowd<Waiting>> {
    queued(server, key, clients, |number| {
        Waiting::redisson(&bench.scripts, key, number)
    })
}

fn queued(
    server: &mut Server,
    key: &str,
    clients: usize,
    member: impl Fn(usize) -> Waiting,
) -> Result<Crowd<Waiting>> {
    let mut crowd = Crowd::connect(server.address(), (0..clients).map(member))?;
    let queue = format!("redisson_lock_queue:{{{key}}}");
    all_wait(&mut crowd, clients - 1, || {
        server.run(&[b"LLEN", queue.as_bytes()])
    })?;
    Ok(crowd)
}

/// Lets a crowd go on until a number of clients wait.
fn all_wait<M: Member>(
    crowd: &mut Crowd<M>,
    wanted: usize,
    mut waiting: impl FnMut() -> Result<f64>,
) -> Result<()> {
    let end = Instant::now() + Duration::from_mins(2);
    while waiting()? < float(wanted as u64) {
        crowd.run(Duration::from_millis(50))?;
        if Instant::now() > end {
            bail!("not all clients have come in two minutes");
        }
    }
    Ok(())
}
