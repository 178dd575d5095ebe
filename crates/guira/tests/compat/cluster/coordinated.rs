//! Who is in a cluster that etcd keeps, as operators say and ask it.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use super::etcd::Server;
use crate::server::Program;

const CLUSTER: &str = r#"
    cluster = "shop"
    secret = "not much of a secret"
    [[member]]
    id = 1
    role = "controller"
    address = "127.0.0.1:7001"
    [[member]]
    id = 100
    role = "cache"
    address = "127.0.0.1:7002"
    [[member]]
    id = 1000
    role = "backend"
    address = "127.0.0.1:7003"
    cache = 100
    [[member]]
    id = 10000
    role = "gateway"
    address = "127.0.0.1:7004"
    listen = "127.0.0.1:11211"
"#;

fn member(id: u16, role: &str, port: u16) -> String {
    format!("[[member]]\nid = {id}\nrole = \"{role}\"\naddress = \"127.0.0.1:{port}\"\n")
}

fn cluster(what: &str, coordinator: &str, rest: &[&str]) -> Output {
    let mut command = Command::new(Program::Guira.path());
    command.args(["cluster", what, "--coordinator", coordinator]).args(rest).stdin(Stdio::null());
    command.output().expect("it is run")
}

#[track_caller]
fn says(output: &Output, told: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(told), "{said}");
}

/// It is refused, in a line.
#[track_caller]
fn refuses(output: &Output, told: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.lines().count() == 1 && said.contains(told), "{said}");
}

fn members(coordinator: &str) -> Value {
    let output = cluster("members", coordinator, &["--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn ids(members: &Value) -> Vec<u64> {
    members["members"].as_array().expect("an array").iter().filter_map(|member| member["id"].as_u64()).collect()
}

fn write<'p>(path: &'p Path, text: &str) -> &'p str {
    fs::write(path, text).expect("it is written");
    path.to_str().expect("text")
}

#[test]
fn operators_say_who_is_in_a_cluster_that_etcd_keeps() {
    let folder = tempfile::tempdir().expect("a folder");
    let [made, more, other] = ["cluster.toml", "more.toml", "other.toml"].map(|name| folder.path().join(name));
    let (made, more, other) = (
        write(&made, CLUSTER),
        write(&more, &member(101, "cache", 7_005)),
        write(&other, &member(1_001, "backend", 7_006)),
    );
    let server = Server::start();
    let etcd = format!("etcd:{}/shop", server.address());

    refuses(&cluster("members", &etcd, &[]), "no cluster shop is in etcd");
    refuses(&cluster("create", &format!("etcd:{}", server.address()), &[made]), "give both one name");
    says(&cluster("create", &etcd, &[made]), &format!("guira node --coordinator {etcd} --secret-file FILE --id N"));
    refuses(&cluster("create", &etcd, &[made]), "a cluster shop is in etcd already");
    assert_eq!(ids(&members(&etcd)), [1, 100, 1_000, 10_000]);

    says(&cluster("add", &etcd, &[more]), "member 101 is one of cluster shop now");
    refuses(&cluster("add", &etcd, &[more]), "member 101 is there already");
    refuses(&cluster("add", &etcd, &[made]), "line 2: unknown field `cluster`");
    says(&cluster("remove", &etcd, &["100"]), "member 100 is none of cluster shop any more");
    refuses(&cluster("remove", &etcd, &["100"]), "member 100 is not there");
    refuses(&cluster("remove", &etcd, &["1000"]), "no backend would be left that stays");
    let members = members(&etcd);
    assert_eq!(ids(&members), [1, 1_000, 10_000, 101]);
    let cache = json!({"id": 101, "role": "cache", "address": "127.0.0.1:7005", "threads": 1, "life": null});
    assert_eq!(members["members"][3], cache);
    let table = String::from_utf8(cluster("members", &etcd, &[]).stdout).expect("text");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[4], ["cache", "101", "127.0.0.1:7005", "-", "not", "heard", "of"]);

    says(&cluster("add", &etcd, &[other]), "member 1001 is one of cluster shop now");
    let told = "member 1000 has 16384 partitions and is not heard of: it gives them to others when it runs again";
    says(&cluster("remove", &etcd, &["1000"]), told);
}

#[test]
fn what_is_no_coordinator_is_said_in_a_line() {
    refuses(&cluster("members", "static:cluster.toml", &[]), "write etcd:HOST:PORT");
    refuses(&cluster("members", "etcd:", &[]), "etcd:: write etcd:HOST:PORT,...[/NAME]; '': write HOST:PORT");
    refuses(&cluster("remove", "etcd:127.0.0.1:1/a/b", &["7"]), "'a/b': a name has");
}
