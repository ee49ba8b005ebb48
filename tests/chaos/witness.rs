//! Watches whether the machine lets the server and its clients run: when the machine or its disk is busy, all clients
//! wait, and the server is not to blame. The kernel and this thread's own clock tell, because the server could be the
//! cause.

use std::fs;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::history::{Micros, Stall};
use crate::world::World;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(5);
/// Shorter delays do not count as stalls; microseconds.
const LEAST: Micros = 1000;

/// What the kernel says of a process, of its main thread that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    /// It waits for the disk, and for nothing else.
    on_disk: bool,
    /// How long, since it began, it could have run and had no processor.
    queued: Micros,
}

/// One look.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Micros,
    /// Unless it is being restarted.
    server: Option<Process>,
}

/// Watches until the world is closed.
pub fn start(world: &Arc<World>) -> JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let look = || Look {
            at: world.recorder.now(),
            server: Process::of(world.server()),
        };
        let mut last = look();
        while !world.is_closing() {
            thread::sleep(EVERY);
            let now = look();
            if let Some(stall) = stall(last, now) {
                world.recorder.stall(stall);
            }
            last = now;
        }
    })
}

impl Process {
    /// `None` without such a process.
    fn of(pid: u32) -> Option<Self> {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        let stat = read("stat")?;
        // Its name stands in brackets and may contain anything; then comes its state.
        let (_, state) = stat.rsplit_once(") ")?;
        let schedule = read("schedstat")?;
        let nanoseconds = schedule.split(' ').nth(1)?.parse::<Micros>().ok()?;
        Some(Self {
            pid,
            on_disk: state.starts_with('D'),
            queued: nanoseconds / 1000,
        })
    }
}

/// How much of the time between two looks nothing could be done, as its end.
fn stall(last: Look, now: Look) -> Option<Stall> {
    let between = now.at.saturating_sub(last.at);
    let late = between.saturating_sub(u64::try_from(EVERY.as_micros()).unwrap_or(Micros::MAX));
    let servers = match (last.server, now.server) {
        (Some(last), Some(now)) if last.pid == now.pid => {
            if last.on_disk && now.on_disk {
                between
            } else {
                now.queued.saturating_sub(last.queued)
            }
        }
        _ => 0,
    };
    let idle = late.max(servers).min(between);
    (idle >= LEAST).then_some(Stall {
        from: now.at - idle,
        to: now.at,
    })
}
