//! A cluster that etcd keeps, as one of its members follows it.

use std::sync::Arc;

use guira_cluster::Incarnation;
use guira_etcd::{Etcd, FollowOptions, Follower, Following, Told, View};
use guira_routing::NodeId;
use guira_switched::{Life, Member, host::MemberHost};

use super::Ends;

/// What is known of a cluster that may change.
pub(super) struct Kept {
    pub(super) etcd: Etcd,
    /// What the member begins with.
    pub(super) view: View,
}

impl Kept {
    /// Begins a backend's life, and reads the cluster again: what is there then no earlier life changes any more.
    pub(super) fn begin_life(self, member: &Member, life: Life) -> Result<Self, String> {
        let Self { etcd, view } = self;
        let id = NodeId(member.id);
        let view = etcd.begin_life(id, life.incarnation, &view.file.secret).map_err(|error| error.to_string())?;
        let what = |member: &Member| {
            let backend = member.role.as_backend();
            (member.address, backend.map(|backend| (backend.store.clone(), backend.standby_of)))
        };
        if view.file.member(id).map(what) != Some(what(member)) {
            return Err(was_removed(id));
        }
        Ok(Self { etcd, view })
    }

    /// Has a member say that it is alive, and hear of who is there; what is said last is why it is to end.
    pub(super) fn follow(
        self,
        me: &Member,
        life: Life,
        host: &Arc<impl MemberHost<View = guira_switched::View>>,
        ends: &Arc<Ends>,
    ) -> Result<Following, String> {
        let host = Arc::downgrade(host);
        self.follow_for(me, life, ends, move |view| match view.file.members_in(view.epoch) {
            // Who has ended is not told.
            Ok(members) => {
                let _ = host.upgrade().map(|host| host.set_view(members.into(), view.file.view(view.shares())));
            }
            Err(error) => eprintln!("guira: who is in the cluster stays as it was: {error}"),
        })
    }

    /// The same, for somebody who is told of views otherwise.
    pub(super) fn follow_for(
        self,
        me: &Member,
        life: Life,
        ends: &Arc<Ends>,
        mut on_view: impl FnMut(View) + Send + 'static,
    ) -> Result<Following, String> {
        let Self { etcd, view } = self;
        let (id, life) = (me.id, life.incarnation);
        let follower = Follower { me: me.clone(), life, seen: view };
        let ends = Arc::clone(ends);
        let told = move |told| match told {
            Told::View(view) => on_view(*view),
            Told::Unreadable(why) => eprintln!("guira: who is in the cluster stays as it was: {why}"),
            Told::Removed => {
                eprintln!("guira: member {id} is not in the cluster any more, and ends");
                ends.end(Ok(()));
            }
            Told::Outlived { life: later } => ends.end(Err(outlived(id, later, life))),
            Told::OutOfTouch(why) => eprintln!("guira: etcd is away: {why}; member {id} goes on as it is"),
            Told::InTouch => eprintln!("guira: etcd is back"),
            Told::Said => eprintln!("guira: etcd lets member {id} say that it is alive"),
            Told::Unsaid(why) => eprintln!("guira: etcd does not let member {id} say that it is alive: {why}"),
        };
        etcd.follow(follower, FollowOptions::default(), told).map_err(|error| error.to_string())
    }
}

/// What is said to a member that has found a later life of it.
pub(super) fn outlived(id: u16, later: Incarnation, life: Incarnation) -> String {
    let (later, life) = (later.0, life.0);
    format!(
        "member {id} has said that it is alive in a later life ({later}) than this one ({life}): another process is it, or its clock was set back \
         (--life-file)"
    )
}

/// What is said to one that is none of the cluster any more when it comes to serve.
pub(super) fn was_removed(me: NodeId) -> String {
    format!("member {} was taken out of the cluster, or put elsewhere, while it started", me.0)
}
