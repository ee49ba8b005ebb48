//! How a command is sent: as the module's, or as a script, for servers that do not have it.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{Arg, Cmd, Script};

/// As the module's command, as a script that the server knows, or with the script's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Native,
    Hash,
    Text,
}

static SCRIPTS: LazyLock<HashMap<&[u8], (&str, Script)>> = LazyLock::new(|| {
    let scripts = [
        ("FAIRLOCK.ACQUIRE", include_str!("../lua/acquire.lua")),
        ("FAIRLOCK.RELEASE", include_str!("../lua/release.lua")),
        ("FAIRLOCK.RENEW", include_str!("../lua/renew.lua")),
        ("FAIRLOCK.CANCEL", include_str!("../lua/cancel.lua")),
        ("FAIRLOCK.INFO", include_str!("../lua/info.lua")),
    ];
    let scripts = scripts.map(|(name, text)| (name.as_bytes(), (text, Script::new(text))));
    scripts.into()
});

fn words(command: &Cmd) -> impl Iterator<Item = &[u8]> {
    command.args_iter().filter_map(|word| match word {
        Arg::Simple(word) => Some(word),
        _ => None,
    })
}

/// Whether it sets a lease, which replicas may have to confirm.
pub fn is_setting(command: &Cmd) -> bool {
    let sets = |native: &[u8]| matches!(native, b"FAIRLOCK.ACQUIRE" | b"FAIRLOCK.RENEW");
    words(command).next().is_some_and(sets)
}

/// One of the module's commands as it is to be sent.
pub fn formed(command: &Cmd, form: Form) -> Cmd {
    let mut words = words(command);
    let script = words.next().and_then(|native| SCRIPTS.get(native));
    let name = words.next().unwrap_or_default();
    let mut formed = Cmd::new();
    match (form, script) {
        (Form::Hash, Some((_, script))) => formed.arg("EVALSHA").arg(script.get_hash()),
        (Form::Text, Some((text, _))) => formed.arg("EVAL").arg(*text),
        _ => return command.clone(),
    };
    formed.arg(4).arg(name);
    formed.arg(key("redisson_lock_queue", name));
    formed.arg(key("redisson_lock_timeout", name));
    formed.arg(key("fairlock_token", name));
    formed.arg(words.collect::<Vec<_>>());
    formed
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
