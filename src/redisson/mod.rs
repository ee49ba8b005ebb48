//! Redisson's fair-lock scripts, recognised and run natively.
//!
//! Redisson takes its fair lock by EVAL and EVALSHA. With `fairlock.intercept-eval yes` a command
//! filter looks at each of them ([`filter`]): a script that is, by its SHA-1, one of those in
//! [`table`] becomes a command of the module, which the server checks as it would have checked the
//! EVAL: authentication, permissions, slots, roles. That command runs the script as a step of the lock's
//! rules ([`run()`], and `lock::scripts`). Reply, holder, queue and messages are those of the script; where the
//! script uses its client's clock, so does the step.
//!
//! The script itself runs as Lua, and raises its own error, where the native form does not apply: keys of
//! other types or other names, arguments that are not integers. It also runs as Lua if the user may not run
//! `FAIRLOCK.EVAL` with these keys. What the native form does, the user could do with FAIRLOCK.ACQUIRE, RELEASE, RENEW
//! and CANCEL on the same lock: other keys, channels and messages than that lock's are left to Lua.
//!
//! The calls in their order: the server calls the filter for every command before it looks the command up.
//! The filter ([`filter`]) replaces the name of an EVAL or EVALSHA that [`recognise`] knows, and leaves the
//! arguments as they are. The server then runs `FAIRLOCK.EVAL`: `command::eval` calls [`run()`], which reads the call
//! and takes the step, and replies in the script's own form.
//!
//! To add a script: `make fingerprints RELEASES=...` writes its digest and its form into [`table`]. A new form
//! is one more in [`forms`]. It reads keys and arguments, and calls a method of `lock::Step` in
//! `src/lock/scripts.rs`. `tests/redisson` compares it with the script, run as Lua.
//!
//! The map, from top to bottom: a file imports only from those below it (`make check`).
//!
//! Which scripts run natively:
//! - [`filter`]: looks at commands before the server does;
//! - [`recognise`]: finds a script by its text or its digest.
//!
//! How they run:
//! - [`run`](mod@run): reads the call, and takes the step;
//! - [`table`]: the scripts, and what each does;
//! - [`forms`]: how each form of script reads a call, and what it does;
//! - [`call`]: the keys and arguments of a call, and what can come of it;
//! - [`stats`]: counts scripts, for INFO.

mod call;
pub mod filter;
mod forms;
pub mod recognise;
mod run;
pub mod stats;
pub mod table;

pub use call::share_a_slot;
pub use run::run;
