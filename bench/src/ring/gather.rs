//! Brings the clients of a ring together: connects them, and lets them go on until all but the
//! holder wait.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::blocking::{Fairlock, Token};
use super::polling::Polling;
use super::redisson::Redisson;
use super::relay::{self, Relay};
use super::retrying::Retrying;
use crate::bench::Bench;
use crate::crowd::{Crowd, Member};
use crate::server::Server;

/// Clients blocked in `FAIRLOCK.ACQUIRE`.
pub fn fairlock(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Fairlock>> {
    limited(server, key, clients, 1, &[])
}

/// Clients blocked in `FAIRLOCK.ACQUIRE` with more words, by which at most a given number hold the lock at a time.
pub fn limited(
    server: &mut Server,
    key: &str,
    clients: usize,
    limit: usize,
    words: &[&[u8]],
) -> Result<Crowd<Fairlock>> {
    server.wait("blocked_clients", |blocked| blocked < 0.5)?;
    let members = (0..clients).map(|number| Fairlock::asking(key, number, words));
    let mut crowd = Crowd::connect(server.address(), members)?;
    all_wait(&mut crowd, clients - limit, || {
        server.info("blocked_clients")
    })?;
    Ok(crowd)
}

/// Clients blocked in BLPOP on a list with one token.
pub fn token(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Token>> {
    server.wait("blocked_clients", |blocked| blocked < 0.5)?;
    let members = (0..clients).map(|_| Token::new(key));
    let crowd = Crowd::connect(server.address(), members)?;
    server.wait("blocked_clients", |blocked| blocked >= float(clients))?;
    let _: i64 = server.run(&[b"RPUSH", key.as_bytes(), b"token"])?;
    Ok(crowd)
}

/// Clients that retry. The server does not know of them until they ask.
pub fn retrying(server: &Server, key: &str, clients: usize) -> Result<Crowd<Retrying>> {
    let key = format!("{key}:retry");
    let clients = u32::try_from(clients)?;
    let members = (0..clients).map(|number| Retrying::new(&key, number, clients));
    Crowd::connect(server.address(), members)
}

/// Clients that wait by ENQUEUE.
pub fn polling(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Polling>> {
    let members = (0..clients).map(|number| Polling::new(key, number));
    queued(server, key, clients, members)
}

/// Clients that wait by the script of ENQUEUE.
pub fn by_scripts(server: &mut Server, key: &str, clients: usize) -> Result<Crowd<Polling>> {
    let members = (0..clients).map(|number| Polling::by_scripts(key, number));
    queued(server, key, clients, members)
}

/// Clients of Redisson's scripts.
pub fn redisson(
    bench: &Bench,
    server: &mut Server,
    key: &str,
    clients: usize,
) -> Result<Crowd<Redisson>> {
    let members = (0..clients).map(|number| Redisson::new(&bench.scripts, key, number));
    queued(server, key, clients, members)
}

/// Clients that pass a message round.
pub fn relay(server: &mut Server, clients: usize) -> Result<Crowd<Relay>> {
    let members = (0..clients).map(|number| Relay::new(number, clients));
    let mut crowd = Crowd::connect(server.address(), members)?;
    all_wait(&mut crowd, clients, || server.info("pubsub_channels"))?;
    let _: i64 = server.run(&[b"PUBLISH", relay::channel(0).as_bytes(), b"0"])?;
    Ok(crowd)
}

fn queued<M: Member>(
    server: &mut Server,
    key: &str,
    clients: usize,
    members: impl Iterator<Item = M>,
) -> Result<Crowd<M>> {
    let mut crowd = Crowd::connect(server.address(), members)?;
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
    while waiting()? < float(wanted) {
        crowd.run(Duration::from_millis(50))?;
        if Instant::now() > end {
            bail!("not all clients have come in two minutes");
        }
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // Far below 2^53.
fn float(number: usize) -> f64 {
    number as f64
}
