//! The masters of a cluster.

use redis::Value;

use super::{Link, Target, Trouble};

/// The masters of a server's cluster; without a cluster, the server itself.
pub async fn masters(link: &Link) -> Result<Vec<Target>, Trouble> {
    // INFO comes first: without a cluster, CLUSTER would count as an error at each look.
    let info = link.sender().info(&["cluster"]).await?;
    if !in_cluster(&info) {
        return Ok(vec![link.target.clone()]);
    }
    let slots = link.ask(redis::cmd("CLUSTER").arg("SLOTS")).await?;
    let nodes = addresses(&slots).ok_or_else(|| Trouble::odd("CLUSTER SLOTS", &link.target))?;
    let targets = nodes.into_iter().map(|(host, port)| match host {
        Some(host) => link.target.at(&host, port),
        // The one that was asked, which does not know its own address.
        None => link.target.at(link.target.host(), port),
    });
    Ok(targets.collect())
}

fn in_cluster(info: &str) -> bool {
    info.contains("cluster_enabled:1")
}

/// The masters that CLUSTER SLOTS names, each once, in order of their first slots.
fn addresses(reply: &Value) -> Option<Vec<(Option<String>, u16)>> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    let mut ranges: Vec<_> = ranges.iter().map(range).collect::<Option<_>>()?;
    ranges.sort_unstable_by_key(|(first, _)| *first);
    let mut masters = Vec::new();
    for (_, master) in ranges {
        if !masters.contains(&master) {
            masters.push(master);
        }
    }
    Some(masters)
}

/// `[first slot, last slot, [host, port, ...] of the master, replicas...]`
fn range(range: &Value) -> Option<(i64, (Option<String>, u16))> {
    let Value::Array(parts) = range else {
        return None;
    };
    let [Value::Int(first), _, Value::Array(master), ..] = parts.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else {
        return None;
    };
    let host = text(host).filter(|host| !host.is_empty() && host != "?");
    Some((*first, (host, u16::try_from(*port).ok()?)))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::Nil])
    }

    fn host(host: &str) -> Value {
        Value::BulkString(host.into())
    }

    #[test]
    fn each_master_is_named_once() {
        let replica = || node(host("10.0.0.9"), 9);
        let slots = |first, master| {
            Value::Array(vec![
                Value::Int(first),
                Value::Int(first + 1),
                master,
                replica(),
            ])
        };
        let reply = Value::Array(vec![
            slots(200, node(host("10.0.0.2"), 2)),
            slots(0, node(host("10.0.0.1"), 1)),
            slots(100, node(host("10.0.0.2"), 2)),
            slots(300, node(Value::Nil, 3)),
        ]);
        let expected = vec![
            (Some("10.0.0.1".to_owned()), 1),
            (Some("10.0.0.2".to_owned()), 2),
            (None, 3),
        ];
        assert_eq!(addresses(&reply), Some(expected));
    }

    #[test]
    fn what_names_no_masters_is_not_understood() {
        assert_eq!(addresses(&Value::Nil), None);
        assert_eq!(addresses(&Value::Array(vec![Value::Int(1)])), None);
    }

    #[test]
    fn a_server_says_whether_it_is_in_a_cluster() {
        let info = |yes| format!("# Cluster\r\ncluster_enabled:{yes}\r\n");
        assert!(in_cluster(&info(1)));
        assert!(!in_cluster(&info(0)));
    }
}
