//! `guira cluster create|add|remove|members`: who is in a cluster that a coordinator keeps. What is done is in crate `guira-etcd`; here it is asked for
//! and told.

use std::{
    fs,
    path::{Path, PathBuf},
};

use guira_etcd::{Etcd, Known, Removal, Share};
use guira_switched::{Member, Role, StaticFile};
use serde_json::{Value, json};

use super::tell;
use crate::{
    coordinator::{Coordinator, EtcdArguments},
    node,
};

/// Who keeps it.
#[derive(clap::Args, Debug)]
struct Keeper {
    /// Where it stands who is in the cluster: `etcd:HOST:PORT,...[/NAME]`
    #[arg(long)]
    coordinator: Coordinator,
    #[command(flatten)]
    etcd: EtcdArguments,
}

impl Keeper {
    fn connect(&self) -> Result<Etcd, String> {
        match &self.coordinator {
            Coordinator::Etcd(place) => self.etcd.connect(place),
            Coordinator::Static(_) => {
                Err(format!("--coordinator {}: write etcd:HOST:PORT,...[/NAME]", self.coordinator))
            }
        }
    }
}

#[derive(clap::Args, Debug)]
pub(super) struct Create {
    #[command(flatten)]
    keeper: Keeper,
    /// The cluster, as for `guira node --coordinator static:FILE`; its secret stays where it is
    file: PathBuf,
}

impl Create {
    pub(super) fn run(&self) -> Result<(), String> {
        let file = node::read(&self.file)?;
        let etcd = self.keeper.connect()?;
        etcd.create(&file).map_err(|error| error.to_string())?;
        let (name, place) = (etcd.place().name(), etcd.place());
        tell(&format!("cluster {name} is in etcd, without its secret: give each member that in a file of its own"));
        tell(&format!("guira node --coordinator etcd:{place} --secret-file FILE --id N"));
        Ok(())
    }
}

#[derive(clap::Args, Debug)]
pub(super) struct Add {
    #[command(flatten)]
    keeper: Keeper,
    /// The members: `[[member]]` tables as in the file of a cluster, and nothing else. A backend is given its part of the keys by the others, once it
    /// runs; one that is there and leaving stays, and is given back what it is to have. One with `standby_of = N` has nothing, and takes over what backend N
    /// has in a Cassandra once that does not serve any more
    file: PathBuf,
}

impl Add {
    pub(super) fn run(&self) -> Result<(), String> {
        let members = read_members(&self.file)?;
        let etcd = self.keeper.connect()?;
        etcd.add(&members).map_err(|error| error.to_string())?;
        let name = etcd.place().name();
        match &members[..] {
            [member] => tell(&format!("member {} is one of cluster {name} now", member.id)),
            members => tell(&format!("{} members are of cluster {name} now", members.len())),
        }
        tell(&format!("guira node --coordinator etcd:{} --secret-file FILE --id N", etcd.place()));
        Ok(())
    }
}

fn read_members(path: &Path) -> Result<Vec<Member>, String> {
    let told = |told: &str| format!("{}: {told}", path.display());
    let text = fs::read_to_string(path).map_err(|error| told(&error.to_string()))?;
    StaticFile::parse_members(&text).map_err(|error| told(&error.to_string()))
}

#[derive(clap::Args, Debug)]
pub(super) struct Remove {
    #[command(flatten)]
    keeper: Keeper,
    /// Numbers of members. A backend that has partitions gives them to the others first: once `guira cluster members` shows that it has none, remove it
    /// again
    #[arg(required = true)]
    id: Vec<u16>,
}

