//! Whether the server runs Redisson's scripts natively.

use fairlock_testing::Server;

/// What `fairlock.intercept-eval` is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interception {
    /// Redisson's scripts run as Lua.
    Off,
    /// Redisson's scripts run natively.
    On,
}

/// Every setting that the tests run with.
pub const INTERCEPTIONS: &[Interception] = &[Interception::Off, Interception::On];

impl Interception {
    /// A server with the module and this setting.
    pub fn server(self, options: &[&str]) -> Server {
        Server::with(&[&self.options()[..], options].concat())
    }

    /// The server's options for it.
    pub fn options(self) -> [&'static str; 2] {
        let setting = match self {
            Self::Off => "no",
            Self::On => "yes",
        };
        ["--fairlock.intercept-eval", setting]
    }
}
