//! The holders of a SHARED lock, in the keys and as they are tracked.
//!
//! Each holder has a field in the lock's hash, with its hold count, and one in the shared-holders key: the end
//! of its lease in milliseconds, its limit (0 for none) and its fencing token, with a blank between them. The lock's
//! hash decides who is a holder; the other key says what the hash cannot.
//!
//! Both have one field per holder, and the lock expires when the last lease ends. While that is so, both keys
//! are assumed to be as this server left them. Otherwise another client has changed them, and they are
//! repaired.

use std::collections::HashMap;

use crate::lock::{Event, Holder, Owner, SharedHolders, State, Terms, Wall};
use crate::server::{Access, Key, Kind, string};

use super::fields::{entry, hold_count, read_entry};
use super::open_lock::OpenLock;
use super::tracked::Unusable;
use super::write;

/// The holders that a lock's hash names.
fn named_holders(lock: &Key<'_>) -> Vec<Owner> {
    let fields = lock.some_hash_fields(usize::MAX).into_iter();
    let holders = fields.filter(|(name, count)| !name.is_empty() && hold_count(count).is_some());
    holders.map(|(name, _)| Owner::from(name)).collect()
}

/// Fits the leases to an expiry that another client has set: no lease ends later, and the last one ends then.
fn fit_leases(holders: &mut SharedHolders, expiry: Option<Wall>) {
    let (Some(expiry), Some(last)) = (expiry, holders.last_end()) else {
        return;
    };
    if expiry > last
        && let Some(owner) = holders.last()
    {
        holders.change(&owner, |holder| holder.lease_end = expiry);
    }
    while let Some(owner) = holders.last().filter(|_| holders.last_end() > Some(expiry)) {
        holders.change(&owner, |holder| holder.lease_end = expiry);
    }
}

