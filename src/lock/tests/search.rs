//! Walks through all worlds that can be reached, breadth first.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

use super::action::{Action, Step};
use super::canon::Key;
use super::holders::have_room;
use super::life::Life;
use super::oracle::Oracle;
use super::scope::{Fault, Scope};
use super::world::World;

/// A world that was reached.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "they have nothing to do with each other"
)]
struct Node {
    /// The world before and the step that led here; the first world has none.
    from: Option<(u32, Step)>,
    /// The world that follows if no client acts; none if that was not explored.
    silence: Option<u32>,
    /// Nothing is expected to happen in silence.
    quiet: bool,
    /// A waiter waits that could have the lock.
    idle: bool,
    /// All waiters have been woken, and have until the running turn ends.
    all_woken: bool,
    /// The server has something to do, for which no time has to pass.
    is_busy: bool,
    depth: u32,
}

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub states: usize,
    pub transitions: usize,
    /// Steps to the farthest world.
    pub depth: u32,
    /// Whether all reachable worlds were explored.
    pub complete: bool,
    /// Longest silence until the queue is empty, in steps; each is a millisecond or a sweep.
    pub silence: u32,
    /// The longest part of it in which the lock was free and had waiters.
    pub idle: u32,
}

/// All worlds reached so far.
pub struct Explorer<'s> {
    scope: &'s Scope,
    nodes: Vec<Node>,
    known: HashMap<Key, u32>,
    ahead: VecDeque<(u32, World)>,
    transitions: usize,
}

impl<'s> Explorer<'s> {
    /// Looks at a limited number of worlds of a scope. An error is the shortest way to a broken promise.
    pub fn explore(scope: &'s Scope, limit: usize) -> Result<Report, String> {
        let mut explorer = Self {
            scope,
            nodes: Vec::new(),
            known: HashMap::new(),
            ahead: VecDeque::new(),
            transitions: 0,
        };
        explorer.reach(World::new(scope), None);
        let mut complete = true;
        while let Some((from, world)) = explorer.ahead.pop_front() {
            if explorer.nodes.len() >= limit {
                complete = false;
                break;
            }
            explorer.expand(from, &world)?;
        }
        let (silence, idle) = explorer.longest_silence()?;
        Ok(Report {
            states: explorer.nodes.len(),
            transitions: explorer.transitions,
            depth: explorer.nodes.last().map_or(0, |node| node.depth),
            complete,
            silence,
            idle,
        })
    }

    /// Notes a world. Returns its number.
    fn reach(&mut self, world: World, from: Option<(u32, Step)>) -> u32 {
        let key = world.key(self.scope);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let number = u32::try_from(self.nodes.len()).expect("fewer worlds");
        let depth = from.map_or(0, |(from, _)| self.nodes[from as usize].depth + 1);
        self.nodes.push(Node {
            from,
            silence: None,
            quiet: world.is_quiet(),
            idle: world.is_idle(),
            all_woken: world.are_all_woken(),
            is_busy: world.is_noted() || world.is_overdue(),
            depth,
        });
        self.known.insert(key, number);
        self.ahead.push_back((number, world));
        number
    }

    fn expand(&mut self, from: u32, world: &World) -> Result<(), String> {
        for action in world.actions(self.scope) {
            let mut step = Step::of(action);
            let handed_over = self.take(from, world, step)?;
            if handed_over && self.scope.has(Fault::Untold) && world.undelivered.len() < 2 {
                step.undelivered = true;
                self.take(from, world, step)?;
            }
        }
        Ok(())
    }

    /// Takes one step. Returns whether it has handed the lock over.
    fn take(&mut self, from: u32, world: &World, step: Step) -> Result<bool, String> {
        self.transitions += 1;
        let (after, handed_over) = world.after(step).map_err(|broken| {
            let way = self.way(from);
            self.tell(&way, Some(step), &broken)
        })?;
        let number = self.reach(after, Some((from, step)));
        if step == Step::of(Action::Silence(1)) {
            self.nodes[from as usize].silence = Some(number);
        }
        Ok(handed_over)
    }

    /// The steps that led to a world.
    fn way(&self, mut number: u32) -> Vec<Step> {
        let mut way = Vec::new();
        while let Some((from, step)) = self.nodes[number as usize].from {
            way.push(step);
            number = from;
        }
        way.reverse();
        way
    }

    /// A broken promise, and how it came to that.
    fn tell(&self, way: &[Step], last: Option<Step>, broken: &str) -> String {
        let mut story = format!("{}: {broken}\n", self.scope.name);
        let mut world = World::new(self.scope);
        for (number, step) in way.iter().chain(&last).enumerate() {
            let _ = writeln!(story, "{:3}. {step:?}", number + 1);
            if let Ok((after, _)) = world.after(*step) {
                world = after;
                let _ = writeln!(story, "     {}", world.summary());
            }
        }
        story
    }

