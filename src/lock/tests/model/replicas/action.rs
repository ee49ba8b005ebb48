//! What can happen next.

use super::server::{Role, Server, TICK};
use super::world::{Client, START, Wait, World};
use super::{Fault, Mutation, Scope};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An owner sends a server ACQUIRE ... NOWAIT ONCE. One that blocks is one that asks at the right moment.
    Ask(usize, usize),
    /// The WAIT that follows tells it that the replica has its grant.
    Confirm(usize),
    /// An owner gives up what it has, at a server.
    Release(usize, usize),
    /// The replica receives what one step has changed.
    Carry,
    /// The replica becomes the master.
    Promote(usize),
    /// A master becomes the other one's replica, whose data replaces its own.
    Return(usize),
    /// The same, and it has restarted: it knows nothing else.
    Restart(usize),
    /// Somebody deletes the token's key.
    DeleteToken(usize),
    /// Time passes.
    Tick,
}

impl World {
    /// Whatever can happen next.
    pub fn actions(&self, scope: &Scope) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.time < START + scope.ticks * TICK {
            actions.push(Action::Tick);
        }
        if !self.stream.is_empty() {
            actions.push(Action::Carry);
        }
        for server in 0..2 {
            self.at(server, scope, &mut actions);
        }
        let ignored = scope.mutation == Some(Mutation::WaitIgnored);
        let is_confirmed = |wait: Wait| ignored || wait == Wait::Behind(0);
        for (owner, client) in self.clients.iter().enumerate() {
            if client.asked.is_some_and(|(_, wait)| is_confirmed(wait)) {
                actions.push(Action::Confirm(owner));
            }
        }
        actions
    }

    fn at(&self, server: usize, scope: &Scope, actions: &mut Vec<Action>) {
        let Server { role, keys, .. } = self.servers[server];
        let has_room = self.stream.len() < 2;
        if role == Role::Master && has_room {
            // Of the owners that nothing tells apart one stands for all.
            let new = (0..scope.owners).find(|owner| self.is_new(*owner));
            for (owner, client) in self.clients.iter().enumerate() {
                if self.is_new(owner) && new != Some(owner) {
                    continue;
                }
                let is_holder = keys.holder == Some(owner);
                if is_holder && client.grants().any(|of| keys.token == Some(of.token)) {
                    actions.push(Action::Release(owner, server));
                }
                if self.grants < scope.grants && (is_holder || keys.holder.is_none()) {
                    actions.push(Action::Ask(owner, server));
                }
            }
            if scope.has(Fault::Delete) && keys.kept.is_some() {
                actions.push(Action::DeleteToken(server));
            }
        }
        let is_apart = self.time >= self.promoted_at + scope.apart;
        let loses_nothing = scope.has(Fault::Loss) || self.stream.is_empty();
        if role == Role::Replica && is_apart && loses_nothing && self.promotions < scope.promotions
        {
            actions.push(Action::Promote(server));
        }
        if role != Role::Replica && self.is_master(1 - server) {
            actions.push(Action::Return(server));
            if scope.has(Fault::Restart) {
                actions.push(Action::Restart(server));
            }
        }
    }

    /// Whether an owner has nothing, and no key names it.
    fn is_new(&self, owner: usize) -> bool {
        let mut keys = self.servers.iter().map(|server| &server.keys);
        self.clients[owner] == Client::default()
            && keys.all(|keys| keys.holder != Some(owner))
            && self.stream.iter().all(|keys| keys.holder != Some(owner))
    }
}

impl Scope {
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}
