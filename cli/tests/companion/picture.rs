//! The picture of the documentation: a live server, looked at twice, painted as in a terminal.
//! `make picture` writes it; the test always makes one.

use std::fs;

use clap::Parser as _;
use fairlock_cli::args::{Args, Subcommand};
use fairlock_cli::server::Target;
use fairlock_cli::top::board::Board;
use fairlock_cli::top::collect::Collector;
use fairlock_cli::top::{draw, picture};
use fairlock_testing::{Blocked, Client, Server};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// Locks of several kinds; what holds and waits.
fn scene(server: &Server) -> (Vec<Client>, Vec<Blocked>) {
    let mut client = server.connect();
    for (lock, owner, lease) in [
        (
            "orders:dispatch",
            "web-3:8841:2b8c71f0-5d7e-4e0a-9c55-0f6a1c2d3e4f",
            30_000,
        ),
        ("billing:month-end", "batch-1:77", 300_000),
        ("cache:rebuild", "web-1:8790", 40_000),
    ] {
        client.int(&format!("FAIRLOCK.ACQUIRE {lock} {owner} LEASE {lease}"));
    }
    let mut bound = server.connect();
    bound.int("FAIRLOCK.ACQUIRE deploy:production ci-runner-4:2214 SESSION LEASE 10000");
    let waiters = [
        "orders:dispatch web-1:8790",
        "orders:dispatch web-2:8802",
        "orders:dispatch web-4:8817",
        "orders:dispatch web-5:8899",
        "billing:month-end batch-2:81",
        "billing:month-end batch-3:90",
        "deploy:production ci-runner-1:1987",
    ];
    let waiting = waiters
        .iter()
        .map(|waiter| server.block(&format!("FAIRLOCK.ACQUIRE {waiter}")));
    let waiting = waiting.collect();
    (vec![client, bound], waiting)
}

/// A lock that changes hands.
fn hand_on(server: &Server, times: usize) {
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE stock:4711 till-0 LEASE 60000");
    for time in 0..times {
        let (holder, waiter) = (format!("till-{time}"), format!("till-{}", time + 1));
        let blocked = server.block(&format!("FAIRLOCK.ACQUIRE stock:4711 {waiter} LEASE 60000"));
        client.int(&format!("FAIRLOCK.RELEASE stock:4711 {holder}"));
        blocked.int();
    }
    client.run("FAIRLOCK.ACQUIRE stock:4711 till-a ENQUEUE");
}

#[test]
fn a_live_server_is_painted() {
    let server = Server::start();
    let (_clients, _waiting) = scene(&server);
    let args = Args::try_parse_from(["fairlock", "top"]).expect("a command line");
    let Subcommand::Top(args) = args.command else {
        panic!("another subcommand");
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    let target = Target::parse(&url).expect("a URL");
    let mut board = Board::new(&args, target.db());
    let mut collector = Collector::new(target, &args);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut look = || {
        let reading = runtime.block_on(collector.read());
        board.show(reading.expect("a server"));
    };
    look();
    hand_on(&server, 20);
    // As if half of the lease were over, so that the bars differ.
    let half = "FAIRLOCK.RENEW cache:rebuild web-1:8790 LEASE 20000";
    assert_eq!(server.connect().run(half), "20000");
    look();
    let mut terminal = Terminal::new(TestBackend::new(110, 14)).expect("a terminal");
    terminal
        .draw(|frame| draw::draw(frame, &board))
        .expect("drawn");
    let svg = picture::svg(terminal.backend().buffer());
    let svg = svg.replace(&format!("127.0.0.1:{}", server.port), "127.0.0.1:6379");
    for shown in [
        "orders:dispatch",
        "web-3:8841:",
        "batch-2:81",
        "cache:rebuild",
        "till-20",
        "ci-runner-4:2214",
        "/s",
    ] {
        assert!(svg.contains(shown), "{shown}: {svg}");
    }
    assert_eq!(board.rows().len(), 5);
    if let Ok(path) = std::env::var("FAIRLOCK_PICTURE") {
        fs::write(path, svg).expect("written");
    }
}
