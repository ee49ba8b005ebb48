//! Redisson's scripts and the packages' own (`clients/lua`) in one queue of a server without the module.

use fairlock_testing::{Dice, Server, lua, wait_until};

use crate::hand::{ACQUIRED, Hand, PATIENCE};

/// How the packages ask for `k`, with a patience that no test outlasts.
fn asking(owner: &str) -> String {
    format!("LUA.ACQUIRE k {owner} ENQUEUE PATIENCE 600000 ONCE")
}

#[test]
fn redissons_scripts_drop_no_waiter_of_the_packages() {
    let server = Server::without_module(&[]);
    let mut hand = Hand::of(&server);
    lua::load(&mut hand.client);
    for seed in 1..=30 {
        let mut dice = Dice::new(seed, 0);
        hand.client.run("FLUSHALL");
        let mut handed_over = 0;
        let mut queue: Vec<String> = Vec::new();
        let mut holder = None;
        for number in 0..150 {
            match dice.usize(..5) {
                0 | 1 if queue.len() < 12 => {
                    let is_ours = dice.one_in(2);
                    let owner = if is_ours {
                        format!("own-{number}")
                    } else {
                        format!("jvm:{number}")
                    };
                    if ask_as(&mut hand, &owner) {
                        holder = Some(owner);
                    } else {
                        queue.push(owner);
                    }
                }
                // One that waits asks again.
                2 if !queue.is_empty() => {
                    let owner = queue[dice.usize(..queue.len())].clone();
                    assert!(holder.is_none() || !ask_as(&mut hand, &owner), "{owner}");
                }
                3 if queue.len() > 2 && dice.one_in(3) => {
                    let owner = queue.remove(dice.usize(..queue.len()));
                    if owner.starts_with("own") {
                        let cancel = format!("LUA.CANCEL k {owner}");
                        hand.client.assert_reply(&cancel, "1");
                    } else {
                        hand.leave(&owner, PATIENCE);
                    }
                }
                _ => {
                    if let Some(owner) = holder.take() {
                        give_back(&mut hand, &owner);
                    }
                    if !queue.is_empty() {
                        let head = queue.remove(0);
                        assert!(
                            ask_as(&mut hand, &head),
                            "seed {seed}: it is the turn of {head}"
                        );
                        holder = Some(head);
                        handed_over += 1;
                    }
                }
            }
            let found = hand.queue();
            assert_eq!(
                found,
                format!("[{}]", queue.join(", ")),
                "seed {seed}, step {number}"
            );
        }
        assert!(handed_over > 5, "{handed_over}");
    }
}

/// Waiters behind a dead head are woken, and dropped with it if they do not ask. A client of Redisson cannot show that
/// it lives: it keeps its place, and so do those behind it.
#[test]
fn a_dead_head_costs_redissons_clients_no_place() {
    let server = Server::without_module(&[]);
    let mut hand = Hand::of(&server);
    lua::load(&mut hand.client);
    let redissons = "0b5eb1a4-6a6f-4d5c-9d3e-2f1f3b1c7a10:7";
    assert!(ask_as(&mut hand, "own-holder"));
    assert!(!ask_as(&mut hand, "own-dead-1"));
    assert!(!ask_as(&mut hand, "own-dead-2"));
    hand.waits([redissons]);
    assert!(!ask_as(&mut hand, "own-last"));
    // A head that was silent for a fifth of its turn: those behind it are woken.
    hand_over_and_ask(&mut hand, "own-holder", ("own-dead-1", 4000), "own-last");
    assert!(hand.patience_left("own-dead-2") <= 4000);
    wait_until("the turn of the head is over", || {
        hand.patience_left("own-dead-2") < 0
    });
    assert!(!ask_as(&mut hand, "own-last"));
    assert_eq!(hand.queue(), format!("[{redissons}, own-last]"));
    assert_eq!(hand.lock(redissons, PATIENCE), ACQUIRED);
}

#[test]
fn who_asks_late_in_the_turn_of_a_dead_head_costs_no_living_waiter_its_place() {
    let server = Server::without_module(&[]);
    let mut hand = Hand::of(&server);
    lua::load(&mut hand.client);
    assert!(ask_as(&mut hand, "holder"));
    for waiter in ["dead", "living", "last"] {
        assert!(!ask_as(&mut hand, waiter));
    }
    // Of the 5 s of its turn, half a second is left when the first asks.
    hand_over_and_ask(&mut hand, "holder", ("dead", 500), "last");
    wait_until("the turn of the head is over", || {
        hand.patience_left("dead") < 0
    });
    assert!(!ask_as(&mut hand, "last"));
    assert_eq!(hand.queue(), "[living, last]");
    assert!(ask_as(&mut hand, "living"));
}

/// A holder gives the lock back. A waiter asks, and must wait, with this many milliseconds of the head's turn left.
/// In one transaction: however slow the machine is, no time passes between.
fn hand_over_and_ask(hand: &mut Hand, holder: &str, (head, left): (&str, u64), owner: &str) {
    const SET: &str = "local time = redis.call('TIME')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        return redis.call('ZADD', KEYS[1], 'XX', 'CH', now + ARGV[1], ARGV[2])";
    let client = &mut hand.client;
    client.assert_reply("MULTI", "OK");
    client.run(&format!("LUA.RELEASE k {holder}"));
    let left = left.to_string();
    client.run_words(&["EVAL", SET, "1", "redisson_lock_timeout:{k}", &left, head]);
    client.run(&asking(owner));
    client.assert_start("EXEC", "[0, 1, [");
}

/// Asks for `k` by the scripts of the owner's kind; whether it has it.
fn ask_as(hand: &mut Hand, owner: &str) -> bool {
    if owner.starts_with("jvm") {
        return hand.lock(owner, PATIENCE) == ACQUIRED;
    }
    let reply = hand.client.run(&asking(owner));
    assert!(!reply.starts_with("(error)"), "{reply}");
    !reply.starts_with('[')
}

fn give_back(hand: &mut Hand, owner: &str) {
    if owner.starts_with("jvm") {
        hand.unlock(owner);
    } else {
        let release = format!("LUA.RELEASE k {owner}");
        hand.client.assert_reply(&release, "0");
    }
}
