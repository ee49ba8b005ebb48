//! `fairlock watch`: what happens to locks, as it happens.
//!
//! The server announces events of keys (`events` makes sure of that). Each is printed with the lock's state by
//! FAIRLOCK.INFO at that moment, and with the owners that lost or got it since the line before (`holding`). Each lock
//! has its own connection to the server that has it, which is replaced when the lock moves or the server goes away.

mod events;
mod holding;
mod print;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::args::WatchArgs;
use crate::failure::Failure;
use crate::lock::Lock;
use crate::server::{Link, Seeds, Target, Trouble};
use crate::text::word;

use holding::{Changes, Holding};
use print::Seen;

/// Without events, how often to see whether the lock is still there where it was.
const QUIET: Duration = Duration::from_secs(5);
/// Pauses between attempts to reach a server that has gone away.
const PAUSE: Duration = Duration::from_millis(500);

/// What the tasks that follow the locks report.
enum News {
    Seen(Box<Seen>),
    /// For people.
    Notice(String),
    /// Nothing more will come.
    End(Failure),
}

/// One lock, and how it is followed.
#[derive(Clone)]
struct Follower {
    key: Vec<u8>,
    own: bool,
    enable_events: bool,
    news: UnboundedSender<News>,
}

/// Prints events until told to stop.
pub async fn run(args: WatchArgs, target: Target) -> Result<u8, Failure> {
    let (news, mut all) = unbounded_channel();
    for key in args.keys.into_iter().map(OsString::into_vec) {
        let follower = Follower {
            key,
            own: args.own,
            enable_events: args.enable_events,
            news: news.clone(),
        };
        tokio::spawn(follower.follow(target.clone()));
    }
    drop(news);
    while let Some(news) = all.recv().await {
        match news {
            News::Notice(text) => eprintln!("fairlock: {text}"),
            News::End(failure) => return Err(failure),
            News::Seen(seen) => {
                let line = if args.json { seen.json()? } else { seen.line() };
                let mut out = io::stdout().lock();
                match writeln!(out, "{line}").and_then(|()| out.flush()) {
                    Ok(()) => (),
                    // As `fairlock watch k | head -1` does.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Ok(0)
}

impl Follower {
    async fn follow(self, target: Target) {
        let mut seeds = Seeds::new(target);
        // What went wrong was told, and the lock is not followed again yet.
        let mut told = false;
        let mut was_there = false;
        loop {
            let trouble = match self.begin(&mut seeds).await {
                Ok((link, lock)) => {
                    if told {
                        let address = link.target.address();
                        self.notice(format!(
                            "following {} at {address} again; what happened meanwhile is not shown",
                            word(&self.key)
                        ));
                    }
                    (told, was_there) = (false, true);
                    self.say("watching", &lock, &Changes::default());
                    let holding = Holding::of(&link, &self.key, &lock).await;
                    self.events(link, holding).await
                }
                Err(trouble) => trouble,
            };
            let text = match trouble {
                Trouble::Lasting(_, failure) => return self.send(News::End(failure)),
                other if !was_there => return self.send(News::End(other.into_failure())),
                other => other.text(),
            };
            if !told {
                self.notice(format!(
                    "lost sight of {}: {text}. Trying again",
                    word(&self.key)
                ));
                told = true;
            }
            sleep(PAUSE).await;
        }
    }

    /// Subscribes at the server that has the lock; returns the lock's state then.
    async fn begin(&self, seeds: &mut Seeds) -> Result<(Link, Lock), Trouble> {
        let link = seeds.connect_for(&self.key).await?;
        if let Some(doubt) = events::ensure(&link, self.enable_events).await? {
            self.notice(doubt);
        }
        let channel = events::channel(link.target.db(), &self.key);
        link.ask(redis::cmd("SUBSCRIBE").arg(channel)).await?;
        let lock = link.lock(&self.key).await?;
        Ok((link, lock))
    }

    /// Reports events until there is an error.
    async fn events(&self, mut link: Link, mut holding: Holding) -> Trouble {
        loop {
            let event = match timeout(QUIET, link.pushes.recv()).await {
                Ok(Some(push)) if push.kind == PushKind::Message => event(&push),
                Ok(Some(push)) if push.kind != PushKind::Disconnection => continue,
                Ok(_) => {
                    let address = link.target.address();
                    return Trouble::Passing(format!(
                        "the connection to the server at {address} has ended"
                    ));
                }
                Err(_) => None,
            };
            if event
                .as_deref()
                .is_some_and(|event| self.own && !events::is_own(event))
            {
                continue;
            }
            match link.lock(&self.key).await {
                Ok(lock) => {
                    if let Some(event) = event {
                        // The lock may be ahead of its events. Each event is printed for itself.
                        let mut changes = Changes::default();
                        if events::may_change_holder(&event) {
                            let now = Holding::of(&link, &self.key, &lock).await;
                            changes = now.since(&holding);
                            holding = now;
                        }
                        self.say(&event, &lock, &changes);
                    }
                }
                // It is to be followed where it is now.
                Err(trouble @ Trouble::Elsewhere(_)) => {
                    return Trouble::Passing(trouble.text());
                }
                // The key now has another type. It may become a lock again.
                Err(trouble) if trouble.code() == Some("WRONGTYPE") => self.notice(trouble.text()),
                Err(trouble) => return trouble,
            }
        }
    }

    fn say(&self, event: &str, lock: &Lock, changes: &Changes) {
        let seen = Seen::new(event, &self.key, lock, changes);
        self.send(News::Seen(Box::new(seen)));
    }

    fn notice(&self, text: String) {
        self.send(News::Notice(text));
    }

    fn send(&self, news: News) {
        // The receiver is gone when the program is about to end.
        let _ = self.news.send(news);
    }
}

/// The event that a message of the key's channel names.
fn event(push: &PushInfo) -> Option<String> {
    match push.data.as_slice() {
        [_, Value::BulkString(event)] => Some(String::from_utf8_lossy(event).into_owned()),
        _ => None,
    }
}
