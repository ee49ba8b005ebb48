//! A server as a process: stopped, signalled, ended by itself, and what waits in its sockets.

use std::fs;
use std::process::Command;

use crate::server::Server;
use crate::wait::wait_until;

/// Sends a process a signal, such as `TERM`.
pub fn send_signal(pid: u32, name: &str) {
    let mut kill = Command::new("kill");
    let status = kill.args([format!("-{name}"), pid.to_string()]).status();
    assert!(status.expect("kill is there").success());
}

impl Server {
    /// Stops the process, does something, and lets it go on: all that was sent in between reaches it in one iteration
    /// of its event loop.
    pub fn while_stopped<T>(&self, body: impl FnOnce() -> T) -> T {
        self.signal("STOP");
        // The signal was sent; until it acts, the process can still read a part of the input.
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

    /// The unread input of a connection: how many bytes, and whether it was closed after them. The connection is given
    /// by the port at its other end.
    pub fn unread(&self, from: u16) -> (usize, bool) {
        const CLOSE_WAIT: &str = "08";
        let ends = [self.port, from].map(|port| format!(":{port:04X}"));
        let row = || {
            let table = fs::read_to_string("/proc/net/tcp").expect("the connections");
            // Number, this end, the other end, state, bytes to be sent and to be read, ...
            let sockets = table.lines().map(|line| line.split_whitespace());
            let mut sockets = sockets.map(|fields| fields.map(str::to_owned).collect());
            sockets.find(|fields: &Vec<String>| {
                fields[1].ends_with(&ends[0]) && fields[2].ends_with(&ends[1])
            })
        };
        // One reading can miss a row while other sockets come and go.
        let socket = (0..100).find_map(|_| row()).expect("a connection");
        let (_, unread) = socket[4].split_once(':').expect("two numbers");
        let unread = usize::from_str_radix(unread, 16).expect("a number");
        (unread, socket[3] == CLOSE_WAIT)
    }

    /// Sends the process a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        send_signal(self.pid(), name);
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the process has ended by itself; its exit code, if no signal ended it.
    pub fn exit_code(&mut self) -> Option<i32> {
        let mut ended = None;
        wait_until("the server has ended", || {
            ended = self.process.try_wait().expect("the server's state");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }
}
