//! Giving up root: who `-u` names, and becoming that user for good.

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

/// A user of this machine, from `/etc/passwd` and `/etc/group`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Looks a user up by name or number.
pub(crate) fn find(name: &str) -> Result<User, String> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let group = std::fs::read_to_string("/etc/group").unwrap_or_default();
    find_in(name, &passwd, &group).ok_or_else(|| format!("can't find the user {name} to switch to: check -u"))
}

fn find_in(name: &str, passwd: &str, group: &str) -> Option<User> {
    let mut users = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|fields| fields.first() == Some(&name) || fields.get(2) == Some(&name))?;
    let (uid, gid) = (user.get(2)?.parse().ok()?, user.get(3)?.parse().ok()?);
    let mut groups = vec![gid];
    for fields in group.lines().map(|line| line.split(':').collect::<Vec<_>>()) {
        if let [_, _, id, members] = fields[..]
            && members.split(',').any(|member| member == user[0])
            && let Ok(id) = id.parse()
            && !groups.contains(&id)
        {
            groups.push(id);
        }
    }
    Some(User { uid, gid, groups })
}

/// Becomes that user. Must come before any thread is started: the kernel keeps identities per thread.
pub(crate) fn become_user(user: &User, name: &str) -> Result<(), String> {
    let failed = |error| format!("failed to assume the identity of user {name}: {error}");
    let groups: Vec<Gid> = user.groups.iter().map(|id| Gid::from_raw(*id)).collect();
    set_thread_groups(&groups).map_err(failed)?;
    set_thread_gid(Gid::from_raw(user.gid)).map_err(failed)?;
    set_thread_uid(Uid::from_raw(user.uid)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:100:Ann:/home/ann:/bin/sh\n";
        let group = "users:x:100:\ncache:x:7:bob,ann\nother:x:8:joann\n";
        let ann = User { uid: 1000, gid: 100, groups: vec![100, 7] };
        assert_eq!(find_in("ann", passwd, group), Some(ann.clone()));
        assert_eq!(find_in("1000", passwd, group), Some(ann));
        assert_eq!(find_in("nobody-here", passwd, group), None);
    }
}
