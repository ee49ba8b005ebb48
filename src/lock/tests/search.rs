//! Walks through all worlds that can be reached, breadth first.

use std::collections::{HashMap, VecDeque};

use super::action::{Action, Step, story};
use super::holders::have_room;
use super::life::Life;
use super::scope::{Fault, Scope};
use super::world::World;

/// A world that was reached.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The world before and the step that led here; the first world has none.
    from: Option<(u32, Step)>,
    /// The world that follows if no client acts; none if that was not explored.
    silence: Option<u32>,
    is_quiet: bool,
    /// A waiter waits that could have the lock: for how many milliseconds in the next silence.
    idle: Option<u64>,
    /// All waiters have been woken, and have until the running turn ends.
    all_woken: bool,
    depth: u32,
}

/// All worlds reached so far.
struct Explorer<'s> {
    scope: &'s Scope,
    nodes: Vec<Node>,
    known: HashMap<u64, u32>,
    ahead: VecDeque<(u32, World)>,
}

impl<'s> Explorer<'s> {
    /// Looks at a limited number of worlds of a scope. Tells what it saw; an error is the shortest way to a broken
    /// promise.
    fn explore(scope: &'s Scope, limit: usize) -> Result<String, String> {
        let mut explorer = Self {
            scope,
            nodes: Vec::new(),
            known: HashMap::new(),
            ahead: VecDeque::new(),
        };
        explorer.reach(World::new(scope), None);
        while explorer.nodes.len() < limit
            && let Some((from, world)) = explorer.ahead.pop_front()
        {
            explorer.expand(from, &world)?;
        }
        explorer.check_silences()?;
        let (worlds, complete) = (explorer.nodes.len(), explorer.ahead.is_empty());
        let depth = explorer.nodes.last().map_or(0, |node| node.depth);
        Ok(format!(
            "{worlds} worlds, {depth} steps deep, complete: {complete}"
        ))
    }

    /// Notes a world. Returns its number.
    fn reach(&mut self, world: World, from: Option<(u32, Step)>) -> u32 {
        let key = world.key(self.scope);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let number = u32::try_from(self.nodes.len()).expect("fewer worlds");
        let depth = from.map_or(0, |(from, _)| self.nodes[from as usize].depth + 1);
        let time_passes = !world.is_noted() && !world.is_overdue();
        self.nodes.push(Node {
            from,
            silence: None,
            is_quiet: world.is_quiet(),
            idle: world.is_idle().then_some(u64::from(time_passes)),
            all_woken: world.are_all_woken(),
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
            if handed_over && self.scope.has(Fault::Untold) && world.noted.undelivered.len() < 2 {
                step.undelivered = true;
                self.take(from, world, step)?;
            }
        }
        Ok(())
    }

    /// Takes one step. Returns whether it has handed the lock over.
    fn take(&mut self, from: u32, world: &World, step: Step) -> Result<bool, String> {
        let after = world.after(step);
        let (after, handed_over) = after.map_err(|broken| self.tell(from, Some(step), &broken))?;
        let number = self.reach(after, Some((from, step)));
        if step == Step::of(Action::Silence(1)) {
            self.nodes[from as usize].silence = Some(number);
        }
        Ok(handed_over)
    }

    /// A broken promise, and the steps that led to a world, and to that.
    fn tell(&self, mut world: u32, last: Option<Step>, broken: &str) -> String {
        let mut way = Vec::from_iter(last);
        while let Some((from, step)) = self.nodes[world as usize].from {
            way.push(step);
            world = from;
        }
        way.reverse();
        story(broken, &way)
    }

    /// Progress: once no client acts, the queue becomes empty sooner or later, or the holder stays; and a row of dead
    /// waiters costs one turn.
    fn check_silences(&self) -> Result<(), String> {
        // For how long the lock is free beside a waiter in the silence that begins in a world, once that is known.
        let mut idle: Vec<Option<u64>> = vec![None; self.nodes.len()];
        for (start, number) in (0..self.nodes.len()).zip(0..) {
            let (mut trail, mut at) = (Vec::new(), start);
            let mut time = loop {
                let node = &self.nodes[at];
                match (idle[at], node.silence) {
                    (Some(known), _) => break known,
                    (None, Some(next)) if !node.is_quiet => {
                        trail.push(at);
                        at = next as usize;
                    }
                    (None, _) => break 0,
                }
                if trail.len() > 10_000 {
                    let broken = "no client acts any more, and a waiter waits for ever";
                    return Err(self.tell(number, None, broken));
                }
            };
            for passed in trail.into_iter().rev() {
                let node = &self.nodes[passed];
                time = node.idle.map_or(0, |passes| time + passes);
                idle[passed] = Some(time);
                if node.all_woken && time > self.scope.rules.turn {
                    let broken = "no client acts any more, and the dead cost more than one turn";
                    return Err(self.tell(number, None, broken));
                }
            }
        }
        Ok(())
    }
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
}

/// How many worlds of each scope the daily run visits.
const DAILY: usize = 15_000;

fn explore(name: &str, scope: &Scope) {
    let limit = std::env::var("MODEL_STATES").ok();
    let limit = limit.and_then(|limit| limit.parse().ok());
    match Explorer::explore(scope, limit.unwrap_or(DAILY)) {
        Ok(seen) => println!("{name}: {seen}"),
        Err(story) => panic!("{story}"),
    }
}

macro_rules! explore {
    ($($test:ident: $scope:ident,)+) => {
        $(
            #[test]
            fn $test() {
                explore(stringify!($test), &super::scope::$scope);
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
    found: FOUND,
    clock: CLOCK,
    readers: READERS,
    readers_polling: READERS_POLLING,
    limited: LIMITED,
    upgrades: UPGRADES,
    readers_sessions: READERS_SESSIONS,
    readers_scripts: READERS_SCRIPTS,
}
