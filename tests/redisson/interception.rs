//! Whether the server runs Redisson's scripts natively.

use crate::server::Server;

/// What `fairlock.intercept-eval` is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interception {
    /// Redisson's scripts run as Lua, on keys that the module watches.
    Off,
    /// Redisson's scripts run natively.
    On,
}

/// Every setting that the tests run with.
pub const INTERCEPTIONS: &[Interception] = &[Interception::Off, Interception::On];

impl Interception {
    /// A server with the module, so set.
    pub fn server(self, options: &[&str]) -> Server {
        let setting = match self {
            Self::Off => "no",
            Self::On => "yes",
        };
        Server::with(&[&["--fairlock.intercept-eval", setting], options].concat())
    }
}
