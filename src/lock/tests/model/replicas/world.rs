//! Two servers, what is on its way from one to the other, and what clients were told.

use super::super::world::NAMES;
use super::action::Action;
use super::server::{Keys, Role, Server, TICK};
use super::{Fault, LEASE, Mutation, Promise, Scope};
use crate::lock::{Acquired, Ask, GiveUp, Given, Limit, Millis};

/// An acquisition, or what the holder got that asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    server: usize,
    pub token: i64,
    /// Until when the client counts on it: a lease from before it asked.
    until: Millis,
}

/// What WAIT would say of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// So many steps have still to be carried to the replica.
    Behind(usize),
    /// No replica is connected.
    NoReplica,
    /// The server is the other one's replica by now, or was it in between.
    Refused,
}

/// An owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    pub asked: Option<(Grant, Wait)>,
    confirmed: Option<Grant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub time: Millis,
    pub servers: [Server; 2],
    /// What the replica has not received yet, each step by itself.
    pub stream: Vec<Keys>,
    pub clients: Vec<Client>,
    /// The greatest token that was given, and the greatest that WAIT has confirmed.
    greatest: [i64; 2],
    pub grants: usize,
    pub promotions: usize,
    pub promoted_at: Millis,
}

/// When it begins.
pub const START: Millis = 1_000_000 * TICK;

impl World {
    pub fn new(scope: &Scope, ahead: i64) -> Self {
        Self {
            time: START,
            servers: [
                Server::new(Role::Master, 0),
                Server::new(Role::Replica, ahead),
            ],
            stream: Vec::new(),
            clients: vec![Client::default(); scope.owners],
            greatest: [0; 2],
            grants: 0,
            promotions: 0,
            promoted_at: 0,
        }
    }

    pub fn is_master(&self, server: usize) -> bool {
        self.servers[server].role == Role::Master
    }

    fn has_replica(&self, server: usize) -> bool {
        self.is_master(server) && self.servers[1 - server].role == Role::Replica
    }

    /// The grants that clients have asked for, to which WAIT was not replied yet.
    fn waits(&mut self) -> impl Iterator<Item = &mut (Grant, Wait)> {
        self.clients.iter_mut().flat_map(|client| &mut client.asked)
    }

    /// What follows, and the promises that are broken then.
    pub fn after(&self, action: Action, scope: &Scope) -> (Self, Vec<Promise>) {
        let mut world = self.clone();
        let mut given = None;
        match action {
            Action::Ask(owner, server) => given = world.ask(owner, server),
            Action::Confirm(owner) => world.confirm(owner),
            Action::Release(owner, server) => world.release(owner, server),
            Action::Carry => world.carry(scope),
            Action::Promote(server) => world.promote(server, scope),
            Action::Return(server) => world.come_back(server, scope),
            Action::Restart(server) => {
                world.servers[server].greatest = 0;
                world.come_back(server, scope);
            }
            Action::DeleteToken(server) => world.servers[server].keys.kept = None,
            Action::Tick => world.pass(),
        }
        world.send(self);
        let broken = world.broken(given, self);
        (world, broken)
    }

    /// Returns the token of a new acquisition.
    fn ask(&mut self, owner: usize, server: usize) -> Option<i64> {
        let until = self.time + LEASE;
        let acquired = self.servers[server].step(self.time, |mut step| {
            step.acquire(&Ask {
                owner: NAMES[owner],
                lease: LEASE,
                keeps_longer_lease: false,
                patience: 1,
                once: true,
                session: None,
                limit: Limit::EXCLUSIVE,
            })
        });
        let Acquired { token, reentrant } = acquired.expect("a lock")?;
        let grant = Grant {
            server,
            token,
            until,
        };
        let steps = self.stream.len() + 1;
        let is_sent = self.has_replica(server);
        let wait = is_sent.then_some(Wait::Behind(steps));
        self.clients[owner].asked = Some((grant, wait.unwrap_or(Wait::NoReplica)));
        self.greatest[0] = self.greatest[0].max(token);
        self.grants += 1;
        (!reentrant).then_some(token)
    }

    fn confirm(&mut self, owner: usize) {
        let client = &mut self.clients[owner];
        if let Some((grant, _)) = client.asked.take() {
            client.confirmed = Some(grant);
            self.greatest[1] = self.greatest[1].max(grant.token);
        }
    }

