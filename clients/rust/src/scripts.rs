//! How a command is sent: as the module's, or as a script, for servers that do not have it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use redis::{Cmd, Script};

use crate::lines::Line;

/// As the module's command, as a script that the server knows, or with the script's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Native,
    Hash,
    Text,
}

static SCRIPTS: LazyLock<HashMap<&str, (&str, Script)>> = LazyLock::new(|| {
    let scripts = [
        ("FAIRLOCK.ACQUIRE", include_str!("../lua/acquire.lua")),
        ("FAIRLOCK.RELEASE", include_str!("../lua/release.lua")),
        ("FAIRLOCK.RENEW", include_str!("../lua/renew.lua")),
        ("FAIRLOCK.CANCEL", include_str!("../lua/cancel.lua")),
        ("FAIRLOCK.INFO", include_str!("../lua/info.lua")),
    ];
    let scripts = scripts.map(|(name, text)| (name, (text, Script::new(text))));
    scripts.into()
});

/// A command, its arguments after the lock's name, and the connection that it goes by.
pub struct Request {
    pub native: &'static str,
    pub words: Vec<Vec<u8>>,
    pub line: Arc<Line>,
}

impl Request {
    /// Whether it sets a lease, which replicas may have to confirm.
    pub fn is_setting(&self) -> bool {
        ["FAIRLOCK.ACQUIRE", "FAIRLOCK.RENEW"].contains(&self.native)
    }

    pub fn command(&self, name: &[u8], form: Form) -> Cmd {
        let Self { native, words, .. } = self;
        let mut command = Cmd::new();
        match (form, SCRIPTS.get(native)) {
            (Form::Hash, Some((_, script))) => command.arg("EVALSHA").arg(script.get_hash()),
            (Form::Text, Some((text, _))) => command.arg("EVAL").arg(*text),
            _ => command.arg(native).arg(name),
        };
        if form != Form::Native {
            command.arg(4).arg(name);
            command.arg(key("redisson_lock_queue", name));
            command.arg(key("redisson_lock_timeout", name));
            command.arg(key("fairlock_token", name));
        }
        command.arg(words);
        command
    }
}

/// A key or channel of a lock: its name, in braces if it has none.
fn key(prefix: &str, name: &[u8]) -> Vec<u8> {
    let is_braced = name.contains(&b'{');
    let [open, close]: [&[u8]; 2] = if is_braced { [b"", b""] } else { [b"{", b"}"] };
    [prefix.as_bytes(), b":", open, name, close].concat()
}

/// The channel on which an owner is woken.
pub fn channel(name: &[u8], owner: &[u8]) -> Vec<u8> {
    [&key("redisson_lock__channel", name), &b":"[..], owner].concat()
}

/// The one warning, for people.
pub fn warning(address: &str, is_denied: bool) -> String {
    let (mut why, mut cure) = ("the server does not have", "Load it");
    if is_denied {
        (why, cure) = ("the user may not run the commands of", "Allow them");
    }
    format!(
        "{address}: {why} the fairlock module: locks are taken by scripts. {cure} for hand-off, sessions and shared locks, or set require_module to refuse"
    )
}
