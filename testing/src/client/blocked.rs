//! A command that the server has not answered yet.

use std::cell::OnceCell;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::client::Client;
use crate::wait::give_up;

/// A command under way on a connection of its own, which closes when this is dropped or its reply
/// is taken.
pub struct Blocked {
    replies: Receiver<(String, Client)>,
    reply: OnceCell<(String, Client)>,
    /// The connection's id.
    pub id: i64,
    port: u16,
}

impl Blocked {
    /// Sends a command on a connection of its own, without waiting for the reply.
    pub fn send(port: u16, words: &str) -> Self {
        Self::send_on(Client::new(port, 2), words)
    }

    /// Sends a command without waiting for the reply.
    pub fn send_on(mut client: Client, words: &str) -> Self {
        let (id, port) = (client.id, client.port);
        let words = words.to_owned();
        let (sender, replies) = mpsc::channel();
        thread::spawn(move || {
            client.waits_at_most(None);
            let reply = client.run(&words);
            client.waits_at_most(Some(give_up()));
            // The receiver may be gone.
            let _ = sender.send((reply, client));
        });
        Self {
            replies,
            reply: OnceCell::new(),
            id,
            port,
        }
    }

    /// Whether the reply has come.
    pub fn is_done(&self) -> bool {
        if let Ok(reply) = self.replies.try_recv() {
            let _ = self.reply.set(reply);
        }
        self.reply.get().is_some()
    }

    /// The reply; the connection closes.
    #[track_caller]
    pub fn reply(self) -> String {
        self.reply_and_client().0
    }

    /// The reply, and the connection as it is.
    #[track_caller]
    pub fn reply_and_client(self) -> (String, Client) {
        if let Some(reply) = self.reply.into_inner() {
            return reply;
        }
        let reply = self.replies.recv_timeout(give_up());
        reply.expect("a reply to the blocked command")
    }

    /// The reply must begin so.
    #[track_caller]
    pub fn assert_start(self, start: &str) {
        let reply = self.reply();
        assert!(reply.starts_with(start), "{reply}");
    }

    /// An integer reply.
    #[track_caller]
    pub fn int(self) -> i64 {
        let reply = self.reply();
        reply.parse().unwrap_or_else(|_| panic!("{reply}"))
    }

    /// Closes its connection, as a client that dies does.
    pub fn disconnect(self) {
        let killed = Client::new(self.port, 2).run(&format!("CLIENT KILL ID {}", self.id));
        assert_eq!(killed, "1");
    }
}
