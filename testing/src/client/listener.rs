//! A subscriber.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::wait::give_up;

/// A subscriber of one channel, on a connection of its own.
pub struct Listener {
    messages: Receiver<String>,
    unread: RefCell<VecDeque<String>>,
}

impl Listener {
    /// Subscribes to a channel.
    pub fn new(port: u16, channel: &str) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"));
        let client = client.expect("a valid address");
        let mut connection = client.get_connection().expect("a connection");
        let channel = channel.to_owned();
        let (sender, messages) = mpsc::channel();
        let (ready, subscribed) = mpsc::channel();
        thread::spawn(move || {
            let mut pubsub = connection.as_pubsub();
            ready.send(pubsub.subscribe(&channel)).expect("a listener");
            // Until the server ends, or the test does.
            while let Ok(message) = pubsub.get_message() {
                let text = message.get_payload().expect("a text");
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        let done = subscribed.recv().expect("a subscription");
        done.expect("subscribed");
        let unread = RefCell::default();
        Self { messages, unread }
    }

    /// The next message.
    #[track_caller]
    pub fn message(&self) -> String {
        if let Some(message) = self.unread.borrow_mut().pop_front() {
            return message;
        }
        let message = self.messages.recv_timeout(give_up());
        message.expect("a message")
    }

    /// Whether all messages that came have been read.
    pub fn is_quiet(&self) -> bool {
        let mut unread = self.unread.borrow_mut();
        unread.extend(self.messages.try_iter());
        unread.is_empty()
    }
}
