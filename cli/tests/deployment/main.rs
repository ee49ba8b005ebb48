//! The files for deployments: `examples/kubernetes`, `compose.yaml` and the `Dockerfile`, held against published
//! schemas and against each other. `make test-dockerfile` starts a server.

#![allow(missing_docs)]
// A test that cannot go on panics; that is its way of failing.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod health;

use std::fs;
use std::process::Command;

use fairlock_testing::Server;
use fairlock_testing::paths::root;
use serde_json::Value;

/// Releases of Kubernetes whose schemas the manifests are held against: what is old by now, and the newest.
const KUBERNETES: [&str; 2] = ["1.29.0", "1.37.0"];
/// Where the server's module, the companion and the health check are, in a pod.
const POD_FOLDER: &str = "/fairlock";

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
    let output = command.arg(schema).arg(root().join(file)).output();
    let output = output.expect("started");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    // A kind without a schema is only a warning.
    let is_good = output.status.success() && !said.contains("find schema");
    assert!(is_good, "{schema}: {said}");
}

#[test]
fn kubernetes_and_compose_know_all_that_the_files_say() {
    for release in KUBERNETES {
        check(release, "examples/kubernetes/fairlock.yaml");
    }
    check("compose", "compose.yaml");
    // No port is open to other machines by default.
    let project = &documents("compose.yaml")[0]["services"];
    for service in ["server", "metrics"] {
        let port = project[service]["ports"][0].as_str();
        let port = port.expect("a port");
        assert!(port.starts_with("127.0.0.1:"), "{service}: {port}");
    }
}

/// The document of a kind.
fn kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let found = documents.iter().find(|document| document["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}"))
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list.as_array().into_iter().flatten();
    let mut found = found.filter(|entry| entry["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {name}: {list}"))
}

/// Schemas see no references: what is mounted, selected and asked for by name has to be there.
#[test]
fn the_manifests_fit_together() {
    let all = documents("examples/kubernetes/fairlock.yaml");
    let set = &kind(&all, "StatefulSet")["spec"];
    let labels = &set["template"]["metadata"]["labels"];
    assert_eq!(&set["selector"]["matchLabels"], labels);
    assert_eq!(
        &kind(&all, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        labels
    );
    for service in all.iter().filter(|document| document["kind"] == "Service") {
        assert_eq!(&service["spec"]["selector"], labels);
    }
    let pods = |document: &&Value| document["metadata"]["name"] == set["serviceName"];
    let pods = all.iter().find(pods).expect("the service of the pods");
    assert_eq!(pods["spec"]["clusterIP"], "None");
    let monitor = &documents("examples/kubernetes/podmonitor.yaml")[0]["spec"];
    assert_eq!(&monitor["selector"]["matchLabels"], labels);

    let pod = &set["template"]["spec"];
    let server = named(&pod["containers"], "server");
    let metrics = named(&pod["containers"], "metrics");
    let port = &monitor["podMetricsEndpoints"][0]["port"];
    let port = named(&metrics["ports"], port.as_str().expect("a name"));
    let listening = format!(":{}", port["containerPort"]);
    let command = metrics["command"].as_array().expect("a command");
    assert!(command.contains(&Value::from(listening)), "{command:?}");
    let (volumes, claims) = (&pod["volumes"], &set["volumeClaimTemplates"]);
    for mount in server["volumeMounts"].as_array().expect("mounts") {
        let claimed = claims[0]["metadata"]["name"] == mount["name"];
        let name = mount["name"].as_str().expect("a name");
        assert!(claimed || named(volumes, name).is_object());
    }
    let secret = &kind(&all, "Secret")["stringData"];
    let acl = secret["users.acl"].as_str().expect("users");
    let url = secret["metrics-url"].as_str().expect("a URL");
    let (user, rest) = url
        .trim_start_matches("redis://")
        .split_once(':')
        .expect("a user");
    let (password, _) = rest.split_once('@').expect("a password");
    let has = |line: &str| line.starts_with(&format!("user {user} on >{password} "));
    assert!(acl.lines().any(has), "{acl}");
    let prober = named(&server["env"], "FAIRLOCK_HEALTH_USER")["value"].as_str();
    let prober = format!("user {} on nopass ", prober.expect("a user"));
    let may_ping = |line: &str| line.starts_with(&prober) && line.ends_with(" -@all +ping");
    assert!(acl.lines().any(may_ping), "{acl}");
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
    let info = app.run("FAIRLOCK.INFO orders");
    assert!(info.contains("owner, ann,"), "{info}");
}

/// What the values for the official chart have of fairlock is what is tried with the manifests.
#[test]
fn the_charts_values_have_the_containers_and_probes_of_the_manifests() {
    let all = documents("examples/kubernetes/fairlock.yaml");
    let pod = &kind(&all, "StatefulSet")["spec"]["template"]["spec"];
    let values = &documents("examples/kubernetes/valkey-values.yaml")[0];
    let (init, own) = (&pod["initContainers"][0], &values["extraInitContainers"][0]);
    for part in ["image", "command", "securityContext", "volumeMounts"] {
        assert_eq!(init[part], own[part], "{part}");
    }
    let metrics = named(&pod["containers"], "metrics");
    let own = named(&values["extraContainers"], "fairlock-metrics");
    for part in ["image", "command", "securityContext"] {
        assert_eq!(metrics[part], own[part], "{part}");
    }
    let server = named(&pod["containers"], "server");
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(server[probe], values[probe]["customProbe"], "{probe}");
    }
    let volume = &values["extraVolumes"][0]["name"];
    assert_eq!(
        volume,
        &values["extraInitContainers"][0]["volumeMounts"][0]["name"]
    );
    let mount = &values["extraVolumeMounts"][0];
    assert_eq!(
        (volume, mount["mountPath"].as_str()),
        (&mount["name"], Some(POD_FOLDER))
    );
    let options = values["valkeyConfig"].as_str().expect("options");
    let load = format!("loadmodule {POD_FOLDER}/libfairlock.so");
    assert!(options.lines().any(|line| line == load), "{options}");
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
    for (path, page) in [
        ("/etc/fairlock/conf.d/", &server),
        ("/etc/fairlock/conf.d/", &compose),
        ("/etc/fairlock/fairlock.conf", &server),
        ("/etc/fairlock/fairlock.conf", &docker),
        ("/usr/lib/redis/modules/libfairlock.so", &server),
        ("/usr/lib/redis/modules/libfairlock.so", &docker),
        ("/etc/fairlock/server.conf", &docker),
    ] {
        assert!(page.contains(path), "{path} is not in: {page}");
    }
    // What is copied is there, and the toolchain is the one that the sources are built with.
    for file in [
        "packaging/image/health",
        "packaging/image/server.conf",
        "scripts/package/options",
    ] {
        let is_there = docker.contains(file) && root().join(file).exists();
        assert!(is_there, "{file}");
    }
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = \""));
    let channel = channel.expect("a channel").trim_end_matches('"');
    let image = format!("FROM rust:{channel}-bookworm AS build\nENV RUSTUP_TOOLCHAIN={channel}\n");
    assert!(docker.contains(&image), "{image} is not in: {docker}");
}
