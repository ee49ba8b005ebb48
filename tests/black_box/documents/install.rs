//! `make install` and `make uninstall`, and a server with the installed files.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock_testing::{Server, paths};
use tempfile::TempDir;

const COMPANION: &str = r#"#!/bin/sh
[ "$1" = manual ] && exec touch "$2/fairlock.1" "$2/fairlock-exec.1"
echo the companion, "$@"
"#;

/// A system to install into.
struct Root {
    dir: TempDir,
    /// The file that is installed as the module.
    module: String,
}

impl Root {
    fn new() -> Self {
        let module = Server::start().module_path();
        let dir = TempDir::new().expect("a temporary directory");
        let companion = dir.path().join("companion");
        fs::write(&companion, COMPANION).expect("written");
        fs::set_permissions(&companion, Permissions::from_mode(0o755)).expect("set");
        Self { dir, module }
    }

    /// Runs the Makefile's script, with its folders. Returns its output.
    fn run(&self, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/package/install");
        let output = Command::new(script)
            .args(arguments)
            .env("DESTDIR", self.dir.path().join("root"))
            .env("bindir", "/usr/local/bin")
            .env("datadir", "/usr/local/share")
            .env("mandir", "/usr/local/share/man")
            .env("moduledir", "/usr/lib/redis/modules")
            .env("confdir", "/etc/fairlock")
            .env("MODULE", &self.module)
            .env("COMPANION", self.dir.path().join("companion"))
            .output()
            .expect("the script is there");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    fn module(&self) -> PathBuf {
        self.path("usr/lib/redis/modules/libfairlock.so")
    }

    fn snippet(&self) -> PathBuf {
        self.path("etc/fairlock/fairlock.conf")
    }

    /// All files that are there, with their modes.
    fn files(&self) -> BTreeMap<String, u32> {
        let named = |path: PathBuf| {
            let mode = fs::metadata(&path).expect("a file").permissions().mode();
            let name = path.strip_prefix(self.path("")).expect("below");
            (name.to_string_lossy().into_owned(), mode & 0o777)
        };
        paths::files(&self.path(""))
            .into_iter()
            .map(named)
            .collect()
    }
}

fn append(path: &Path, text: &str) {
    let old = fs::read_to_string(path).expect("a file");
    fs::write(path, old + text).expect("written");
}

#[test]
fn installing_and_uninstalling_leaves_nothing() {
    let root = Root::new();
    let said = root.run(&[]);
    // Where they belong, not below the folder that stands for the root.
    assert!(
        said.contains("\n    include /etc/fairlock/fairlock.conf\n    loadmodule /usr/lib/redis/modules/libfairlock.so\n"),
        "{said}"
    );
    let expected = [
        ("etc/fairlock/fairlock.conf", 0o644),
        ("usr/lib/redis/modules/libfairlock.so", 0o755),
        ("usr/local/bin/fairlock", 0o755),
        (
            "usr/local/share/bash-completion/completions/fairlock",
            0o644,
        ),
        (
            "usr/local/share/fish/vendor_completions.d/fairlock.fish",
            0o644,
        ),
        ("usr/local/share/fairlock/redis_exporter.lua", 0o644),
        ("usr/local/share/man/man1/fairlock-exec.1", 0o644),
        ("usr/local/share/man/man1/fairlock.1", 0o644),
        ("usr/local/share/zsh/site-functions/_fairlock", 0o644),
    ];
    let expected = expected.map(|(name, mode)| (name.to_owned(), mode));
    assert_eq!(root.files(), BTreeMap::from(expected));
    let read = |path| fs::read_to_string(root.path(path)).expect("a file");
    assert_eq!(read("usr/local/bin/fairlock"), COMPANION);
    assert_eq!(
        read("usr/local/share/zsh/site-functions/_fairlock"),
        "the companion, completions zsh\n"
    );
    root.run(&["--uninstall"]);
    assert_eq!(root.files(), BTreeMap::new());
}

#[test]
fn a_folder_that_is_there_stays_as_it_is() {
    let root = Root::new();
    let folder = root.path("etc/fairlock");
    fs::create_dir_all(&folder).expect("made");
    fs::set_permissions(&folder, Permissions::from_mode(0o2770)).expect("set");
    for (arguments, is_there) in [(&[][..], true), (&["--uninstall"], false)] {
        root.run(arguments);
        assert_eq!(root.snippet().exists(), is_there);
        let mode = fs::metadata(&folder).expect("a folder").mode();
        assert_eq!(mode & 0o7777, 0o2770);
    }
}

#[test]
fn the_installed_module_is_replaced_by_renaming() {
    let root = Root::new();
    root.run(&[]);
    let number = || fs::metadata(root.module()).expect("a file").ino();
    let old = fs::File::open(root.module()).expect("a file");
    root.run(&[]);
    assert_ne!(number(), old.metadata().expect("a file").ino());
    // A server that has the old one mapped still has all of it.
    let size = fs::metadata(&root.module).expect("the module").len();
    assert_eq!(old.metadata().expect("a file").len(), size);
}

#[test]
fn a_snippet_that_was_changed_is_kept() {
    let root = Root::new();
    root.run(&[]);
    let new = fs::read_to_string(root.snippet()).expect("a file");
    append(&root.snippet(), "fairlock.lease 12345\n");
    let changed = fs::read_to_string(root.snippet()).expect("a file");
    let said = root.run(&[]);
    assert!(said.contains("fairlock.conf differs"), "{said}");
    let read = |path| fs::read_to_string(path).expect("a file");
    assert_eq!(read(root.snippet()), changed);
    assert_eq!(read(root.path("etc/fairlock/fairlock.conf.dist")), new);
    root.run(&["--uninstall"]);
    let left = BTreeMap::from([("etc/fairlock/fairlock.conf".to_owned(), 0o644)]);
    assert_eq!(root.files(), left);
    assert_eq!(read(root.snippet()), changed);
}

#[test]
fn a_server_loads_what_is_installed_and_starts_again_after_config_rewrite() {
    let root = Root::new();
    root.run(&[]);
    // As in the script, with two of them set.
    append(
        &root.snippet(),
        "fairlock.lease 12345\nfairlock.pubsub both\n",
    );
    let main = root.path("etc/fairlock/redis.conf");
    let lines = format!(
        "include {}\nloadmodule {}\n",
        root.snippet().display(),
        root.module().display()
    );
    fs::write(&main, lines).expect("written");
    let server = Server::without_module(&[main.to_str().expect("UTF-8")]);
    let mut client = server.connect();
    client.assert_has("FAIRLOCK.HELP", "FAIRLOCK.ACQUIRE");
    let lease = "[fairlock.lease, 12345]";
    client.assert_reply("CONFIG GET fairlock.lease", lease);
    let both = "[fairlock.pubsub, both]";
    client.assert_reply("CONFIG GET fairlock.pubsub", both);
    client.assert_reply("CONFIG SET fairlock.turn 777", "OK");
    client.assert_reply("CONFIG REWRITE", "OK");
    let server = server.kill_and_restart();
    let mut client = server.connect();
    client.assert_reply("CONFIG GET fairlock.lease", lease);
    let turn = "[fairlock.turn, 777]";
    client.assert_reply("CONFIG GET fairlock.turn", turn);
    client.assert_reply("CONFIG GET fairlock.pubsub", both);
    assert!(client.int("FAIRLOCK.ACQUIRE k a") > 0);
}
