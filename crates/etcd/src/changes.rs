//! Who may come and go.
//!
//! Always true: the controller stays; a backend goes once it owns nothing, and is leaving until then; a cache node that comes has its share of backends to
//! cache, and the share of one that goes is others'. A number is one process's for good, which its address says: one that has gone may go on for a lease,
//! and others wait for that, until they hear of this number again. Who stands by for a backend goes before that does, or takes its place.

use std::net::SocketAddr;

use guira_routing::{NodeId, PartitionMap};
use guira_switched::{BackendRole, Member, Role, StaticFile};

/// What has become of a member that was to be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// It is no member any more.
    Gone,
    /// It is to give away what it has; it can be removed once it has nothing.
    Leaving {
        /// So many partitions it has.
        partitions: usize,
    },
}

/// A member may neither come nor go.
fn check_role(member: &Member) -> Result<(), String> {
    match member.role {
        Role::Controller => Err(format!("member {}: the controller does not come and go yet", member.id)),
        Role::Backend(_) | Role::Cache { .. } | Role::Gateway { .. } => Ok(()),
    }
}

/// Whether it is a backend that is to give away what it has.
fn leaving(member: &mut Member) -> Option<&mut bool> {
    if let Role::Backend(backend) = &mut member.role { Some(&mut backend.leaving) } else { None }
}

/// A backend may not come so.
fn check_coming(file: &StaticFile, id: u16, backend: &BackendRole) -> Result<(), String> {
    if backend.leaving {
        return Err(format!("member {id}: who comes is not leaving (guira cluster remove)"));
    }
    if backend.place.is_some() {
        return Err(format!("member {id}: leave out place, which stands in etcd alone"));
    }
    let has_its_place =
        |other: &&Member| other.id != id && other.role.as_backend().is_some_and(|other| other.place == Some(id));
    match file.members.iter().find(has_its_place).filter(|_| backend.standby_of.is_none()) {
        Some(Member { id: other, .. }) => Err(format!(
            "member {id}: member {other} has its place: add it with standby_of = {other} and that one's store, or under another number"
        )),
        None => Ok(()),
    }
}

/// Whether a member is still who it was: where it was, of the role that it had, and with as many parts.
pub(crate) fn is_the_same(member: &Member, before: &Member) -> bool {
    let what = |member: &Member| (canonical(member.address), member.role.name(), member.parts());
    what(member) == what(before)
}

/// One form for an address: IPv4's may be written as IPv6's.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether two members have a number or an address in common.
fn check_apart(member: &Member, other: &Member) -> Result<(), String> {
    for (NodeId(id), address) in member.places() {
        for (NodeId(its), at) in other.places() {
            if id == its && id == member.id && its == other.id {
                return Err(format!("member {id} is there already"));
            }
            if id == its {
                return Err(format!("member {}: number {id} is one of member {}'s", member.id, other.id));
            }
            if canonical(address) == canonical(at) {
                return Err(format!("member {}: {address} is where member {} is", member.id, other.id));
            }
        }
    }
    Ok(())
}

/// Whether one may become the other.
pub(crate) fn check(before: &StaticFile, after: &StaticFile) -> Result<(), String> {
    if before.controller() == after.controller() {
        return Ok(());
    }
    Err("the controller does not come and go yet".into())
}

/// These come.
pub(crate) fn add(file: &mut StaticFile, members: &[Member]) -> Result<(), String> {
    for member in members {
        check_role(member)?;
        if let Some(backend) = member.role.as_backend() {
            check_coming(file, member.id, backend)?;
        }
        let is_standby = member.role.as_backend().is_some_and(|backend| backend.standby_of.is_some());
        let there = file
            .members
            .iter_mut()
            .filter(|_| !is_standby)
            .find(|other| is_the_same(other, member) && other.id == member.id);
        if let Some(leaving) = there.and_then(leaving).filter(|leaving| **leaving) {
            *leaving = false;
            continue;
        }
        file.members.iter().try_for_each(|other| check_apart(member, other))?;
        if let Some(at) = file.former.iter().position(|former| former.id == member.id) {
            let Member { address, role, .. } = &file.former[at];
            if !is_the_same(member, &file.former[at]) {
                let what = match (role, &member.role) {
                    (Role::Cache { threads }, Role::Cache { threads: other }) if threads != other => {
                        format!("cache of {threads} threads")
                    }
                    (role, _) => role.name().to_owned(),
                };
                return Err(format!("member {} was a {what} at {address}: give another one another number", member.id));
            }
            file.former.remove(at);
        }
        for former in &file.former {
            let its = |(number, _): &(NodeId, SocketAddr)| former.places().any(|(its, _)| its == *number);
            if let Some((NodeId(number), _)) = member.places().find(its) {
                return Err(format!(
                    "member {}: number {number} was member {}'s: give it others",
                    member.id, former.id
                ));
            }
        }
        let mut member = member.clone();
        if let Role::Backend(backend) = &mut member.role
            && is_standby
        {
            // Of which it has none before it has the other's.
            backend.cache = None;
        }
        file.members.push(member);
    }
    if members.iter().any(|member| matches!(member.role, Role::Cache { .. } | Role::Backend(_))) {
        file.spread_homes();
    }
    Ok(())
}

