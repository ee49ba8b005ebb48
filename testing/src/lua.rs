//! The commands as scripts (`clients/lua`), as a client of a server without the module calls them.

use std::sync::LazyLock;

use sha1::{Digest as _, Sha1};

use crate::client::Client;
use crate::paths::root;
use crate::server::Server;

/// One script.
#[derive(Clone, Debug)]
pub struct Script {
    /// The command that it stands for, without the module's prefix: `ACQUIRE`.
    pub command: &'static str,
    /// Its text.
    pub text: String,
    /// Its SHA-1 in hexadecimal digits.
    pub sha1: String,
}

/// All of them.
pub static SCRIPTS: LazyLock<[Script; 4]> =
    LazyLock::new(|| ["ACQUIRE", "RELEASE", "RENEW", "CANCEL"].map(Script::read));

impl Script {
    fn read(command: &'static str) -> Self {
        let file = format!("clients/lua/{}.lua", command.to_lowercase());
        let text = std::fs::read_to_string(root().join(file)).expect("a script");
        let sha1 = sha1(&text);
        Self {
            command,
            text,
            sha1,
        }
    }
}

/// By what EVALSHA names a script.
#[must_use]
pub fn sha1(text: &str) -> String {
    format!("{:x}", Sha1::digest(text))
}

/// The script of a command.
pub fn script(command: &str) -> &'static Script {
    let mut scripts = SCRIPTS.iter();
    scripts
        .find(|script| script.command == command)
        .expect("a command that is a script")
}

/// A server without the module that knows all of them; and a connection to it.
pub fn connected() -> (Server, Client) {
    let server = Server::without_module(&[]);
    let mut client = server.connect();
    load(&mut client);
    (server, client)
}

/// Loads all of them into a server.
pub fn load(client: &mut Client) {
    for script in SCRIPTS.iter() {
        let words: [&[u8]; 3] = [b"SCRIPT", b"LOAD", script.text.as_bytes()];
        client.raw(&words).expect("loaded");
    }
}

/// The keys of a lock, in the order of the scripts' arguments.
pub fn keys(lock: &str) -> [String; 4] {
    let [open, close] = if lock.contains('{') {
        ["", ""]
    } else {
        ["{", "}"]
    };
    let derived = |prefix: &str| format!("{prefix}:{open}{lock}{close}");
    [
        lock.to_owned(),
        derived("redisson_lock_queue"),
        derived("redisson_lock_timeout"),
        derived("fairlock_token"),
    ]
}

/// The words of a command (`ACQUIRE lock owner ...`, whatever prefix it has) as those of its script.
pub fn call(words: &[&str]) -> Vec<String> {
    let [name, lock, arguments @ ..] = words else {
        panic!("no command of a lock: {words:?}");
    };
    let command = name.rsplit('.').next().unwrap_or(name);
    let begin = ["EVALSHA", &script(command).sha1, "4"].map(str::to_owned);
    let arguments = arguments.iter().map(|word| (*word).to_owned());
    begin
        .into_iter()
        .chain(keys(lock))
        .chain(arguments)
        .collect()
}
