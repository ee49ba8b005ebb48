//! What is published on the channels of waiters.

use std::thread::{self, JoinHandle};

use redis::Msg;

use crate::client::Client;

/// The end of what is listened to.
const END: &str = "redisson_lock__channel:the-end";

/// Writes down messages until it is told to finish.
pub struct Listener {
    port: u16,
    listening: JoinHandle<Vec<(String, String)>>,
}

impl Listener {
    /// Listens to the messages of scripts: all but the module's own, which say 0.
    pub fn to_scripts(port: u16) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"));
        let client = client.expect("a valid address");
        let mut connection = client.get_connection().expect("a connection");
        let (ready, subscribed) = std::sync::mpsc::channel();
        let listening = thread::spawn(move || {
            let mut channel = connection.as_pubsub();
            let done = channel.psubscribe("redisson_lock__channel:*");
            ready.send(done).expect("a test");
            let message = |message: Msg| {
                let text: String = message.get_payload().expect("a text");
                (message.get_channel_name().to_owned(), text)
            };
            std::iter::from_fn(|| channel.get_message().ok())
                .map(message)
                .take_while(|(channel, _)| channel != END)
                .filter(|(_, text)| text != "0")
                .collect()
        });
        let done = subscribed.recv().expect("a listener");
        done.expect("subscribed");
        Self { port, listening }
    }

    /// What was published, in order.
    pub fn finish(self) -> Vec<(String, String)> {
        Client::new(self.port, 2).run(&format!("PUBLISH {END} 1"));
        self.listening.join().expect("no panic")
    }
}
