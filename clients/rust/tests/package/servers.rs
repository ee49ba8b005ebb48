//! A server for a test, by clients/conformance/server.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fairlock_client::{Locks, aio};

pub struct Server {
    process: Child,
    channel: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    ports: HashMap<String, String>,
}

impl Server {
    pub fn new() -> Self {
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/server");
        let mut command = Command::new(beside);
        let piped = command.stdin(Stdio::piped());
        let mut process = piped.stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let lines = output.by_ref().lines().map(Result::unwrap);
        let ports = lines.take_while(|line| line != "ready").map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            (words.next().unwrap(), words.next().unwrap())
        });
        let ports = ports.collect();
        let channel = Mutex::new(Some((input, output)));
        Self {
            process,
            channel,
            ports,
        }
    }

    pub fn url(&self) -> String {
        self.url_of("a")
    }

    pub fn url_of(&self, name: &str) -> String {
        format!("redis://127.0.0.1:{}", self.ports[name])
    }

    pub fn locks(&self) -> Locks {
        Locks::new(redis::Client::open(self.url()).unwrap()).unwrap()
    }

    pub fn tasks_locks(&self) -> aio::Locks {
        aio::Locks::new(redis::Client::open(self.url()).unwrap()).unwrap()
    }

    pub fn tell(&self, words: &str) {
        let mut channel = self.channel.lock().unwrap();
        let (input, output) = channel.as_mut().unwrap();
        writeln!(input, "{words}").unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        assert!(answer.starts_with("ok"), "{words}: {answer}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.channel.get_mut().unwrap().take()); // The end of its input ends the server.
        self.process.wait().unwrap();
    }
}

pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < end, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program in examples/: beside this test's own, in target/<profile>/deps/../examples.
pub fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    here.parent().unwrap().with_file_name("examples").join(name)
}
