//! The files for deployments: `examples/kubernetes`, `compose.yaml` and the `Dockerfile`, held against published
//! schemas and against each other. `make test-dockerfile` starts a server.

// All of it is for tests: one that cannot go on panics.
#![cfg(test)]

use std::fs;
use std::process::Command;

use fairlock_testing::paths::root;
use fairlock_testing::{Program, Server};
use serde_json::Value;

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents of a YAML file, as a list.
fn documents(path: &str) -> Value {
    let all = serde_saphyr::from_multiple(&text(path));
    Value::Array(all.unwrap_or_else(|error| panic!("{path}: {error}")))
}

#[test]
fn kubernetes_and_compose_know_all_that_the_files_say() {
    let manifests = "examples/kubernetes/fairlock.yaml";
    for (schema, file) in [
        // Of Kubernetes what is old by now, and the newest.
        ("1.29.0", manifests),
        ("1.37.0", manifests),
        ("compose", "compose.yaml"),
    ] {
        let mut command = Command::new(root().join("scripts/package/manifests"));
        command.arg(schema).arg(root().join(file));
        let ended = Program::start(&mut command).end();
        let said = ended.out + &ended.errors;
        // A kind without a schema is only a warning.
        let is_good = ended.code == 0 && !said.contains("find schema");
        assert!(is_good, "{schema}: {said}");
    }
    // No port is open to other machines by default.
    for service in ["server", "metrics"] {
        let project = &documents("compose.yaml")[0]["services"];
        let port = project[service]["ports"][0].as_str().unwrap_or_default();
        assert!(port.starts_with("127.0.0.1:"), "{service}: {port}");
    }
}

/// The one of a list whose field has this value.
fn of<'a>(list: &'a Value, field: &str, value: impl Into<Value>) -> &'a Value {
    let value = value.into();
    let mut entries = list.as_array().into_iter().flatten();
    let found = entries.find(|entry| entry[field] == value);
    found.unwrap_or_else(|| panic!("no {value}: {list}"))
}

/// Schemas see no references: what is mounted, selected and asked for by name has to be there.
#[test]
fn the_manifests_fit_together() {
    let all = documents("examples/kubernetes/fairlock.yaml");
    let set = &of(&all, "kind", "StatefulSet")["spec"];
    let pod = &set["template"]["spec"];
    let labels = &set["template"]["metadata"]["labels"];
    let monitor = &documents("examples/kubernetes/podmonitor.yaml")[0]["spec"];
    let budget = &of(&all, "kind", "PodDisruptionBudget")["spec"];
    for selects in [set, budget, monitor] {
        assert_eq!(&selects["selector"]["matchLabels"], labels);
    }
    let service = of(&all, "kind", "Service");
    assert_eq!(service["spec"]["selector"], *labels);
    assert_eq!(service["metadata"]["name"], set["serviceName"]);
    let [server, metrics] = ["server", "metrics"].map(|name| of(&pod["containers"], "name", name));
    let port = &monitor["podMetricsEndpoints"][0]["port"];
    let port = &of(&metrics["ports"], "name", port.clone())["containerPort"];
    assert_eq!(*port, 9121); // The default of redis_exporter.
    let claimed = &set["volumeClaimTemplates"][0]["metadata"]["name"];
    for container in [server, metrics] {
        for mount in container["volumeMounts"].as_array().expect("mounts") {
            if mount["name"] != *claimed {
                of(&pod["volumes"], "name", mount["name"].clone());
            }
        }
    }
}

/// Servers replay the transactions of the append-only file with the permissions of the default user, also if it is off. A
/// replica that may not serve stale data refuses as a server does that is loading.
#[test]
fn with_the_manifests_users_locks_survive_a_restart_and_metrics_and_probes_work() {
    let all = documents("examples/kubernetes/fairlock.yaml");
    let secret = &of(&all, "kind", "Secret")["stringData"];
    let users = secret["users.acl"].as_str().expect("users");
    // What asks the server here is the default user. Its permissions are those of the manifests.
    let open = users.replace("user default off ", "user default on nopass ");
    assert_ne!(open, users, "the default user is not off");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("users.acl");
    fs::write(&file, open).expect("written");
    let file = file.display();
    let options = format!("--aclfile {file} --appendonly yes --appendfsync always");
    let (server, mut app) = Server::connected_with(&options.split(' ').collect::<Vec<_>>());
    app.run("AUTH app change-me-1");
    app.int("FAIRLOCK.ACQUIRE orders ann LEASE 600000");
    let server = server.kill_and_restart();
    let mut app = server.connect();
    app.run("AUTH app change-me-1");
    app.assert_has("FAIRLOCK.INFO orders", "owner, ann,");

    let url = secret["metrics-url"].as_str().expect("a URL");
    let user = url.trim_start_matches("redis://").split([':', '@']);
    let user: Vec<_> = user.take(2).collect();
    let mut metrics = server.connect();
    metrics.run(&format!("AUTH {}", user.join(" ")));
    let script = text("examples/metrics/redis_exporter.lua");
    let figures = metrics.raw(&[b"EVAL", script.as_bytes(), b"0"]);
    figures.expect("what the script says");

    let containers = &of(&all, "kind", "StatefulSet")["spec"]["template"]["spec"]["containers"];
    let container = of(containers, "name", "server");
    let probed = |port: u16| {
        ["startupProbe", "readinessProbe", "livenessProbe"].map(|probe| {
            let words = container[probe]["exec"]["command"].as_array();
            let words = words.into_iter().flatten().filter_map(Value::as_str);
            let mut command = Command::new("redis-cli");
            command.args(["-p", &port.to_string()]).args(words.skip(1));
            Program::start(&mut command).end().code
        })
    };
    assert_eq!(probed(server.port), [0, 0, 0]);
    let mut admin = server.connect();
    admin.run("CONFIG SET replica-serve-stale-data no");
    admin.run("REPLICAOF 127.0.0.1 1");
    assert_eq!(probed(server.port), [1, 1, 0]);
    assert_eq!(probed(1), [1, 1, 1]);
}

/// What compose mounts and starts is where the Dockerfile and the server's configuration have it.
#[test]
fn the_dockerfile_compose_and_the_configuration_name_the_same_files() {
    let docker = text("Dockerfile");
    let server = text("packaging/image/server.conf");
    let compose = text("compose.yaml");
    for (path, pages) in [
        ("/etc/fairlock/conf.d/", [&server, &compose]),
        ("/etc/fairlock/fairlock.conf", [&server, &docker]),
        ("/usr/lib/redis/modules/libfairlock.so", [&server, &docker]),
    ] {
        assert!(pages.iter().all(|page| page.contains(path)), "{path}");
    }
    let files = docker.split_whitespace();
    let mut files = files.filter(|word| word.starts_with("packaging/image/"));
    assert!(files.all(|file| root().join(file).exists()));
    // The toolchain is the one that the sources are built with.
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain.split('"').nth(1).expect("a channel");
    let image = format!("FROM rust:{channel}-bookworm AS build\nENV RUSTUP_TOOLCHAIN={channel}\n");
    assert!(docker.contains(&image), "{image}");
}
