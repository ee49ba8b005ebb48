//! The messages on the channels of waiters.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use fairlock_testing::{Client, give_up};
use redis::{Connection, Msg};

/// A message with its channel.
pub type Message = (String, String);

/// Marks the moment up to which messages are wanted.
const NOW: &str = "redisson_lock__channel:now";

/// Records all messages from its start on.
pub struct Listener {
    port: u16,
    messages: Receiver<Message>,
}

impl Listener {
    pub fn new(port: u16) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"));
        let client = client.expect("a valid address");
        let connection = client.get_connection().expect("a connection");
        let (ready, subscribed) = mpsc::channel();
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || listen(connection, &ready, &sender));
        subscribed.recv().expect("a listener");
        Self { port, messages }
    }

    /// The messages since the last call, in order.
    pub fn until_now(&self) -> Vec<Message> {
        Client::new(self.port, 2).run(&format!("PUBLISH {NOW} 1"));
        let next = || self.messages.recv_timeout(give_up()).expect("a message");
        std::iter::repeat_with(next)
            .take_while(|(channel, _)| channel != NOW)
            .collect()
    }
}

/// Until the server ends, or the test does.
fn listen(mut connection: Connection, ready: &Sender<()>, messages: &Sender<Message>) {
    let mut channel = connection.as_pubsub();
    let done = channel.psubscribe("redisson_lock__channel:*");
    done.expect("subscribed");
    ready.send(()).expect("a test");
    let message = |message: Msg| {
        let text: String = message.get_payload().expect("a text");
        (message.get_channel_name().to_owned(), text)
    };
    while let Ok(next) = channel.get_message() {
        if messages.send(message(next)).is_err() {
            break;
        }
    }
}