/// These go, or are leaving if they own something.
pub(crate) fn remove(file: &mut StaticFile, map: &PartitionMap, ids: &[u16]) -> Result<Vec<Removal>, String> {
    let with_homes = |file: &StaticFile| (file.caches(), file.backends());
    let before = with_homes(file);
    let mut removals = Vec::with_capacity(ids.len());
    for id in ids {
        let at = file.members.iter().position(|member| member.id == *id);
        let at = at.ok_or_else(|| format!("member {id} is not there"))?;
        check_role(&file.members[at])?;
        let partitions = map.partitions_of(NodeId(*id)).count();
        removals.push(match leaving(&mut file.members[at]) {
            Some(leaving) if partitions > 0 => {
                *leaving = true;
                Removal::Leaving { partitions }
            }
            _ => {
                if let Some(standby) = file.standby_for(NodeId(*id)) {
                    return Err(format!("member {} stands by for member {id}: remove that one first", standby.0));
                }
                let gone = file.members.remove(at);
                file.former.push(gone);
                Removal::Gone
            }
        });
    }
    if file.gateways().is_empty() {
        return Err("no gateway would be left: add another one first".into());
    }
    if file.staying().is_empty() {
        return Err("no backend would be left that stays: add another one first".into());
    }
    if with_homes(file) != before {
        file.spread_homes();
    }
    Ok(removals)
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use guira_switched::CacheMode;

    use super::*;

    fn member(id: u16, role: Role) -> Member {
        Member::new(id, ([127, 0, 0, 1], id).into(), role)
    }

    fn backend(id: u16, cache: Option<u16>) -> Member {
        member(id, Role::backend(cache))
    }

    fn gateway(id: u16) -> Member {
        member(id, Role::Gateway { listen: ([127, 0, 0, 1], 11_211).into(), cache_mode: CacheMode::default() })
    }

    fn cluster(caches: &[u16], homes: &[Option<u16>]) -> StaticFile {
        let mut members = vec![member(1, Role::Controller), gateway(10_000)];
        members.extend(caches.iter().map(|id| member(*id, Role::CACHE)));
        members.extend(homes.iter().zip(1_000..).map(|(cache, id)| backend(id, *cache)));
        let file = StaticFile { secret: "0123456789abcdef".into(), members, ..StaticFile::default() };
        file.check().expect("a cluster");
        file
    }

    fn over(backends: &[u16]) -> PartitionMap {
        PartitionMap::over(&backends.iter().copied().map(NodeId).collect::<Vec<_>>()).expect("a map")
    }

    fn homes(file: &StaticFile) -> Vec<Option<u16>> {
        let home = |member: &Member| member.role.as_backend().map(|backend| backend.cache);
        file.members.iter().filter_map(home).collect()
    }

    #[test]
    fn cache_nodes_have_like_shares_whoever_comes_or_goes() {
        let (a, b, c) = (Some(100), Some(101), Some(102));
        let mut file = cluster(&[100, 101, 102], &[a, a, a, b, b, c]);
        remove(&mut file, &over(&[1_000]), &[100]).expect("it goes");
        file.check().expect("a cluster");
        assert_eq!(homes(&file), [b, c, c, b, b, c]);
        add(&mut file, &[member(100, Role::CACHE)]).expect("it comes");
        assert_eq!(homes(&file), [b, c, c, b, a, a]);
        remove(&mut file, &over(&[1_000]), &[100, 101, 102]).expect("they go");
        file.check().expect("a cluster");
        assert_eq!(homes(&file), [None; 6]);
    }

    #[test]
    fn a_number_is_given_to_nobody_else() {
        let mut file = cluster(&[100, 101], &[Some(100)]);
        remove(&mut file, &over(&[1_000]), &[100]).expect("it goes");
        let elsewhere = Member { address: ([127, 0, 0, 1], 9).into(), ..member(100, Role::CACHE) };
        let told = add(&mut file, &[elsewhere]).expect_err("it is somewhere else");
        assert_eq!(told, "member 100 was a cache at 127.0.0.1:100: give another one another number");
        let other = Member { address: member(100, Role::CACHE).address, ..gateway(100) };
        assert!(add(&mut file, &[other]).is_err());
        assert_eq!(file.former, [member(100, Role::CACHE)]);
        add(&mut file, &[member(100, Role::CACHE)]).expect("it is back");
        assert_eq!((file.former.len(), file.caches().len()), (0, 2));
    }

    #[test]
    fn the_numbers_of_threads_are_given_to_nobody_else_either() {
        let cache = |id, threads| member(id, Role::Cache { threads: NonZero::new(threads).expect("not none") });
        let mut file = cluster(&[100], &[Some(100)]);
        add(&mut file, &[cache(200, 4)]).expect("it comes");
        file.check().expect("a cluster");
        for (another, says) in [
            (member(202, Role::CACHE), "member 202: number 202 is one of member 200's"),
            (cache(198, 3), "member 198: number 200 is one of member 200's"),
            (
                Member { address: ([127, 0, 0, 1], 203).into(), ..gateway(7) },
                "member 7: 127.0.0.1:203 is where member 200 is",
            ),
            (
                Member { address: ([127, 0, 0, 1], 99).into(), ..cache(7, 2) },
                "member 7: 127.0.0.1:100 is where member 100 is",
            ),
        ] {
            assert_eq!(add(&mut file.clone(), &[another]), Err(says.into()));
        }
        remove(&mut file, &over(&[1_000]), &[200]).expect("it goes");
        let told = add(&mut file, &[member(203, Role::CACHE)]).expect_err("it was another's");
        assert_eq!(told, "member 203: number 203 was member 200's: give it others");
        let told = add(&mut file, &[cache(200, 3)]).expect_err("it had other threads");
        assert_eq!(told, "member 200 was a cache of 4 threads at 127.0.0.1:200: give another one another number");
        add(&mut file, &[cache(200, 4)]).expect("it is back");
        assert_eq!((file.former.len(), file.caches().parts_len()), (0, 5));
        assert!(!is_the_same(&cache(200, 4), &cache(200, 2)), "a process that runs is told that it is another");
    }

    #[test]
    fn a_gateway_that_comes_or_goes_changes_nothing_for_backends() {
        let mut file = cluster(&[100, 101], &[Some(100), None]);
        add(&mut file, &[gateway(10_001)]).expect("it comes");
        remove(&mut file, &over(&[1_000]), &[10_000]).expect("it goes");
        file.check().expect("a cluster");
        assert_eq!((homes(&file), file.gateways().len()), (vec![Some(100), None], 1));
    }

    #[test]
    fn a_backend_leaves_until_it_owns_nothing_and_may_stay_after_all() {
        let (a, b) = (Some(100), Some(101));
        let mut file = cluster(&[100, 101], &[a, b]);
        add(&mut file, &[backend(1_002, None)]).expect("it comes");
        file.check().expect("a cluster");
        assert_eq!(homes(&file), [a, b, a]);
        let map = over(&[1_000, 1_001]);
        let partitions = map.partitions_of(NodeId(1_001)).count();
        for _ in 0..2 {
            assert_eq!(remove(&mut file, &map, &[1_001]), Ok(vec![Removal::Leaving { partitions }]));
            assert_eq!((file.backends().len(), file.staying()), (3, vec![NodeId(1_000), NodeId(1_002)]));
            file.check().expect("a cluster");
        }
        assert_eq!(homes(&file), [a, b, a], "it has keys to be cached");
        add(&mut file, &[backend(1_001, a)]).expect("it stays");
        assert_eq!((file.staying().len(), homes(&file)), (3, vec![a, b, a]));
        // Those that own nothing go at once, be they leaving or not.
        assert_eq!(remove(&mut file, &map, &[1_001]), Ok(vec![Removal::Leaving { partitions }]));
        assert_eq!(remove(&mut file, &over(&[1_000]), &[1_001, 1_002]), Ok(vec![Removal::Gone; 2]));
        file.check().expect("a cluster");
        assert_eq!(homes(&file), [a]);
        let elsewhere = Member { address: ([127, 0, 0, 1], 9).into(), ..backend(1_001, None) };
        assert!(add(&mut file, &[elsewhere]).is_err());
        add(&mut file, &[backend(1_001, None)]).expect("it is back");
        assert_eq!((file.staying().len(), homes(&file)), (2, vec![a, b]));
    }

    #[test]
    fn a_backend_that_leaves_is_not_taken_for_another() {
        let mut file = cluster(&[100], &[None, None]);
        remove(&mut file, &over(&[1_000, 1_001]), &[1_001]).expect("it leaves");
        let elsewhere = Member { address: ([127, 0, 0, 1], 9).into(), ..backend(1_001, None) };
        assert_eq!(add(&mut file, &[elsewhere]), Err("member 1001 is there already".into()));
        let mut leaving = backend(1_001, None);
        *super::leaving(&mut leaving).expect("a backend") = true;
        let told = add(&mut file, &[leaving]).expect_err("it comes to leave");
        assert!(told.starts_with("member 1001: who comes is not leaving"), "{told}");
        let told = remove(&mut file, &over(&[1_000, 1_001]), &[1_000]).expect_err("nobody would stay");
        assert!(told.starts_with("no backend would be left"), "{told}");
    }

    fn on_cassandra(id: u16, standby_of: Option<u16>) -> Member {
        let store = "cassandra:h/a".into();
        member(id, Role::Backend(BackendRole { store, standby_of, ..BackendRole::default() }))
    }

    #[test]
    fn who_stands_by_goes_first_or_takes_the_place() {
        let mut file = cluster(&[100], &[None]);
        file.members.push(on_cassandra(1_001, None));
        add(&mut file, &[on_cassandra(1_002, Some(1_001))]).expect("it stands by");
        file.check().expect("a cluster");
        let map = over(&[1_000]);
        let told = remove(&mut file.clone(), &map, &[1_001]).expect_err("another one stands by for it");
        assert!(told.starts_with("member 1002 stands by for member 1001"), "{told}");
        let mut without = file.clone();
        assert_eq!(remove(&mut without, &map, &[1_002, 1_001]), Ok(vec![Removal::Gone; 2]));
        file.take_place(NodeId(1_002)).expect("it stands by");
        let told = add(&mut file, &[backend(1_001, None)]).expect_err("its place is another's");
        assert!(told.starts_with("member 1001: member 1002 has its place"), "{told}");
        // Nobody's place is taken by one that stands by, or in a file.
        add(&mut file, &[on_cassandra(1_001, Some(1_002))]).expect("it is back");
        file.check().expect("a cluster");
        let placed = member(1_003, Role::Backend(BackendRole { place: Some(7), ..BackendRole::default() }));
        let told = add(&mut file, &[placed]).expect_err("it says so itself");
        assert!(told.starts_with("member 1003: leave out place"), "{told}");
    }

    #[test]
    fn what_is_not_done_is_said_in_a_line() {
        let elsewhere = |address: &str, member: Member| Member { address: address.parse().expect("one"), ..member };
        let cache = |id| member(id, Role::CACHE);
        for (members, says) in [
            (vec![cache(100)], "member 100 is there already"),
            (vec![cache(101), cache(101)], "member 101 is there already"),
            (vec![elsewhere("127.0.0.1:100", cache(7))], "member 7: 127.0.0.1:100 is where member 100 is"),
            (vec![elsewhere("[::ffff:127.0.0.1]:100", cache(7))], "member 7: [::ffff:127.0.0.1]:100 is where"),
            (vec![member(2, Role::Controller)], "member 2: the controller does not"),
        ] {
            let told = add(&mut cluster(&[100], &[None]), &members).expect_err(says);
            assert!(told.starts_with(says), "{told}");
        }
        for (ids, says) in [
            (vec![7], "member 7 is not there"),
            (vec![100, 100], "member 100 is not there"),
            (vec![1_000], "no backend would be left that stays"),
            (vec![1_001], "member 1001 is not there"),
            (vec![1], "member 1: the controller does not"),
            (vec![10_000], "no gateway would be left"),
        ] {
            let told = remove(&mut cluster(&[100], &[None]), &over(&[1_000]), &ids).expect_err(says);
            assert!(told.starts_with(says), "{told}");
        }
    }
}
