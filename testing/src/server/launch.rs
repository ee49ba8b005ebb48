//! How a server is started, by options and the environment.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::clock::MovableClock;

/// The program that servers run under, with its options, if `FAIRLOCK_TEST_WRAPPER` names one: one that checks their
/// memory (`make test-valgrind`). It writes its findings to standard error, in lines that begin with `==`.
pub(crate) fn wrapper() -> Vec<String> {
    let wrapper = std::env::var("FAIRLOCK_TEST_WRAPPER").unwrap_or_default();
    wrapper.split_whitespace().map(str::to_owned).collect()
}

/// Options that all servers get before their own, by `FAIRLOCK_TEST_OPTIONS`: I/O threads (`scripts/test/matrix`).
fn options_for_all() -> Vec<String> {
    let options = std::env::var("FAIRLOCK_TEST_OPTIONS").unwrap_or_default();
    options.split_whitespace().map(str::to_owned).collect()
}

/// The module that servers load, if `FAIRLOCK_TEST_MODULE` names one that the tests were not built with: for
/// an emulated server (`make test-arm64`), or for the address sanitiser (`make test-asan`).
pub(crate) fn foreign_module() -> Option<PathBuf> {
    std::env::var_os("FAIRLOCK_TEST_MODULE").map(PathBuf::from)
}

/// The module that was built with the running program, unless the environment names another.
pub fn module() -> PathBuf {
    let module = foreign_module().unwrap_or_else(|| {
        let program = std::env::current_exe().expect("the path of this program");
        let folder = program.parent().expect("the folder of this program");
        folder.join("libfairlock.so")
    });
    assert!(
        module.exists(),
        "no module at {}: build it first",
        module.display()
    );
    module
}

/// A port of this machine that nobody has at the moment.
fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("its address").port()
}

/// An option that is a port for the server alone, another one at each try; the server says which.
pub const FREE_PORT: &str = "<a free port>";

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program that it runs under, with its options; none if empty.
    under: Vec<String>,
    options: Vec<String>,
    /// Its wall clock, if that is not the machine's.
    pub(super) clock: Option<MovableClock>,
}

impl Launch {
    /// Without the module; the first option can be the path of a configuration file.
    pub fn plain(options: &[&str]) -> Self {
        Self {
            under: wrapper(),
            options: options.iter().map(ToString::to_string).collect(),
            clock: None,
        }
    }

    /// With the module.
    pub fn with_module(options: &[&str]) -> Self {
        let module = module();
        let load = ["--loadmodule", module.to_str().expect("a UTF-8 path")];
        Self::plain(&[&load, options].concat())
    }

    /// Under another program, which gets the server's command line.
    #[must_use]
    pub fn under(mut self, program: &[&str]) -> Self {
        self.under.extend(program.iter().map(ToString::to_string));
        self
    }

    /// With a wall clock of its own.
    #[must_use]
    pub fn by(mut self, clock: MovableClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Starts it on a port that was free a moment ago; returns the port.
    pub(super) fn spawn(&self, dir: &Path) -> (Child, u16) {
        let port = free_port();
        let mut words = self
            .under
            .iter()
            .map(String::as_str)
            .chain(["redis-server"]);
        let mut command = Command::new(words.next().expect("a program"));
        // Many machines set this: a panic must not end the server because of it.
        command.args(words).env("RUST_BACKTRACE", "1");
        if let Some(clock) = &self.clock {
            clock.give_to(&mut command);
        }
        let errors = fs::File::create(dir.join("errors")).expect("a file");
        // A configuration file comes before all options.
        let has_file = self
            .options
            .first()
            .is_some_and(|first| !first.starts_with('-'));
        let (file, options) = self.options.split_at(usize::from(has_file));
        let options = options.iter().map(|option| match option.as_str() {
            FREE_PORT => free_port().to_string(),
            other => other.to_owned(),
        });
        let process = command
            .args(file)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--logfile", "log", "--maxclients", "20000"])
            .arg("--dir")
            .arg(dir)
            .args(options_for_all())
            .args(options)
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .expect("redis-server is installed");
        (process, port)
    }
}
