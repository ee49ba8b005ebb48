//! One lock's holder and queue, rebuilt from what a server replicates.

use std::collections::HashMap;
use std::time::Duration;

use crate::replica::Effect;

/// The lock's keys.
#[derive(Clone, Debug)]
pub struct Keys {
    lock: String,
    list: String,
    pub holds: HashMap<String, i64>,
    /// Since 1970.
    pub lease_end: Option<Duration>,
    pub queue: Vec<String>,
}

impl Keys {
    pub fn new(lock: &str) -> Self {
        Self {
            lock: lock.to_owned(),
            list: format!("redisson_lock_queue:{{{lock}}}"),
            holds: HashMap::new(),
            lease_end: None,
            queue: Vec::new(),
        }
    }

    pub fn concern(&self, effect: &Effect) -> bool {
        let mut keys = effect.words.iter().skip(1);
        keys.any(|key| *key == self.lock || *key == self.list)
    }

    pub fn apply(&mut self, effect: &Effect) -> Result<(), String> {
        let words: Vec<&str> = effect.words.iter().map(String::as_str).collect();
        let (name, rest) = words.split_first().ok_or("an empty command")?;
        match (name.to_ascii_uppercase().as_str(), rest) {
            ("DEL" | "UNLINK", keys) => keys.iter().for_each(|key| self.delete(key)),
            (name, [key, rest @ ..]) if *key == self.lock => self.apply_to_lock(name, rest)?,
            (name, [key, rest @ ..]) if *key == self.list => self.apply_to_queue(name, rest)?,
            _ => (),
        }
        Ok(())
    }

    fn delete(&mut self, key: &str) {
        if key == self.lock {
            self.holds.clear();
            self.lease_end = None;
        } else if key == self.list {
            self.queue.clear();
        }
    }

    fn apply_to_lock(&mut self, name: &str, rest: &[&str]) -> Result<(), String> {
        match (name, rest) {
            // A token for a holder that came by a script.
            ("HSET", ["", _]) => (),
            // Taken by ACQUIRE the token comes with it.
            ("HSET", [owner, count] | [owner, count, "", _]) => {
                self.holds.insert((*owner).to_owned(), number(count)?);
            }
            ("HINCRBY", [owner, by]) => {
                *self.holds.entry((*owner).to_owned()).or_default() += number(by)?;
            }
            ("HDEL", [owner]) => drop(self.holds.remove(*owner)),
            ("PEXPIREAT", [at, ..]) => {
                let at = u64::try_from(number(at)?).map_err(|error| error.to_string())?;
                self.lease_end = Some(Duration::from_millis(at));
            }
            _ => return Err(format!("an unexpected {name} {rest:?} of the lock")),
        }
        Ok(())
    }

    fn apply_to_queue(&mut self, name: &str, rest: &[&str]) -> Result<(), String> {
        match (name, rest) {
            ("RPUSH", owners) => self
                .queue
                .extend(owners.iter().map(|owner| (*owner).to_owned())),
            ("LPOP", []) if !self.queue.is_empty() => drop(self.queue.remove(0)),
            ("RPOP", []) => drop(self.queue.pop()),
            ("LREM", [count, owner]) => self.remove(number(count)?, owner),
            _ => return Err(format!("an unexpected {name} {rest:?} of the queue")),
        }
        Ok(())
    }

    fn remove(&mut self, count: i64, owner: &str) {
        if count == 0 {
            self.queue.retain(|other| other != owner);
            return;
        }
        let place = if count > 0 {
            self.queue.iter().position(|other| other == owner)
        } else {
            self.queue.iter().rposition(|other| other == owner)
        };
        if let Some(place) = place {
            self.queue.remove(place);
        }
    }
}

fn number(word: &str) -> Result<i64, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}
