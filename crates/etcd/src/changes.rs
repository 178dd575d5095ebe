//! Who may come and go.
//!
//! Always true: backends and the controller stay, since partitions follow from who the backends are; a cache node that comes has its share of them to
//! cache, and the share of one that goes is others'. A number is one process's for good, which its address says: one that has gone may go on for a lease,
//! and others wait for that, until they hear of this number again.

use guira_switched::{Member, Role, StaticFile};

/// Why a member of this role neither comes nor goes.
fn stays(member: &Member) -> Option<String> {
    match member.role {
        Role::Backend { .. } => Some(format!("member {}: backends do not come and go yet", member.id)),
        Role::Controller => Some(format!("member {}: the controller does not come and go yet", member.id)),
        Role::Cache | Role::Gateway { .. } => None,
    }
}

/// Whether a member is still who it was: where it was, and of the role that it had.
pub(crate) fn is_the_same(member: &Member, before: &Member) -> bool {
    let place = |member: &Member| (member.address.ip().to_canonical(), member.address.port());
    (place(member), member.role.name()) == (place(before), before.role.name())
}

/// Whether one may become the other: partitions follow from who the backends are.
pub(crate) fn check(before: &StaticFile, after: &StaticFile) -> Result<(), String> {
    let staying = |file: &StaticFile| (file.backends(), file.controller());
    if staying(before) == staying(after) {
        return Ok(());
    }
    Err("backends and the controller do not come and go yet".into())
}

/// These come.
pub(crate) fn add(file: &mut StaticFile, members: &[Member]) -> Result<(), String> {
    for member in members {
        if let Some(why) = stays(member) {
            return Err(why);
        }
        let ip = member.address.ip().to_canonical();
        for other in &file.members {
            if other.id == member.id {
                return Err(format!("member {} is there already", member.id));
            }
            if other.address.ip().to_canonical() == ip && other.address.port() == member.address.port() {
                return Err(format!("member {}: {} is where member {} is", member.id, member.address, other.id));
            }
        }
        if let Some(at) = file.former.iter().position(|former| former.id == member.id) {
            let Member { address, role, .. } = &file.former[at];
            if (*address, role.name()) != (member.address, member.role.name()) {
                let role = role.name();
                return Err(format!("member {} was a {role} at {address}: give another one another number", member.id));
            }
            file.former.remove(at);
        }
        file.members.push(member.clone());
    }
    if members.iter().any(|member| member.role == Role::Cache) {
        file.spread_homes();
    }
    Ok(())
}