    fn release(&mut self, owner: usize, server: usize) {
        let token = self.servers[server].keys.token;
        let request = GiveUp {
            owner: NAMES[owner],
            token,
            holds: Given::One,
            connection: None,
        };
        let left = self.servers[server].step(self.time, |mut step| step.release(&request));
        assert_eq!(left, Ok(0));
        self.clients[owner] = Client::default();
    }

    fn pass(&mut self) {
        self.time += TICK;
        let time = self.time;
        for client in &mut self.clients {
            client.asked = client.asked.filter(|(grant, _)| time < grant.until);
            client.confirmed = client.confirmed.filter(|grant| time < grant.until);
        }
        for server in &mut self.servers {
            if server.role == Role::Master {
                server.expire(server.now(time));
            }
        }
    }

    /// What a step at the master has changed is on its way.
    fn send(&mut self, before: &Self) {
        let Some(master) = (0..2).find(|server| self.has_replica(*server)) else {
            return;
        };
        let keys = self.servers[master].keys;
        if before.has_replica(master) && keys != before.servers[master].keys {
            self.stream.push(keys);
        }
    }

    fn carry(&mut self, scope: &Scope) {
        let keys = self.stream.remove(0);
        let learns = scope.mutation != Some(Mutation::NotLearned);
        for server in &mut self.servers {
            if server.role == Role::Replica {
                server.receive(keys, learns, self.time);
            }
        }
        for (_, wait) in self.waits() {
            if let Wait::Behind(steps @ 1..) = wait {
                *steps -= 1;
            }
        }
    }

    fn promote(&mut self, server: usize, scope: &Scope) {
        self.stream.clear();
        for (_, wait) in self.waits() {
            if matches!(wait, Wait::Behind(1..)) {
                *wait = Wait::NoReplica;
            }
        }
        let adds_skew = scope.mutation != Some(Mutation::NoSkew);
        self.servers[server].take_over(adds_skew, self.time);
        if !scope.has(Fault::Partition) {
            self.servers[1 - server].role = Role::Lost;
        }
        self.promotions += 1;
        // Where it does not matter, it should not tell worlds apart.
        self.promoted_at = self.time * u64::from(scope.apart > 0);
    }

    fn come_back(&mut self, server: usize, scope: &Scope) {
        let keys = self.servers[1 - server].keys;
        let back = &mut self.servers[server];
        back.role = Role::Replica;
        back.keys = Keys::default();
        let learns = scope.mutation != Some(Mutation::NotLearned);
        let is_late = scope.mutation == Some(Mutation::LateWait);
        back.receive(keys, learns, self.time);
        for (grant, wait) in self.waits() {
            match *wait {
                Wait::NoReplica if grant.server != server => *wait = Wait::Behind(0),
                _ if grant.server == server && !is_late => *wait = Wait::Refused,
                _ => (),
            }
        }
    }

    /// The promises that this world breaks, or a token that was given on the way to it.
    fn broken(&self, given: Option<i64>, before: &Self) -> Vec<Promise> {
        let all = |client: &Client| client.grants().next();
        let confirmed = |client: &Client| client.confirmed;
        // A lease ends by the clock of the server that is the master then.
        let early = self.servers[0].ahead.abs_diff(self.servers[1].ahead);
        let shrinks = |greatest: i64| given.is_some_and(|token| token <= greatest);
        let [of_all, of_confirmed] = before.greatest;
        let broken = [
            (self.are_several(all, early), Promise::OneOwner),
            (
                self.are_several(confirmed, early),
                Promise::OneConfirmedOwner,
            ),
            (self.are_several(confirmed, 0), Promise::OneByClientsClocks),
            (shrinks(of_all), Promise::TokensGrow),
            (shrinks(of_confirmed), Promise::ConfirmedTokensGrow),
        ];
        let broken = broken.into_iter().filter(|(is_broken, _)| *is_broken);
        broken.map(|(_, promise)| promise).collect()
    }

    /// Whether several owners count on a grant, if leases end so much earlier.
    fn are_several(&self, grant: impl Fn(&Client) -> Option<Grant>, early: Millis) -> bool {
        let grants = self.clients.iter().filter_map(grant);
        grants.filter(|of| self.time + early < of.until).count() > 1
    }
}

impl Client {
    /// What it has got, the last first.
    pub fn grants(&self) -> impl Iterator<Item = Grant> {
        let asked = self.asked.map(|(grant, _)| grant);
        asked.into_iter().chain(self.confirmed)
    }
}
