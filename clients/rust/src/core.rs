//! The locks at one server, or at those of one cluster: what acquisitions and held locks share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::hold::Hold;
use crate::lines::{Channel, Line, Server, locked};
use crate::scripts::{Command, Request, Terms};
use crate::{Error, Info, Kind, Options, Result};

/// How long an owner's name and channel are kept for the next wait.
const IDLE: Duration = Duration::from_mins(1);
/// So many names are remembered.
pub(crate) const MAX_NAMES: usize = 10_000;
pub(crate) const WITHOUT: u8 = 1;
pub(crate) const WITH: u8 = 2;

/// Who asks, for a lock that it may hold again: the thread or task, and the lock's name.
pub(crate) type Entry = (Caller, Vec<u8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Thread(std::thread::ThreadId),
    Task(tokio::task::Id),
}

pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) server: Arc<Server>,
    pub(crate) plain: Arc<Line>,
    /// Where WAIT follows, and stalls whoever is behind it.
    pub(crate) confirmed: Arc<Line>,
    pub(crate) ears: Arc<Line>,
    pub(crate) native: AtomicU8,
    pub(crate) state: Mutex<State>,
    pub(crate) closing: watch::Sender<bool>,
    /// Acquisitions under way, and locks that are held.
    work: watch::Sender<usize>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) entered: HashMap<Entry, Weak<Hold>>,
    /// For each lock, the first asks are sent one after the other.
    turns: HashMap<Vec<u8>, Weak<tokio::sync::Mutex<()>>>,
    /// For each lock, owners that have ended cleanly, and whose channels are listened to.
    seats: HashMap<Vec<u8>, Vec<Seat>>,
    /// How many replicas a server had when it was first asked; in a cluster also each lock's server.
    pub(crate) replicas: HashMap<String, usize>,
    pub(crate) nodes: HashMap<Vec<u8>, String>,
}

pub(crate) struct Seat {
    pub(crate) owner: Vec<u8>,
    pub(crate) channel: Arc<Channel>,
    pub(crate) since: Instant,
}

/// Counts as work until it is dropped.
pub(crate) struct Busy(Arc<Core>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.work.send_modify(|work| *work -= 1);
    }
}

impl Core {
    pub(crate) fn new(server: Server, options: Options) -> Arc<Self> {
        let server = Arc::new(server);
        let line = || Line::new(&server, options.command_timeout);
        Arc::new(Self {
            plain: line(),
            confirmed: line(),
            ears: line(),
            server,
            options,
            native: AtomicU8::new(0),
            state: Mutex::default(),
            closing: watch::Sender::new(false),
            work: watch::Sender::new(0),
        })
    }

    /// The connection of a session, which is not given up as long as the lease goes on.
    pub(crate) fn own_line(&self, lease: Duration) -> Arc<Line> {
        Line::new(&self.server, self.options.command_timeout.max(lease))
    }

    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.work.send_modify(|work| *work += 1);
        Busy(self.clone())
    }

    pub(crate) fn native(&self) -> Option<bool> {
        let known = self.native.load(Ordering::Relaxed);
        (known != 0).then_some(known == WITH)
    }

    pub(crate) async fn info(&self, name: &[u8]) -> Result<Info> {
        let (name, owner, options) = (name.to_vec(), Vec::new(), Options::default());
        options.check(&name)?;
        self.check_open()?;
        let terms = Terms {
            name,
            owner,
            options,
        };
        let (command, words) = (Command::Info, Vec::new());
        let (request, longest) = (Request { command, words }, self.options.command_timeout);
        let way = self.plain_way(None);
        let (outcome, _) = self.persist(&way, &terms, &request, longest).await;
        match outcome {
            Ok(reply) => Ok(Info::of(&reply.value)),
            Err(failure) => Err(self.error(&terms, Kind::Refused, Some(failure))),
        }
    }

    /// The turn for the first ask.
    pub(crate) fn turn(&self, name: &[u8]) -> Arc<tokio::sync::Mutex<()>> {
        let turns = &mut locked(&self.state).turns;
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        if turns.len() >= MAX_NAMES {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::default();
        turns.insert(name.to_vec(), Arc::downgrade(&turn));
        turn
    }

    /// An owner that has ended cleanly, and is listened for.
    pub(crate) fn take_seat(&self, name: &[u8]) -> Option<Seat> {
        locked(&self.state).seats.get_mut(name)?.pop()
    }

    pub(crate) async fn give_seat(self: &Arc<Self>, terms: &Terms, seat: Seat, is_clean: bool) {
        if !is_clean || terms.options.owner.is_some() {
            return self.ears.forget(&seat.channel).await;
        }
        let is_first = {
            let seats = &mut locked(&self.state).seats;
            let is_first = seats.is_empty();
            seats.entry(terms.name.clone()).or_default().push(seat);
            is_first
        };
        if is_first {
            tokio::spawn(forget_seats(Arc::downgrade(self)));
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if *self.closing.borrow() {
            Err(closed())
        } else {
            Ok(())
        }
    }

    pub(crate) async fn close(&self) -> Result<()> {
        self.closing.send_replace(true);
        let mut work = self.work.subscribe();
        drop(
            timeout(
                self.options.command_timeout,
                work.wait_for(|work| *work == 0),
            )
            .await,
        );
        for line in [&self.plain, &self.confirmed, &self.ears] {
            line.close().await;
        }
        Ok(())
    }
}

pub(crate) fn closed() -> Error {
    Error::new(Kind::Closed, "Locks is closed")
}

/// Ends when there is none any more.
async fn forget_seats(core: Weak<Core>) {
    loop {
        sleep(IDLE / 6).await;
        let Some(core) = core.upgrade() else { return };
        let mut old = Vec::new();
        let is_last = {
            let seats = &mut locked(&core.state).seats;
            for seats in seats.values_mut() {
                // Those that were used last are at the end.
                let is_old = |seat: &&Seat| seat.since.elapsed() >= IDLE;
                let count = seats.iter().take_while(is_old).count();
                old.extend(seats.drain(..count));
            }
            seats.retain(|_, seats| !seats.is_empty());
            seats.is_empty()
        };
        for seat in old {
            core.ears.forget(&seat.channel).await;
        }
        if is_last {
            return;
        }
    }
}
