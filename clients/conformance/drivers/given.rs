//! What the lines give: a client of the redis crate, and options of the package.

use std::collections::HashMap;

use fairlock_client::{Options, Server};
use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, ClientTlsConfig, IntoConnectionInfo as _, ProtocolVersion, TlsCertificates, TlsMode,
};
use serde_json::{Value, from_value};

pub fn server(to: &Value) -> Server {
    let file = |name| std::fs::read(to["tls"][name].as_str()?).ok();
    let tls = file("cert").zip(file("key"));
    let tls = tls.map(|(client_cert, client_key)| TlsCertificates {
        client_tls: Some(ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: file("ca"),
    });
    let urls: Vec<String> = from_value(to["urls"].clone()).unwrap();
    match to["kind"].as_str().unwrap() {
        "sentinel" => {
            let info = |url: &String| url.as_str().into_connection_info().unwrap();
            let at = urls.iter().map(|url| info(url).addr().clone());
            let mut made =
                SentinelClientBuilder::new(at, "locks", SentinelServerType::Master).unwrap();
            if let Some(password) = to["password"].as_str() {
                made = made.set_client_to_redis_username(to["username"].as_str().unwrap());
                made = made.set_client_to_redis_password(password);
            }
            if let Some(tls) = tls {
                made = made.set_client_to_redis_tls_mode(TlsMode::Secure);
                made = made.set_client_to_redis_certificates(tls.clone());
                made = made.set_client_to_sentinel_certificates(tls);
            }
            made.build().unwrap().into()
        }
        "cluster" => {
            let map: HashMap<String, String> = from_value(to["map"].clone()).unwrap_or_default();
            let map = map
                .iter()
                .map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
            let mut made = ClusterClient::builder(urls)
                .use_protocol(ProtocolVersion::RESP3)
                .node_address_map(map.collect());
            if let Some(tls) = tls {
                made = made.certs(tls);
            }
            made.build().unwrap().into()
        }
        _ => {
            let url = &urls[0][..];
            let made =
                tls.map_or_else(|| Client::open(url), |tls| Client::build_with_tls(url, tls));
            made.unwrap().into()
        }
    }
}

pub fn options(mut all: Options, r: &Value) -> Options {
    let given = &r["options"];
    macro_rules! set {
        ($($field:ident)*) => {
            $(if let Some(value) = given.get(stringify!($field)) {
                all.$field = from_value(value.clone()).unwrap();
            })*
        };
    }
    set!(wait lease renew session owner reentrant shared limit sync_timeout min_replicas patience retry_timeout command_timeout release_timeout);
    all.require_module |= given["module"] == "required";
    all
}
