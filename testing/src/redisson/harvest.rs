//! The scripts of a release, taken from a real client at work: what MONITOR shows on a plain
//! server while it locks, waits, gives up and unlocks.

use std::sync::LazyLock;

use crate::client::{Wire, show};
use crate::redisson::{Driver, NEWEST};
use crate::server::Server;
use crate::wait::wait_until;

/// One script as a client sent it.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its role, as in `src/redisson/scripts.tsv`.
    pub role: &'static str,
    /// What the client sent.
    pub text: Vec<u8>,
    /// Its SHA-1 in hexadecimal digits.
    pub sha1: String,
    /// How many keys it was called with.
    pub keys: usize,
    /// How many arguments it was called with.
    pub arguments: usize,
}

impl Script {
    /// Whether it takes any number of locks, although the client used one.
    pub fn renews_many(&self) -> bool {
        self.role == "renew" && self.text.starts_with(b"local")
    }

    /// Those of a lock's keys that it is called with.
    pub fn keys_of<'k>(&self, keys: &'k [String; 5]) -> &'k [String] {
        // To leave the queue no lock is named.
        let first = usize::from(self.role == "leave");
        &keys[first..first + self.keys]
    }
}

/// The roles of the scripts that are new in a step, in the order in which they are sent, and the client's step. A lock
/// that is held long enough is renewed.
const STEPS: [(&[&str], &str, &str); 7] = [
    (&["try-lock", "renew"], "1", "tryLock k"),
    (&["unlock"], "1", "unlock k"),
    (&["lock"], "1", "lock k"),
    (&["leave"], "2", "tryLock k 100 -1"),
    (&["force-unlock"], "2", "forceUnlock k"),
    (&["try-lock-non-reentrant"], "1", "tryLock nonreentrant:n"),
    (&["lock-non-reentrant"], "1", "lock nonreentrant:m"),
];

/// The locks of these steps.
const LOCKS: [&str; 3] = ["k", "n", "m"];

/// Those of the newest release.
pub static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| harvest(NEWEST));

/// The newest release's script for a role.
pub fn script(role: &str) -> &'static Script {
    let mut scripts = SCRIPTS.iter();
    scripts.find(|script| script.role == role).expect("a role")
}

/// All scripts of a release's fair lock.
pub fn harvest(release: &str) -> Vec<Script> {
    let server = Server::without_module(&[]);
    // A lease that ended because its client got no processor for two thirds of it would leave no wait to give up.
    let settings = ["lockWatchdogTimeout=6000", "useScriptCache=false"];
    let [driver] = Driver::several([release], &server, &settings);
    let mut monitor = Monitor::start(&server);
    let mut scripts: Vec<Script> = Vec::new();
    for (roles, thread, operation) in STEPS {
        // A release that has no such lock says so, and sends nothing.
        driver.run(thread, operation);
        if roles.contains(&"renew") {
            wait_until("the lease is renewed", || {
                monitor.unknown(&scripts).len() == roles.len()
            });
        }
        let found = monitor.unknown(&scripts);
        assert!(
            found.len() <= roles.len(),
            "{release}: {} scripts of {roles:?}",
            found.len()
        );
        for (role, call) in roles.iter().zip(found) {
            let text = call[1].as_bytes();
            let sha1 = server.connect().raw(&[b"SCRIPT", b"LOAD", text]);
            let keys = call[2].parse().expect("a number");
            scripts.push(Script {
                role,
                keys,
                arguments: call.len() - 3 - keys,
                sha1: show(&sha1.expect("a digest")),
                text: text.to_vec(),
            });
        }
    }
    scripts
}

/// A command as MONITOR shows it.
type Words = Vec<String>;

/// Records the commands that a server gets.
struct Monitor<'s> {
    server: &'s Server,
    wire: Wire,
    seen: Vec<Words>,
}

impl<'s> Monitor<'s> {
    fn start(server: &'s Server) -> Self {
        let mut wire = Wire::new(server.port);
        wire.send("MONITOR");
        wire.until("+OK");
        Self {
            server,
            wire,
            seen: Vec::new(),
        }
    }

    /// Takes up all commands so far.
    fn catch_up(&mut self) {
        const MARK: &str = "seen-until-here";
        self.server.connect().run(&format!("ECHO {MARK}"));
        let lines = self.wire.until(MARK);
        // MONITOR also shows the commands that scripts call, marked as theirs.
        let sent = lines.iter().filter(|line| !line.contains(" lua] "));
        let commands = sent.filter_map(|line| line.split_once("] "));
        self.seen
            .extend(commands.map(|(_, command)| words(command)));
    }

    /// Calls of scripts that are not known yet, one of each.
    fn unknown(&mut self, known: &[Script]) -> Vec<Words> {
        self.catch_up();
        let mut found: Vec<Words> = Vec::new();
        for words in &self.seen {
            // A client tries scripts of other kinds when it connects.
            let is_ours =
                |key: &String| LOCKS.contains(&key.as_str()) || key.starts_with("redisson_lock_");
            let is_eval = words[0].eq_ignore_ascii_case("eval") && words[3..].iter().any(is_ours);
            let is_known = |text: &str| known.iter().any(|script| script.text == text.as_bytes());
            if is_eval && !is_known(&words[1]) && !found.iter().any(|call| call[1] == words[1]) {
                assert!(!words[1].contains('\\'), "MONITOR escapes: {}", words[1]);
                found.push(words.clone());
            }
        }
        found
    }
}

/// The words of a command, as `"SET" "k" "a"`.
fn words(line: &str) -> Words {
    let words = line.trim_matches('"').split("\" \"");
    words.map(str::to_owned).collect()
}
