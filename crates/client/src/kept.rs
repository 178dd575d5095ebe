//! A client of a cluster that etcd keeps: it is told of views, and of its end.
//!
//! Always true: a view goes to the gateway's sockets and to the gateway before the next one is heard of; who is told of the end closes the gateway, and does
//! not wait for who tells it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use guira_etcd::{Access, AccessError, CertificateFiles, EtcdError, Place, PlaceError, Tls, Touch, User};
use guira_etcd::{Etcd, FollowOptions, Follower, Told, View};
use guira_routing::NodeId;
use guira_switched::{Life, Member, host::MemberHost};

use crate::{Closing, ConnectError, connect::gateway, running::Running};

/// Who is to follow.
pub(crate) struct Follow {
    etcd: Etcd,
    member: Member,
    view: View,
}

/// For as long as it is kept, the gateway is told of views. Dropped, it waits for the thread that tells.
pub(crate) struct Following {
    following: guira_etcd::Following,
    trouble: Arc<Mutex<Trouble>>,
}

/// What is amiss.
#[derive(Default)]
struct Trouble {
    /// With what is there, until a view is told.
    view: Option<String>,
    /// With etcd, until it is back.
    touch: Option<String>,
    /// With saying that the client is alive, until that is said.
    unsaid: Option<String>,
}

fn lock(trouble: &Mutex<Trouble>) -> MutexGuard<'_, Trouble> {
    // It is set in one step.
    trouble.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Following {
    pub(crate) fn touch(&self) -> Touch {
        self.following.touch()
    }

    /// What is amiss, in a line.
    pub(crate) fn trouble(&self) -> Option<String> {
        let Trouble { view, touch, unsaid } = &*lock(&self.trouble);
        [touch, view, unsaid].into_iter().find_map(Option::clone)
    }
}

impl Follow {
    /// Reads the cluster, in which the member has to be a gateway.
    pub(crate) fn read(place: &Place, access: &Access, secret: &str, me: NodeId) -> Result<Self, ConnectError> {
        let etcd = Etcd::connect(place, access).map_err(ConnectError::Etcd)?;
        let view = etcd.read(secret).map_err(ConnectError::Etcd)?;
        let member = gateway(&view.file, me)?.clone();
        Ok(Self { etcd, member, view })
    }

    /// What was read.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Says that it is alive, and has `running` told of views.
    pub(crate) fn begin(self, life: Life, running: &Arc<Running>) -> Result<Following, ConnectError> {
        let (running, trouble) = (Arc::clone(running), Arc::new(Mutex::new(Trouble::default())));
        let amiss = Arc::clone(&trouble);
        let told = move |told| match told {
            Told::View(view) => {
                let members = view.file.members_in(view.epoch);
                lock(&amiss).view = members.as_ref().err().map(ToString::to_string);
                if let Ok(members) = members {
                    let of_file = view.file.view(view.shares());
                    // Who has ended is not told.
                    let _ = running.with(|host| host.set_view(members.into(), of_file));
                }
            }
            Told::Unreadable(why) => lock(&amiss).view = Some(why),
            Told::OutOfTouch(why) => lock(&amiss).touch = Some(why),
            Told::InTouch => lock(&amiss).touch = None,
            Told::Unsaid(why) => lock(&amiss).unsaid = Some(why),
            Told::Said => lock(&amiss).unsaid = None,
            Told::Removed => running.close(Closing::Removed),
            Told::Outlived { life } => running.close(Closing::Outlived { later: life.0 }),
        };
        let follower = Follower { me: self.member, life: life.incarnation, seen: self.view };
        let following = self.etcd.follow(follower, FollowOptions::default(), told).map_err(ConnectError::Etcd)?;
        Ok(Following { following, trouble })
    }
}
