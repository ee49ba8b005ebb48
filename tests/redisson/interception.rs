//! Whether the server runs Redisson's scripts natively.

use std::time::Duration;

use fairlock_testing::Server;

/// What `fairlock.intercept-eval` is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interception {
    /// Redisson's scripts run as Lua. On a lock that only they use, nothing tells this from a server without the module
    /// (see [`crate::off`]).
    Off,
    /// Redisson's scripts run natively.
    On,
}

impl Interception {
    /// Does something with each setting.
    pub fn each(test: impl Fn(Self)) {
        for setting in [Self::Off, Self::On] {
            // Shown when the test fails.
            println!("interception {setting:?}");
            test(setting);
        }
    }

    /// Whether the server runs the scripts itself.
    pub fn is_on(self) -> bool {
        self == Self::On
    }

    /// A server with the module and this setting.
    pub fn server(self, options: &[&str]) -> Server {
        Server::with(&[&self.options()[..], options].concat())
    }

    /// The same, with a turn of this length.
    pub fn server_with_turn(self, turn: Duration) -> Server {
        self.server(&["--fairlock.turn", &turn.as_millis().to_string()])
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