    /// Progress: once no client acts, the queue becomes empty sooner or later, or the holder stays; and a row of dead
    /// waiters costs one turn. Returns the longest time that this takes, and the longest part of it in which the lock
    /// is free.
    fn longest_silence(&self) -> Result<(u32, u32), String> {
        let mut ends = vec![End::Unknown; self.nodes.len()];
        let (mut longest, mut idlest) = (0, 0);
        for start in 0..self.nodes.len() {
            let (trail, mut length, mut idle) = self.follow(start, &mut ends)?;
            for passed in trail.into_iter().rev() {
                let node = &self.nodes[passed];
                length += 1;
                let time = u32::from(!node.is_busy);
                idle = if node.idle { idle + time } else { 0 };
                ends[passed] = End::After { length, idle };
                if node.all_woken && u64::from(idle) > self.scope.rules.turn {
                    return Err(self.tell_of(passed, "then the dead cost more than one turn"));
                }
                longest = longest.max(length);
                idlest = idlest.max(idle);
            }
        }
        Ok((longest, idlest))
    }

    /// Follows the silence from a world until its end, or until a world of which the end is known:
    /// the worlds on the way, and how long it takes from there.
    fn follow(&self, start: usize, ends: &mut [End]) -> Result<(Vec<usize>, u32, u32), String> {
        let mut trail = Vec::new();
        let mut at = start;
        loop {
            let node = &self.nodes[at];
            match ends[at] {
                End::After { length, idle } => return Ok((trail, length, idle)),
                End::UnderWay => {
                    return Err(
                        self.tell_of(at, "then no client acts, and a waiter waits for ever")
                    );
                }
                End::Unknown if node.quiet => {
                    ends[at] = End::After { length: 0, idle: 0 };
                    return Ok((trail, 0, 0));
                }
                End::Unknown => {
                    ends[at] = End::UnderWay;
                    trail.push(at);
                }
            }
            let Some(next) = node.silence else {
                return Ok((trail, 0, 0));
            };
            at = next as usize;
        }
    }

    fn tell_of(&self, number: usize, broken: &str) -> String {
        let way = self.way(u32::try_from(number).expect("fewer worlds"));
        self.tell(&way, None, broken)
    }
}

/// What is known of the silence that begins in a world.
#[derive(Clone, Copy, Debug)]
enum End {
    Unknown,
    UnderWay,
    /// It ends after `length` steps; in the first `idle` of them the lock is free.
    After {
        length: u32,
        idle: u32,
    },
}

impl World {
    /// Whether silence may go on for ever: the queue is empty, or holders whose connections are open leave no room for
    /// a head whose connection is open as well.
    fn is_quiet(&self) -> bool {
        let Some(head) = self.oracle.queue.first() else {
            return true;
        };
        let stays = self.oracle.holders.iter().filter(|of| !of.bound.is_empty());
        matches!(head.life, Life::Blocked(_)) && !self.is_noted() && !have_room(stays, head.limit)
    }

    /// Whether a waiter waits that could have the lock.
    fn is_idle(&self) -> bool {
        let head = self.oracle.queue.first();
        head.is_some_and(|head| self.oracle.has_room(head.limit, self.now))
    }

    /// Whether all waiters have until the running turn ends.
    fn are_all_woken(&self) -> bool {
        let Some(turn) = self.state.turn.as_ref() else {
            return false;
        };
        let mut queue = self.oracle.queue.iter();
        queue.all(|place| match place.life {
            Life::Polling(until) | Life::Asked(until) => until <= turn.until,
            _ => false,
        })
    }

    /// The lock in a line.
    fn summary(&self) -> String {
        let Oracle {
            holders,
            queue,
            turn,
            ..
        } = &self.oracle;
        let now = self.now.millis();
        format!("{now} | held by {holders:?} | queue {queue:?} | turn {turn:?}")
    }
}

/// How many worlds of each scope the daily run visits.
const DAILY: usize = 40_000;

fn explore(scope: &Scope) {
    let limit = std::env::var("MODEL_STATES").ok();
    let limit = limit.and_then(|limit| limit.parse().ok());
    match Explorer::explore(scope, limit.unwrap_or(DAILY)) {
        Ok(report) => println!("{}: {report:?}", scope.name),
        Err(story) => panic!("{story}"),
    }
}

macro_rules! explore {
    ($($test:ident: $scope:ident,)+) => {
        $(
            #[test]
            fn $test() {
                explore(&super::scope::$scope);
            }
        )+
    };
}

explore! {
    blocking: BLOCKING,
    polling: POLLING,
    mixed: MIXED,
    stalled: STALLED,
    sessions: SESSIONS,
    scripts: SCRIPTS,
    few: FEW,
    found: FOUND,
    crowd: CROWD,
    clock: CLOCK,
    readers: READERS,
    readers_polling: READERS_POLLING,
    limited: LIMITED,
    upgrades: UPGRADES,
    readers_sessions: READERS_SESSIONS,
    readers_scripts: READERS_SCRIPTS,
}
