//! A server for a test, by clients/conformance/server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use fairlock_client::Locks;

pub struct Server {
    process: Child,
    port: String,
}

impl Server {
    pub fn new() -> Self {
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/server");
        let mut command = Command::new(beside);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.spawn().unwrap();
        let mut port = String::new();
        let mut output = BufReader::new(process.stdout.as_mut().unwrap());
        output.read_line(&mut port).unwrap();
        Self { process, port }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.trim())
    }

    pub fn locks(&self) -> Locks {
        Locks::new(redis::Client::open(self.url()).unwrap()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take()); // The end of its input ends the server.
        self.process.wait().unwrap();
    }
}
