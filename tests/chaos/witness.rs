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

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: Micros, on_disk: bool, queued: Micros) -> Look {
        let server = Process {
            pid: 1,
            on_disk,
            queued,
        };
        Look {
            at,
            server: Some(server),
        }
    }

    #[test]
    fn only_time_in_which_server_or_clients_could_not_run_is_a_stall() {
        let found = |last, now| stall(last, now).map(|stall| (stall.from, stall.to));
        // It runs, or has nothing to do.
        assert_eq!(found(look(0, false, 0), look(5300, false, 200)), None);
        assert_eq!(found(look(0, true, 0), look(5300, false, 200)), None);
        // It waits for the disk, or for a processor.
        assert_eq!(
            found(look(0, true, 0), look(5300, true, 0)),
            Some((0, 5300))
        );
        assert_eq!(
            found(look(0, false, 7000), look(5300, false, 10_000)),
            Some((2300, 5300))
        );
        // The witness is late itself, and so are clients.
        assert_eq!(
            found(look(0, false, 0), look(90_000, false, 0)),
            Some((5000, 90_000))
        );
    }

    #[test]
    fn a_server_that_was_started_anew_is_not_compared_with_the_last_one() {
        let mut other = look(5300, false, 4000);
        if let Some(server) = &mut other.server {
            server.pid = 2;
        }
        assert_eq!(stall(look(0, false, 0), other), None);
    }

    #[test]
    fn the_kernel_is_understood() {
        let this = Process::of(std::process::id());
        assert!(this.is_some_and(|this| this.pid == std::process::id()));
        assert_eq!(Process::of(0), None);
    }
}