impl OpenLock<'_> {
    /// Opens the key of the shared holders.
    ///
    /// # Errors
    /// [`Unusable`] if the key holds something else.
    pub(super) fn open_shared(&mut self) -> Result<(), Unusable> {
        let key = self.ctx.open(&self.names.shared, Access::Write);
        if !key.fits(Kind::Hash) {
            let expiries = [&key, &self.lock].map(write::expiry);
            return Err(Unusable {
                expires: expiries.into_iter().flatten().min(),
            });
        }
        self.shared = Some(key);
        Ok(())
    }

    /// Opens the key of the shared holders, if it is not open yet. Called before a shared holder may be added.
    ///
    /// # Errors
    /// [`Unusable`] if the key holds something else.
    pub fn expect_shared(&mut self) -> Result<(), Unusable> {
        if self.shared.is_none() && !self.frozen {
            self.open_shared()?;
            self.mend_shared_if_touched();
        }
        Ok(())
    }

    /// Repairs the keys and what is tracked, if the lock's holders are not as this server left them.
    pub(super) fn mend_shared_if_touched(&mut self) {
        let is_written = self.shared.as_ref().is_some_and(|key| !key.is_empty());
        let may_be = is_written || self.tracked.shared.is_some() && !self.frozen;
        if may_be && !self.shared_is_as_tracked() {
            self.mend_shared();
        }
    }

    fn shared_is_as_tracked(&mut self) -> bool {
        let expiry = self.lease_end();
        let written = self.shared.as_ref().map_or(0, Key::len);
        let Some(shared) = &self.tracked.shared else {
            return written == 0;
        };
        let named = self.lock.len().saturating_sub(1);
        written == shared.count() && named == shared.count() && expiry == shared.last_end()
    }

    /// Makes the lock's hash, the other key and what is tracked agree.
    fn mend_shared(&mut self) {
        if self.lock.is_empty() {
            // The rules end the holders that are tracked.
            if self.tracked.shared.is_none() {
                self.forget_shared();
            }
            return;
        }
        let holders = named_holders(&self.lock);
        let written = self.written_holders();
        if !self.is_shared(&holders, &written) {
            self.lose_shared();
            return;
        }
        // An earlier run of the server may have given them their tokens, by a clock that was ahead.
        self.token();
        let expiry = self.lease_end();
        let mut mended = SharedHolders::default();
        let mut tracked = self.tracked.shared.take().unwrap_or_default();
        for owner in holders {
            let known = tracked
                .remove(&owner)
                .or_else(|| written.get(&owner).cloned());
            // Another client wrote this holder: it counts as exclusive, until the key expires.
            let holder = known.unwrap_or_else(|| {
                let end = expiry.unwrap_or(self.now.wall());
                Holder::new(Terms::UNKNOWN, end, 0, None)
            });
            mended.insert(owner, holder);
        }
        for (owner, lost) in tracked.iter() {
            // Another client took this holder out: the rules find its lease over, and end its session.
            let mut lost = lost.clone();
            lost.lease_end = Wall::default();
            mended.insert(Owner::clone(owner), lost);
        }
        fit_leases(&mut mended, expiry);
        self.write_mended(&mended, &written);
        self.tracked.shared = Some(Box::new(mended));
        // Other keys may be in their place.
        self.tracked.wide.holders = false;
        self.set_expiry_of_shared();
    }

    /// Whether a hash with these holders is this lock as held by several: one of them at least is known as such. The
    /// entries may be left of holders whose leases were over before another client took the lock.
    fn is_shared(&self, holders: &[Owner], written: &HashMap<Owner, Holder>) -> bool {
        let shared = self.tracked.shared.as_ref();
        let now = self.now.wall();
        holders.iter().any(|owner| {
            let lives = |holder: &Holder| holder.lease_end >= now;
            shared.is_some_and(|shared| shared.get(owner).is_some())
                || written.get(owner).is_some_and(lives)
        })
    }

    /// Another client has put a hash in the lock's place that is none of its holders': they have lost the lock.
    fn lose_shared(&mut self) {
        let lost = self.tracked.shared.take().unwrap_or_default();
        for (owner, holder) in lost.iter() {
            let session = holder.session.iter();
            for (connection, _) in session.flat_map(|session| &session.holders) {
                let (connection, owner) = (*connection, Owner::clone(owner));
                self.emit(Event::Unbound { connection, owner });
            }
            let since = holder.since;
            self.emit(Event::LeaseEnded { since });
        }
        self.forget_shared();
    }

    /// What the shared-holders key says.
    fn written_holders(&self) -> HashMap<Owner, Holder> {
        let fields = self
            .shared
            .as_ref()
            .map(|key| key.some_hash_fields(usize::MAX));
        let entries = fields.into_iter().flatten();
        let read = entries.filter_map(|(name, text)| Some((Owner::from(name), read_entry(&text)?)));
        read.collect()
    }

    fn write_mended(&mut self, holders: &SharedHolders, written: &HashMap<Owner, Holder>) {
        for (owner, holder) in holders.iter() {
            if written.get(owner).map(entry) != Some(entry(holder)) {
                self.write_shared(owner, holder);
            }
        }
        let strangers = written.keys().filter(|owner| holders.get(owner).is_none());
        if let Some(key) = &mut self.shared {
            for owner in strangers {
                write::remove_field(key, &string(owner));
            }
        }
    }

    /// The lock's key lasts as long as the last lease, the other one at least as long.
    fn set_expiry_of_shared(&mut self) {
        let shared = self.tracked.shared.as_ref();
        let Some(last) = shared.and_then(|shared| shared.last_end()) else {
            return;
        };
        if self.lease_end() == Some(last) {
            self.keep_shared_key_until(last);
        } else {
            self.set_lease_end(last);
        }
    }

    /// Changes what is known of a shared holder, and writes it.
    pub(super) fn change_shared(&mut self, owner: &[u8], change: impl FnOnce(&mut Holder)) {
        let changed = self.tracked.shared.as_mut().and_then(|shared| {
            shared.change(owner, |holder| {
                change(holder);
                holder.clone()
            })
        });
        if let Some(holder) = changed {
            self.write_shared(owner, &holder);
        }
    }

    /// Writes one holder into the shared-holders key.
    pub(super) fn write_shared(&mut self, owner: &[u8], holder: &Holder) {
        let (ctx, names) = (self.ctx, self.names);
        let key = self
            .shared
            .get_or_insert_with(|| ctx.open(&names.shared, Access::Write));
        let entry = string(&entry(holder));
        write::set_field(key, self.known.named.get(owner), &entry, c"hset");
    }

    /// Sets an expiry on the shared-holders key, so that it does not stay for ever on a server without the module.
    /// It outlives the lock's key and need not be exact: twice as long saves most writes.
    pub(super) fn keep_shared_key_until(&mut self, at: Wall) {
        let Some(key) = &mut self.shared else { return };
        if write::expiry(key).is_none_or(|expires| expires < at) {
            let left = at.since(self.now.wall());
            write::set_expiry(key, at.after(left));
        }
    }

    /// The lock is free, or has one exclusive holder.
    pub(super) fn forget_shared(&mut self) {
        self.tracked.shared = None;
        self.tracked.wide.holders = false;
        if let Some(key) = self.shared.as_mut().filter(|key| !key.is_empty()) {
            write::delete(key);
        }
    }
}
