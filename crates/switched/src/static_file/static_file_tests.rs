//! What a cluster's file may say, and what it is told that it may not.

use super::*;

const SMALL: &str = r#"
        secret = "0123456789abcdef"
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

#[test]
fn what_is_printed_is_read_again() {
    let file = StaticFile::parse(SMALL).expect("a cluster");
    assert_eq!(StaticFile::parse(&file.print().expect("it can be written")), Ok(file.clone()));
    let printed = file.print_without_secret().expect("it can be written");
    assert!(!printed.contains(&file.secret));
    assert_eq!(StaticFile::parse(&printed), Err(StaticFileError::Secret));
    assert_eq!(StaticFile::parse_with_secret(&printed, file.secret.clone()), Ok(file.clone()));
    assert_eq!((file.controller(), file.caches()), (NodeId(1), vec![NodeId(100)]));
    assert_eq!((file.backends(), file.gateways()), (vec![NodeId(1_000)], vec![NodeId(10_000)]));
    assert_eq!(file.members().map(|members| members.epoch()), Ok(EPOCH));
}

/// The cache nodes of backends, with those that there are.
fn spread(caches: &[u16], homes: &[Option<u16>]) -> Vec<Option<u16>> {
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let cache = |id: &u16| Member { id: *id, address, role: Role::Cache };
    let backend = |(id, cache): (u16, &Option<u16>)| {
        let role =
            Role::Backend { cache: *cache, store: memory(), store_limit: None, request_limit: None, leaving: false };
        Member { id, address, role }
    };
    let members = caches.iter().map(cache).chain((1_000..).zip(homes).map(backend)).collect();
    let mut file = StaticFile { members, ..StaticFile::default() };
    file.spread_homes();
    let of = |member: &Member| if let Role::Backend { cache, .. } = member.role { Some(cache) } else { None };
    file.members.iter().filter_map(of).collect()
}

#[test]
fn homes_are_spread_and_few_change() {
    let [a, b, c] = [1, 2, 3].map(Some);
    assert_eq!(spread(&[1, 2], &[a, b, a, b, a]), [a, b, a, b, a]);
    assert_eq!(spread(&[1, 2, 3], &[a, b, a, b, a, b]), [a, b, a, b, c, c]);
    assert_eq!(spread(&[1, 2, 3], &[b, b, b, b, a]), [b, b, a, c, a]);
    assert_eq!(spread(&[2], &[a, b, a, None]), [b; 4]);
    assert_eq!(spread(&[1, 2], &[None; 3]), [a, a, b]);
    assert_eq!(spread(&[], &[a, b, None]), [None; 3]);
}

#[test]
fn who_is_leaving_is_to_have_nothing_where_that_may_be() {
    let backend = "[[member]]\nid = 1001\nrole = \"backend\"\naddress = \"127.0.0.1:7005\"\n";
    let file = StaticFile::parse(&format!("{SMALL}\n{backend}")).expect("a cluster");
    assert_eq!(file.wanted(), file.partitions());
    assert!(!file.print().expect("it can be written").contains("leaving"));
    let text = format!("{SMALL}\n{backend}leaving = true\n");
    assert_eq!(StaticFile::parse(&text), Err(StaticFileError::Leaves(1_001)));
    let file = StaticFile::parse_with_secret(&text, file.secret).expect("a cluster");
    assert_eq!(
        StaticFile::parse_with_secret(&file.print().expect("it can be written"), file.secret.clone()),
        Ok(file.clone())
    );
    assert_eq!((file.backends().len(), file.staying()), (2, vec![NodeId(1_000)]));
    assert_eq!(file.wanted(), Ok(PartitionMap::over(&[NodeId(1_000)]).expect("a map")));
    let text = text.replace("cache = 100", "leaving = true");
    assert_eq!(StaticFile::parse_with_secret(&text, file.secret), Err(StaticFileError::AllLeave));
}

#[test]
fn what_is_no_cluster_is_said_in_a_line() {
    let told = |text: &str| StaticFile::parse(text).expect_err(text).to_string();
    let without = |from: &str, to: &str| SMALL.replace(from, to);
    for (text, says) in [
        (without("0123456789abcdef", "short"), "secret: at least 16 bytes, such as of `openssl rand -hex 16`"),
        (without("id = 100\n", "id = 1000\n"), "members:"),
        (without("127.0.0.1:7002", "127.0.0.1:7001"), "members:"),
        (without("127.0.0.1:7002", "0.0.0.0:7002"), "member 100: its address has to be"),
        (without("cache = 100", "cache = 7"), "member 1000: its cache, 7, is no cache node"),
        (without("\"controller\"", "\"cache\""), "0 members are the controller: one has to be"),
        (without("role = \"gateway\"", "role = \"nothing\""), "line "),
        (format!("lease_ms = 5\n{SMALL}"), "lease_ms: from 100 to 60000"),
        (format!("item_len_max = 16777217\n{SMALL}"), "item_len_max: from 1024 to 16777216"),
        (format!("lease = 5\n{SMALL}"), "line "),
        (without("cache = 100", "cash = 100"), "line "),
        ("secret = \"0123456789abcdef\"".into(), "0 members are the controller: one has to be"),
    ] {
        let line = told(&text);
        assert!(line.starts_with(says), "{line}");
    }
}
