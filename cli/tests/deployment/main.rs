//! The files for deployments: `examples/kubernetes`, `compose.yaml` and the `Dockerfile`, held against published
//! schemas and against each other. `make test-dockerfile` starts a server.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::process::Command;

use fairlock_testing::paths::root;
use fairlock_testing::{Program, Server};
use serde_json::Value;

/// Releases of Kubernetes whose schemas the manifests are held against: what is old by now, and the newest.
const KUBERNETES: [&str; 2] = ["1.29.0", "1.37.0"];

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents of a YAML file.
fn documents(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Holds a file against the schema of a release of Kubernetes, or of `compose`.
#[track_caller]
fn check(schema: &str, file: &str) {
    let mut command = Command::new(root().join("scripts/package/manifests"));
    command.arg(schema).arg(root().join(file));
    let ended = Program::start(&mut command).end();
    let said = ended.out + &ended.errors;
    // A kind without a schema is only a warning.
    let is_good = ended.code == 0 && !said.contains("find schema");
    assert!(is_good, "{schema}: {said}");
}

#[test]
fn kubernetes_and_compose_know_all_that_the_files_say() {
    for release in KUBERNETES {
        check(release, "examples/kubernetes/fairlock.yaml");
    }
    check("compose", "compose.yaml");
    // No port is open to other machines by default.
    for service in ["server", "metrics"] {
        let project = &documents("compose.yaml")[0]["services"];
        let port = project[service]["ports"][0].as_str().unwrap_or_default();
        assert!(port.starts_with("127.0.0.1:"), "{service}: {port}");
    }
}

/// The document of a kind.
fn kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let found = documents.iter().find(|document| document["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}"))
}

fn named<'a>(list: &'a Value, name: &Value) -> &'a Value {
    let mut found = list.as_array().into_iter().flatten();
    let found = found.find(|entry| entry["name"] == *name);
    found.unwrap_or_else(|| panic!("no {name}: {list}"))
}

/// Schemas see no references: what is mounted, selected and asked for by name has to be there.
#[test]
fn the_manifests_fit_together() {
    let all = documents("examples/kubernetes/fairlock.yaml");
    let set = &kind(&all, "StatefulSet")["spec"];
    let (pod, labels) = (
        &set["template"]["spec"],
        &set["template"]["metadata"]["labels"],
    );
    let monitor = &documents("examples/kubernetes/podmonitor.yaml")[0]["spec"];
    let budget = &kind(&all, "PodDisruptionBudget")["spec"];
    for selects in [set, budget, monitor] {
        assert_eq!(&selects["selector"]["matchLabels"], labels);
    }
    let service = kind(&all, "Service");
    assert_eq!(service["spec"]["selector"], *labels);
    assert_eq!(service["metadata"]["name"], set["serviceName"]);
    let [server, metrics] =
        ["server", "metrics"].map(|name| named(&pod["containers"], &name.into()));
    let port = &monitor["podMetricsEndpoints"][0]["port"];
    let listening = format!(":{}", named(&metrics["ports"], port)["containerPort"]);
    assert_eq!(metrics["command"][3], listening);
    let claimed = &set["volumeClaimTemplates"][0]["metadata"]["name"];
    for mount in server["volumeMounts"].as_array().expect("mounts") {
        if mount["name"] != *claimed {
            named(&pod["volumes"], &mount["name"]);
        }
    }
    // Who asks for metrics is among the users.
    let secret = &kind(&all, "Secret")["stringData"];
    let users = secret["users.acl"].as_str().expect("users");
    let url = secret["metrics-url"].as_str().expect("a URL");
    let user = url.trim_start_matches("redis://").split(['@', ':']);
    let [name, password] = [0, 1].map(|at| user.clone().nth(at).expect("a user"));
    assert!(users.contains(&format!("user {name} on >{password} ")));
}

/// Servers replay the transactions of the append-only file with the permissions of the default user, also if it is off. A
/// replica that may not serve stale data refuses as a server does that is loading.
#[test]
fn with_the_manifests_users_locks_survive_a_restart_and_probes_tell_how_the_server_is() {
    let all = documents("examples/kubernetes/fairlock.yaml");
    let users = kind(&all, "Secret")["stringData"]["users.acl"].as_str();
    let users = users.expect("users");
    // What asks the server here is the default user. Its permissions are those of the manifests.
    let open = users.replace("user default off ", "user default on nopass ");
    assert_ne!(open, users, "the default user is not off");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("users.acl");
    fs::write(&file, open).expect("written");
    let options = format!(
        "--aclfile {} --appendonly yes --appendfsync always",
        file.display()
    );
    let (server, mut app) = Server::connected_with(&options.split(' ').collect::<Vec<_>>());
    app.run("AUTH app change-me-1");
    app.int("FAIRLOCK.ACQUIRE orders ann LEASE 600000");
    let server = server.kill_and_restart();
    let mut app = server.connect();
    app.run("AUTH app change-me-1");
    app.assert_has("FAIRLOCK.INFO orders", "owner, ann,");

    let containers = &kind(&all, "StatefulSet")["spec"]["template"]["spec"]["containers"];
    let container = named(containers, &"server".into());
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
    let module = "/usr/lib/redis/modules/libfairlock.so";
    for (path, pages) in [
        ("/etc/fairlock/conf.d/", [&server, &compose]),
        ("/etc/fairlock/fairlock.conf", [&server, &docker]),
        (module, [&server, &docker]),
    ] {
        let is_in_both = pages.iter().all(|page| page.contains(path));
        assert!(is_in_both, "{path}");
    }
    let files = docker.split_whitespace();
    let mut files = files.filter(|word| word.starts_with("packaging/image/"));
    assert!(files.all(|file| root().join(file).exists()));
    // The toolchain is the one that the sources are built with.
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain.split("channel = \"").nth(1);
    let channel = channel.and_then(|rest| rest.split('"').next());
    let channel = channel.expect("a channel");
    let image = format!("FROM rust:{channel}-bookworm AS build\nENV RUSTUP_TOOLCHAIN={channel}\n");
    assert!(docker.contains(&image), "{image}");
}
