//! What `INFO fairlock` says.

use std::collections::HashMap;

use super::{Link, Trouble};

/// The figures of a server.
#[derive(Clone, Debug)]
pub struct Info {
    /// The module's fields, without their prefix.
    fields: HashMap<String, u64>,
    /// It is a replica, which knows of no waiters.
    pub is_replica: bool,
}

impl Info {
    /// Reads the sections `fairlock` and `replication`; `None` if the module is not loaded.
    pub fn read(info: &str) -> Option<Self> {
        let pairs = info
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'));
        let own = |(name, value): (&str, &str)| {
            let name = name.strip_prefix("fairlock_")?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let fields: HashMap<_, _> = pairs.filter_map(own).collect();
        let is_replica = info.lines().any(|line| line.trim_end() == "role:slave");
        (!fields.is_empty()).then_some(Self { fields, is_replica })
    }

    /// One of them; 0 for one that the server does not know.
    pub fn number(&self, name: &str) -> u64 {
        self.fields.get(name).copied().unwrap_or(0)
    }
}

impl Link {
    /// The figures of this server.
    pub async fn fairlock_info(mut self) -> Result<Info, Trouble> {
        let info = self.info(&["replication", "fairlock"]).await?;
        Info::read(&info).ok_or_else(|| Trouble::no_module(&self.target))
    }
}
