//! What the rules promise, over the state of a lock in memory.
//!
//! A [`World`](world::World) is one lock, the server around it, and its clients: a model of what they were told, which
//! never asks the rules. After each step the two are compared; where they differ, a promise is broken. Two drivers take
//! the steps:
//! - [`search`]: all that can happen in small worlds, where a millisecond is the least that counts. `cargo test` visits
//!   the first tens of thousands of states of each, `make model` millions: all there are, where it says `complete`;
//! - [`random`]: random steps in a large one, 1,000 sequences of them, 100,000 by `make properties`.
//!
//! Safety is checked in every world: the holders are those that clients know as such, never more than each of them
//! tolerates, and none ends but by its own release, lease, session or break; tokens grow; no owner is served before a
//! living waiter that joined earlier; every blocked request has its place and gets one answer; only a polling head in
//! its turn waits for a lock that it can have, and no waiter waits behind the dead; scripts would drop no living
//! head; and the server knows when to look again. Progress is checked at the end of a search: from every world,
//! silence leads to an empty queue, or to holders whose connections are open and that leave no room for the head.
//!
//! - [`memory`]: the state; [`scope`]: what a world has in it; [`action`]: what can happen next;
//! - [`steps`], [`scripts`], [`server`]: what a server does with the rules then;
//! - [`oracle`], [`holders`], [`life`]: what clients were told;
//! - [`checks`], [`scores`]: the promises; [`canon`]: which worlds are the same;
//! - [`examples`]: what the drivers do not try.

mod action;
mod canon;
mod checks;
mod examples;
mod holders;
mod life;
pub mod memory;
mod oracle;
mod random;
mod scope;
mod scores;
mod scripts;
mod search;
mod server;
mod steps;
mod world;