/// These go.
pub(crate) fn remove(file: &mut StaticFile, ids: &[u16]) -> Result<(), String> {
    let caches = file.caches();
    for id in ids {
        let at = file.members.iter().position(|member| member.id == *id);
        let at = at.ok_or_else(|| format!("member {id} is not there"))?;
        if let Some(why) = stays(&file.members[at]) {
            return Err(why);
        }
        let gone = file.members.remove(at);
        file.former.push(gone);
    }
    if file.gateways().is_empty() {
        return Err("no gateway would be left: add another one first".into());
    }
    if file.caches() != caches {
        file.spread_homes();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use guira_switched::CacheMode;

    use super::*;

    fn member(id: u16, role: Role) -> Member {
        Member { id, address: ([127, 0, 0, 1], id).into(), role }
    }

    fn backend(id: u16, cache: Option<u16>) -> Member {
        member(id, Role::Backend { cache, store: "memory".into(), store_limit: None, request_limit: None })
    }

    fn gateway(id: u16) -> Member {
        member(id, Role::Gateway { listen: ([127, 0, 0, 1], 11_211).into(), cache_mode: CacheMode::default() })
    }

    fn cluster(caches: &[u16], homes: &[Option<u16>]) -> StaticFile {
        let mut members = vec![member(1, Role::Controller), gateway(10_000)];
        members.extend(caches.iter().map(|id| member(*id, Role::Cache)));
        members.extend(homes.iter().zip(1_000..).map(|(cache, id)| backend(id, *cache)));
        let file = StaticFile { secret: "0123456789abcdef".into(), members, ..StaticFile::default() };
        file.check().expect("a cluster");
        file
    }

    fn homes(file: &StaticFile) -> Vec<Option<u16>> {
        let home = |member: &Member| match member.role {
            Role::Backend { cache, .. } => Some(cache),
            _ => None,
        };
        file.members.iter().filter_map(home).collect()
    }

    #[test]
    fn cache_nodes_have_like_shares_whoever_comes_or_goes() {
        let (a, b, c) = (Some(100), Some(101), Some(102));
        let mut file = cluster(&[100, 101, 102], &[a, a, a, b, b, c]);
        remove(&mut file, &[100]).expect("it goes");
        file.check().expect("a cluster");
        assert_eq!(homes(&file), [b, c, c, b, b, c]);
        add(&mut file, &[member(100, Role::Cache)]).expect("it comes");
        assert_eq!(homes(&file), [b, c, c, b, a, a]);
        remove(&mut file, &[100, 101, 102]).expect("they go");
        file.check().expect("a cluster");
        assert_eq!(homes(&file), [None; 6]);
    }

    #[test]
    fn a_number_is_given_to_nobody_else() {
        let mut file = cluster(&[100, 101], &[Some(100)]);
        remove(&mut file, &[100]).expect("it goes");
        let elsewhere = Member { address: ([127, 0, 0, 1], 9).into(), ..member(100, Role::Cache) };
        let told = add(&mut file, &[elsewhere]).expect_err("it is somewhere else");
        assert_eq!(told, "member 100 was a cache at 127.0.0.1:100: give another one another number");
        let other = Member { address: member(100, Role::Cache).address, ..gateway(100) };
        assert!(add(&mut file, &[other]).is_err());
        assert_eq!(file.former, [member(100, Role::Cache)]);
        add(&mut file, &[member(100, Role::Cache)]).expect("it is back");
        assert_eq!((file.former.len(), file.caches().len()), (0, 2));
    }

    #[test]
    fn a_gateway_that_comes_or_goes_changes_nothing_for_backends() {
        let mut file = cluster(&[100, 101], &[Some(100), None]);
        add(&mut file, &[gateway(10_001)]).expect("it comes");
        remove(&mut file, &[10_000]).expect("it goes");
        file.check().expect("a cluster");
        assert_eq!((homes(&file), file.gateways().len()), (vec![Some(100), None], 1));
    }

    #[test]
    fn what_is_not_done_is_said_in_a_line() {
        let elsewhere = |address: &str, member: Member| Member { address: address.parse().expect("one"), ..member };
        let cache = |id| member(id, Role::Cache);
        for (members, says) in [
            (vec![cache(100)], "member 100 is there already"),
            (vec![cache(101), cache(101)], "member 101 is there already"),
            (vec![elsewhere("127.0.0.1:100", cache(7))], "member 7: 127.0.0.1:100 is where member 100 is"),
            (vec![elsewhere("[::ffff:127.0.0.1]:100", cache(7))], "member 7: [::ffff:127.0.0.1]:100 is where"),
            (vec![backend(1_001, None)], "member 1001: backends do not come and go yet"),
            (vec![member(2, Role::Controller)], "member 2: the controller does not"),
        ] {
            let told = add(&mut cluster(&[100], &[None]), &members).expect_err(says);
            assert!(told.starts_with(says), "{told}");
        }
        for (ids, says) in [
            (vec![7], "member 7 is not there"),
            (vec![100, 100], "member 100 is not there"),
            (vec![1_000], "member 1000: backends do not come and go yet"),
            (vec![1], "member 1: the controller does not"),
            (vec![10_000], "no gateway would be left"),
        ] {
            let told = remove(&mut cluster(&[100], &[None]), &ids).expect_err(says);
            assert!(told.starts_with(says), "{told}");
        }
    }
}
