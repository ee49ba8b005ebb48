//! Brings the clients of a ring together: connects them, and lets them go on until all but the holder wait.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::KEY;
use super::blocking::Blocking;
use super::retrying::Retrying;
use super::waiting::Waiting;
use crate::crowd::Crowd;
use crate::server::Server;

/// A way to bring so many clients together.
pub type Gather = fn(&mut Server, u32) -> Result<Crowd>;

/// Clients blocked in `FAIRLOCK.ACQUIRE`.
pub fn fairlock(server: &mut Server, clients: u32) -> Result<Crowd> {
    let members = (0..clients).map(Blocking::fairlock);
    let crowd = Crowd::connect(server.address(), members)?;
    all_wait(crowd, clients - 1, || server.blocked())
}

/// Clients blocked in BLPOP on a list with one token.
pub fn token(server: &mut Server, clients: u32) -> Result<Crowd> {
    let members = (0..clients).map(|_| Blocking::token());
    let crowd = Crowd::connect(server.address(), members)?;
    let crowd = all_wait(crowd, clients, || server.blocked())?;
    let _: i64 = server.run(&[b"RPUSH", KEY.as_bytes(), b"token"])?;
    Ok(crowd)
}

/// Clients that retry. The server does not know of them until they ask.
pub fn retrying(server: &mut Server, clients: u32) -> Result<Crowd> {
    let members = (0..clients).map(|number| Retrying::new(number, clients));
    Crowd::connect(server.address(), members)
}

/// Clients that wait by ENQUEUE.
pub fn polling(server: &mut Server, clients: u32) -> Result<Crowd> {
    queued(server, clients, Waiting::polling)
}

/// Clients that wait by the script of ENQUEUE.
pub fn by_scripts(server: &mut Server, clients: u32) -> Result<Crowd> {
    queued(server, clients, Waiting::by_scripts)
}

/// Clients of Redisson's scripts.
pub fn redisson(server: &mut Server, clients: u32) -> Result<Crowd> {
    queued(server, clients, Waiting::redisson)
}

fn queued(server: &mut Server, clients: u32, member: impl Fn(u32) -> Waiting) -> Result<Crowd> {
    let crowd = Crowd::connect(server.address(), (0..clients).map(member))?;
    let queue = format!("redisson_lock_queue:{{{KEY}}}");
    all_wait(crowd, clients - 1, || {
        server.run(&[b"LLEN", queue.as_bytes()])
    })
}

/// Lets a crowd go on until a number of clients wait.
fn all_wait(
    mut crowd: Crowd,
    wanted: u32,
    mut waiting: impl FnMut() -> Result<u32>,
) -> Result<Crowd> {
    let end = Instant::now() + Duration::from_mins(2);
    while waiting()? < wanted {
        crowd.run(Duration::from_millis(50))?;
        if Instant::now() > end {
            bail!("not all clients have come in two minutes");
        }
    }
    Ok(crowd)
}
