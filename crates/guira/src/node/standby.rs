//! A backend that stands by for another one (`docs/design/0026`).
//!
//! Always true: a standby is put into the place of who it stands by for once the keyspace is its own, whose last owner answers nothing any more then; and
//! only if it is still what it was when it began to wait.

use std::sync::{Arc, mpsc::Receiver};

use guira_item::store::Store;
use guira_persist::cassandra::{CassandraOptions, CassandraStore};
use serde_json::json;

use super::{Begun, Ends, Kept, Start, cassandra::goes_on};

impl Start<'_> {
    /// Waits until the keyspace can be had, alive for whoever asks, and has the place of its last owner then. `None` if it is to end before.
    pub(super) fn stand_by(
        &self,
        of: u16,
        options: &CassandraOptions,
        kept: Kept,
        begun: &Begun,
        ended: &Receiver<()>,
    ) -> Result<Option<(CassandraStore, Kept)>, String> {
        let (id, Kept { etcd, view }) = (self.member.id, kept);
        eprintln!("guira: member {id} stands by for member {of}");
        let ends = Arc::new(Ends::default());
        let alive = Kept { etcd: etcd.another().map_err(|error| error.to_string())?, view: view.clone() };
        let following = alive.follow_for(self.member, begun.life, &ends, |_| {})?;
        let socket = self.arguments.socket(move || Some(json!({ "serves": false, "standby_of": of })))?;
        let store = CassandraStore::open_after(options, || !ends.are_told() && goes_on(ended));
        drop((following, socket));
        let Some(store) = store.map_err(|error| error.to_string())? else { return ends.why().map(|()| None) };
        // What an earlier life of this member was given, when it had another's place, does not take place any more.
        let kept = Kept { etcd, view }.begin_life(self.member, begun.life)?;
        let Kept { etcd, view } = kept;
        // It may have been asleep, and whoever had the store may have it again.
        let taken = etcd.take_over(self.member, &view.file.secret, || store.may_serve());
        let view = taken.map_err(|error| error.to_string())?;
        eprintln!("guira: member {id} has the store and the place of member {of}");
        Ok(Some((store, Kept { etcd, view })))
    }
}
