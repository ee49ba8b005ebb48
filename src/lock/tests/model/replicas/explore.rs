//! All worlds of a scope, breadth first; and random walks through larger ones.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::action::Action;
use super::world::World;
use super::{Promise, Scope};

/// Visits so many worlds for each difference of the clocks on an ordinary day.
const DAILY: usize = 20_000;

/// No promise is broken that the scope keeps.
pub fn explore(scope: &Scope) {
    for ahead in scope.clocks {
        if let Some(story) = search(scope, *ahead, scope.keeps) {
            panic!("{story}");
        }
    }
}

/// The promise is broken sooner or later.
pub fn reach(scope: &Scope, promise: Promise) {
    let mut clocks = scope.clocks.iter();
    let story = clocks.find_map(|ahead| search(scope, *ahead, &[promise]));
    println!("{}", story.expect("a broken promise"));
}

/// The shortest way to a world in which one of the promises is broken.
fn search(scope: &Scope, ahead: i64, promises: &[Promise]) -> Option<String> {
    let limit = std::env::var("MODEL_STATES").ok();
    let limit = limit.and_then(|limit| limit.parse().ok()).unwrap_or(DAILY);
    let first = World::new(scope, ahead);
    let mut known = HashSet::from([key(&first)]);
    let mut nodes: Vec<Option<(usize, Action)>> = vec![None];
    let mut next = VecDeque::from([(0, first)]);
    while nodes.len() < limit
        && let Some((from, world)) = next.pop_front()
    {
        for action in world.actions(scope) {
            let (after, broken) = world.after(action, scope);
            if let Some(promise) = broken.iter().find(|promise| promises.contains(promise)) {
                let mut way = vec![action];
                let mut at = from;
                while let Some((before, action)) = nodes[at] {
                    way.push(action);
                    at = before;
                }
                way.reverse();
                return Some(tell(scope, ahead, *promise, &way));
            }
            if known.insert(key(&after)) {
                next.push_back((nodes.len(), after));
                nodes.push(Some((from, action)));
            }
        }
    }
    let complete = next.is_empty();
    let (name, states) = (scope.name, nodes.len());
    println!("{name}, {ahead} ms: {states} states, complete: {complete}");
    None
}

fn key(world: &World) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(world)
}

/// Takes one of the possible steps after the other. An error is a broken promise.
pub fn walk(scope: &Scope, choices: &[usize]) -> Result<(), String> {
    for ahead in scope.clocks {
        let mut world = World::new(scope, *ahead);
        let mut way = Vec::new();
        for choice in choices {
            let actions = world.actions(scope);
            let Some(action) = actions.get(choice % actions.len().max(1)) else {
                break;
            };
            way.push(*action);
            let (after, broken) = world.after(*action, scope);
            if let Some(promise) = broken.iter().find(|promise| scope.keeps.contains(promise)) {
                return Err(tell(scope, *ahead, *promise, &way));
            }
            world = after;
        }
    }
    Ok(())
}

/// A broken promise, and how it came to that.
fn tell(scope: &Scope, ahead: i64, promise: Promise, way: &[Action]) -> String {
    let Scope { name, mutation, .. } = scope;
    let mut story = format!("{name}, {ahead} ms, {mutation:?}: {promise:?} is broken\n");
    let mut world = World::new(scope, ahead);
    for (number, action) in way.iter().enumerate() {
        world = world.after(*action, scope).0;
        let _ = writeln!(story, "{:3}. {action:?}\n     {world:?}", number + 1);
    }
    story
}
