//! A subscriber.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::client::Client;
use crate::wait::give_up;

/// The channels of all waiters of all locks.
pub const WAKE_UPS: &str = "redisson_lock__channel:*";

/// A message with its channel.
pub type Message = (String, String);

/// A subscriber of the channels of a pattern, on a connection of its own.
pub struct Listener {
    port: u16,
    /// A channel by which it finds out what has come by now.
    mark: String,
    messages: Receiver<Message>,
    unread: RefCell<VecDeque<Message>>,
}

impl Listener {
    /// Subscribes to the channels of a pattern, or to one.
    pub fn new(port: u16, pattern: &str) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"));
        let client = client.expect("a valid address");
        let mut connection = client.get_connection().expect("a connection");
        let channels = pattern.to_owned();
        let (sender, messages) = mpsc::channel();
        let (ready, subscribed) = mpsc::channel();
        thread::spawn(move || {
            let mut pubsub = connection.as_pubsub();
            ready
                .send(pubsub.psubscribe(&channels))
                .expect("a listener");
            // Until the server ends, or the test does.
            while let Ok(message) = pubsub.get_message() {
                let text = message.get_payload().expect("a text");
                let channel = message.get_channel_name().to_owned();
                if sender.send((channel, text)).is_err() {
                    break;
                }
            }
        });
        let done = subscribed.recv().expect("a subscription");
        done.expect("subscribed");
        Self {
            port,
            mark: pattern.replace('*', "now"),
            messages,
            unread: RefCell::default(),
        }
    }

    #[track_caller]
    fn next(&self) -> Message {
        let unread = self.unread.borrow_mut().pop_front();
        unread.unwrap_or_else(|| self.messages.recv_timeout(give_up()).expect("a message"))
    }

    /// The text of the next message.
    #[track_caller]
    pub fn message(&self) -> String {
        self.next().1
    }

    /// Whether all messages that came have been read.
    pub fn is_quiet(&self) -> bool {
        let mut unread = self.unread.borrow_mut();
        unread.extend(self.messages.try_iter());
        unread.is_empty()
    }

    /// The messages that have not been read, in order, of a pattern's channels.
    pub fn until_now(&self) -> Vec<Message> {
        Client::new(self.port, 2).run(&format!("PUBLISH {} 1", self.mark));
        let messages = std::iter::repeat_with(|| self.next());
        messages
            .take_while(|(channel, _)| *channel != self.mark)
            .collect()
    }
}
