//! What others do to a lock's keys: plain commands, scripts, other modules.

mod deadlines;
mod fields;
mod not_a_lock;
mod other_database;
mod other_module;
mod queue;
mod ways_to_become_free;
