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
use super::tracked::{Unusable, require_kinds};
use super::write;

fn named_holders(lock: &Key<'_>) -> Vec<Owner> {
    let fields = lock.some_hash_fields(usize::MAX).into_iter();
    let holders = fields.filter(|(name, count)| !name.is_empty() && hold_count(count).is_some());
    holders.map(|(name, _)| Owner::from(name)).collect()
}

impl OpenLock<'_> {
    pub(super) fn open_shared(&mut self) -> Result<(), Unusable> {
        let key = self.ctx.open(&self.names.shared, Access::Write);
        require_kinds(&[(&key, Kind::Hash), (&self.lock, Kind::Hash)])?;
        self.shared = Some(key);
        Ok(())
    }

    /// Opens the key of the shared holders, if it is not open yet. Called before a shared holder may be added.
    pub fn expect_shared(&mut self) -> Result<(), Unusable> {
        if self.shared.is_none() {
            self.open_shared()?;
            self.mend_shared_if_touched();
        }
        Ok(())
    }

    /// Repairs the keys and what is tracked, if the lock's holders are not as this server left them.
    pub(super) fn mend_shared_if_touched(&mut self) {
        if !self.frozen && !self.shared_is_as_tracked() {
            self.mend_shared();
        }
    }

    fn shared_is_as_tracked(&mut self) -> bool {
        let written = self.shared.as_ref().map_or(0, Key::len);
        let Some(shared) = &self.tracked.shared else {
            return written == 0;
        };
        let (holders, last_end) = (shared.count(), shared.last_end());
        let named = self.lock.len().saturating_sub(1);
        written == holders && named == holders && self.lease_end() == last_end
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
        let mut tracked = self.tracked.shared.take().unwrap_or_default();
        let now = self.now.wall();
        // The entries may be left of holders whose leases were over before another client took the lock.
        let lives = |text: &Vec<u8>| read_entry(text).is_some_and(|holder| holder.lease_end >= now);
        let is_known =
            |owner: &Owner| tracked.get(owner).is_some() || written.get(owner).is_some_and(lives);
        if !holders.iter().any(is_known) {
            // Another client has put a hash in the lock's place that is none of its holders'.
            self.lose(&tracked);
            return self.forget_shared();
        }
        // An earlier run of the server may have given them their tokens, by a clock that was ahead.
        self.token();
        let expiry = self.lease_end();
        let mut mended = SharedHolders::default();
        for owner in holders {
            let known = tracked.remove(&owner);
            let known = known.or_else(|| read_entry(written.get(&owner)?));
            // Another client wrote this holder: it counts as exclusive, until the key expires.
            let mut holder = known.unwrap_or_else(|| {
                let end = expiry.unwrap_or(now);
                Holder::new(Terms::UNKNOWN, end, 0, None)
            });
            // Another client may have set the expiry: no lease ends later, and the last one ends then.
            holder.lease_end = holder.lease_end.min(expiry.unwrap_or(holder.lease_end));
            mended.insert(owner, holder);
        }
        if let (Some(last), Some(expiry)) = (mended.last(), expiry) {
            mended.change(&last, |holder| holder.lease_end = expiry);
        }
        self.lose(&tracked);
        self.write_mended(mended, written);
    }

    /// These have lost the lock: another client has taken them out of its hash.
    fn lose(&mut self, holders: &SharedHolders) {
        for (owner, holder) in holders.iter() {
            let session = holder.session.iter();
            for (connection, _) in session.flat_map(|session| &session.holders) {
                let (connection, owner) = (*connection, Owner::clone(owner));
                self.emit(Event::Unbound { connection, owner });
            }
            let since = holder.since;
            self.emit(Event::LeaseEnded { since });
        }
    }

    fn written_holders(&self) -> HashMap<Owner, Vec<u8>> {
        let key = self.shared.as_ref();
        let fields = key.map(|key| key.some_hash_fields(usize::MAX));
        let fields = fields.into_iter().flatten();
        fields
            .map(|(name, text)| (Owner::from(name), text))
            .collect()
    }

    fn write_mended(&mut self, holders: SharedHolders, mut written: HashMap<Owner, Vec<u8>>) {
        for (owner, holder) in holders.iter() {
            if written.remove(owner) != Some(entry(holder)) {
                self.write_shared(owner, holder);
            }
        }
        if let Some(key) = &mut self.shared {
            for stranger in written.keys() {
                write::remove_field(key, &string(stranger));
            }
        }
        let last_end = holders.last_end();
        self.tracked.shared = Some(Box::new(holders));
        // Other keys may be in their place.
        self.tracked.has_wide_holders = false;
        if let Some(last_end) = last_end {
            self.set_lease_end(last_end);
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
        self.tracked.has_wide_holders = false;
        if let Some(key) = self.shared.as_mut().filter(|key| !key.is_empty()) {
            write::delete(key);
        }
    }
}
