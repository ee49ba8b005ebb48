//! The files for deployments: `examples/kubernetes`, `compose.yaml` and the `Dockerfile`, held against published
//! schemas and against each other. `make test-dockerfile` starts a server.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod health;

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
    for service in all.iter().filter(|document| document["kind"] == "Service") {
        assert_eq!(&service["spec"]["selector"], labels);
        let is_of_pods = service["metadata"]["name"] == set["serviceName"];
        assert_eq!(service["spec"]["clusterIP"] == "None", is_of_pods);
    }
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
    // Who asks for metrics and for the server's health is among the users.
    let secret = &kind(&all, "Secret")["stringData"];
    let users = secret["users.acl"].as_str().expect("users");
    let url = secret["metrics-url"].as_str().expect("a URL");
    let user = url.trim_start_matches("redis://").split(['@', ':']);
    let [name, password] = [0, 1].map(|at| user.clone().nth(at).expect("a user"));
    assert!(users.contains(&format!("user {name} on >{password} ")));
    let prober = &named(&server["env"], &"FAIRLOCK_HEALTH_USER".into())["value"];
    let prober = prober.as_str().expect("a user");
    assert!(users.contains(&format!("user {prober} on nopass ")));
}

/// Servers replay the transactions of the append-only file with the permissions of the default user, also if it is off.
#[test]
fn the_users_of_the_manifests_let_locks_survive_a_restart() {
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
}

/// What the values for the official chart have of fairlock is what is tried with the manifests.
#[test]
fn the_charts_values_have_the_containers_and_probes_of_the_manifests() {
    let all = documents("examples/kubernetes/fairlock.yaml");
    let pod = &kind(&all, "StatefulSet")["spec"]["template"]["spec"];
    let values = &documents("examples/kubernetes/valkey-values.yaml")[0];
    let (init, own) = (&pod["initContainers"][0], &values["extraInitContainers"][0]);
    let metrics = named(&pod["containers"], &"metrics".into());
    let own_metrics = &values["extraContainers"][0];
    for part in ["image", "command", "securityContext"] {
        assert_eq!(init[part], own[part], "{part}");
        assert_eq!(metrics[part], own_metrics[part], "{part}");
    }
    assert_eq!(init["volumeMounts"], own["volumeMounts"]);
    let server = named(&pod["containers"], &"server".into());
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(server[probe], values[probe]["customProbe"], "{probe}");
    }
    let (volume, mount) = (&values["extraVolumes"][0], &values["extraVolumeMounts"][0]);
    for named in [mount, &own["volumeMounts"][0]] {
        assert_eq!(volume["name"], named["name"]);
    }
    let module = mount["mountPath"].as_str().expect("a folder");
    let load = format!("\nloadmodule {module}/libfairlock.so\n");
    let options = values["valkeyConfig"].as_str().expect("options");
    assert!(options.contains(&load), "{options}");
    // Two servers at a time would give the same locks out twice.
    assert_eq!(values["deploymentStrategy"], "Recreate");
    assert_eq!(values["dataStorage"]["enabled"], true);
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
