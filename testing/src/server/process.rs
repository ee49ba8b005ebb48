//! A server as a process: stopped, signalled, ended by itself, and what waits in its sockets.

use std::fs;
use std::process::Command;

use crate::server::Server;
use crate::wait::wait_until;

impl Server {
    /// Stops the process in its tracks, does something, and lets it go on: whatever was sent
    /// meanwhile reaches it in one iteration of its event loop.
    pub fn while_stopped<T>(&self, body: impl FnOnce() -> T) -> T {
        self.signal("STOP");
        // The signal was sent; until it is acted on, the process can still take part of what comes.
        let stat = format!("/proc/{}/stat", self.process.id());
        wait_until("the server has stopped", || {
            let stat = fs::read_to_string(&stat).expect("its state");
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" T"))
        });
        let result = body();
        self.signal("CONT");
        result
    }

    /// What a connection has sent and the server has not read yet: how many bytes, and whether it
    /// was closed after them. The connection is given by the port at its other end.
    pub fn unread(&self, from: u16) -> (usize, bool) {
        const CLOSE_WAIT: &str = "08";
        let table = fs::read_to_string("/proc/net/tcp").expect("the connections");
        let ends = [self.port, from].map(|port| format!(":{port:04X}"));
        // Number, this end, the other end, state, bytes to be sent and to be read, ...
        let mut sockets = table.lines().map(|line| line.split_whitespace().collect());
        let ours = sockets.find(|fields: &Vec<&str>| {
            fields[1].ends_with(&ends[0]) && fields[2].ends_with(&ends[1])
        });
        let socket = ours.expect("a connection");
        let (_, unread) = socket[4].split_once(':').expect("two numbers");
        let unread = usize::from_str_radix(unread, 16).expect("a number");
        (unread, socket[3] == CLOSE_WAIT)
    }

    /// Sends the process a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let (flag, pid) = (format!("-{name}"), self.process.id().to_string());
        let status = Command::new("kill").args([flag, pid]).status();
        assert!(status.expect("kill is there").success());
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the process has ended by itself; its exit code, if it was not a signal's doing.
    pub fn exit_code(&mut self) -> Option<i32> {
        let mut ended = None;
        wait_until("the server has ended", || {
            ended = self.process.try_wait().expect("the server's state");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }
}
