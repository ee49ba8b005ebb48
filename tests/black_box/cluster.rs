//! Names in a cluster.

use crate::server::{Server, wait_until};

#[test]
fn a_cluster_refuses_names_whose_keys_would_be_in_other_slots() {
    let server = Server::with(&["--cluster-enabled", "yes"]);
    let mut client = server.connect();
    client.run("CLUSTER ADDSLOTSRANGE 0 16383");
    wait_until("the cluster is up", || {
        client.run("CLUSTER INFO").contains("cluster_state:ok")
    });
    for key in ["a{b", "{}x", "a}b", "x{}y"] {
        for command in [
            "ACQUIRE {} a",
            "RELEASE {} a",
            "RENEW {} a",
            "CANCEL {} a",
            "BREAK {}",
            "QUEUE {}",
            "INFO {}",
        ] {
            let error = client.run(&format!("FAIRLOCK.{}", command.replacen("{}", key, 1)));
            assert!(
                error.starts_with("(error) CROSSSLOT "),
                "{key} {command}: {error}"
            );
        }
    }
    for key in ["orders", "shop{7}:x", "{a}"] {
        assert!(client.int(&format!("FAIRLOCK.ACQUIRE {key} a")) > 0);
        assert!(
            client
                .run(&format!("FAIRLOCK.ACQUIRE {key} b ENQUEUE"))
                .starts_with("[1, ")
        );
        assert_eq!(client.run(&format!("FAIRLOCK.RELEASE {key} a")), "0");
    }
}

#[test]
fn outside_a_cluster_any_name_will_do() {
    let server = Server::start();
    let mut client = server.connect();
    for key in ["a{b", "{}x", "a}b", "x{}y"] {
        assert!(client.int(&format!("FAIRLOCK.ACQUIRE {key} a")) > 0);
        assert_eq!(client.run(&format!("FAIRLOCK.RELEASE {key} a")), "0");
    }
}