impl Remove {
    pub(super) fn run(&self) -> Result<(), String> {
        let etcd = self.keeper.connect()?;
        let (_, removals) = etcd.remove(&self.id).map_err(|error| error.to_string())?;
        let name = etcd.place().name();
        let gone: Vec<u16> = self
            .id
            .iter()
            .zip(&removals)
            .filter(|(_, removal)| **removal == Removal::Gone)
            .map(|(id, _)| *id)
            .collect();
        match &gone[..] {
            [] => {}
            [id] => tell(&format!("member {id} is none of cluster {name} any more: it ends by itself")),
            ids => tell(&format!("{} members are none of cluster {name} any more: they end by themselves", ids.len())),
        }
        let leaving = self.id.iter().zip(removals).filter_map(|(id, removal)| match removal {
            Removal::Leaving { partitions } => Some((*id, partitions)),
            Removal::Gone => None,
        });
        let leaving: Vec<_> = leaving.collect();
        if leaving.is_empty() {
            return Ok(());
        }
        // They are leaving, whether it can be told that they are alive or not.
        let known = etcd.members().unwrap_or_default();
        for (id, partitions) in leaving {
            let is_silent = known.iter().any(|known| known.member.id == id && known.alive.is_none());
            tell(&leaves(id, partitions, is_silent));
        }
        Ok(())
    }
}

/// What is said of a backend that has something to give first.
fn leaves(id: u16, partitions: usize, is_silent: bool) -> String {
    let then = "once `guira cluster members` shows that it has none, remove it again, and it ends";
    if is_silent {
        format!(
            "member {id} has {partitions} partitions and is not heard of: it gives them to others when it runs again, or who stands by for it has them; \
             {then}"
        )
    } else {
        format!("member {id} gives its {partitions} partitions to others; {then}")
    }
}

#[derive(clap::Args, Debug)]
pub(super) struct Members {
    #[command(flatten)]
    keeper: Keeper,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Members {
    pub(super) fn run(&self) -> Result<(), String> {
        let members = self.keeper.connect()?.members().map_err(|error| error.to_string())?;
        if self.json {
            println!("{}", json!({ "members": members.iter().map(shown).collect::<Vec<_>>() }));
        } else {
            print!("{}", table(&members));
        }
        Ok(())
    }
}

fn is_leaving(member: &Member) -> bool {
    member.role.as_backend().is_some_and(|backend| backend.leaving)
}

fn standby_of(member: &Member) -> Option<u16> {
    member.role.as_backend().and_then(|backend| backend.standby_of)
}

fn shown(Known { member, alive, share }: &Known) -> Value {
    let mut shown = json!({
        "id": member.id,
        "role": member.role.name(),
        "address": member.address,
        "life": alive.map(|alive| alive.life),
    });
    if let Role::Cache { threads } = member.role {
        shown["threads"] = json!(threads);
    }
    if let Some(of) = standby_of(member) {
        shown["standby_of"] = json!(of);
    }
    if let Some(Share { partitions, wanted }) = share {
        shown["partitions"] = json!(partitions);
        shown["partitions_wanted"] = json!(wanted);
        shown["leaving"] = json!(is_leaving(member));
    }
    shown
}

fn table(members: &[Known]) -> String {
    let mut text = format!("{:<12}{:>8}  {:<24}{:<16}it is\n", "member", "number", "address", "partitions");
    for Known { member, alive, share } in members {
        let has =
            share.map_or_else(|| "-".to_owned(), |Share { partitions, wanted }| format!("{partitions} of {wanted}"));
        let is = alive.map_or_else(|| "not heard of".to_owned(), |alive| format!("alive, life {}", alive.life.0));
        let leaving = is_leaving(member).then(|| ", leaving".to_owned());
        let threads = member.parts().get();
        let threads = (threads > 1).then(|| format!(", with {threads} threads"));
        let standby = standby_of(member).map(|of| format!(", stands by for {of}"));
        let more: String = [leaving, threads, standby].into_iter().flatten().collect();
        let (role, address) = (member.role.name(), member.address.to_string());
        text += &format!("{role:<12}{:>8}  {address:<24}{has:<16}{is}{more}\n", member.id);
    }
    text
}
