//! Which cache node has which backends' keys to cache.
//!
//! Always true: a backend's cache node is there, if there is one.

use std::cmp::Reverse;

use guira_routing::NodeId;

use super::{Member, Role, StaticFile};

impl StaticFile {
    /// Gives each backend a cache node that is there, so that all have as many of them for each of their threads, and as few backends as can be another
    /// one than they had; none, if there is none.
    pub fn spread_homes(&mut self) {
        let caches = self.caches();
        let home = |member| match member {
            &mut Member { role: Role::Backend(ref mut backend), .. } if backend.standby_of.is_none() => {
                Some(&mut backend.cache)
            }
            _ => None,
        };
        let mut homes: Vec<&mut Option<u16>> = self.members.iter_mut().filter_map(home).collect();
        let had = |cache: u16, homes: &[&mut Option<u16>]| homes.iter().filter(|home| ***home == Some(cache)).count();
        let threads = caches.parts_len().max(1);
        // Whole backends, and what is over them, in parts of one that are as many as there are threads.
        let share = |node: NodeId| {
            let due = homes.len() * caches.parts_of(node).count();
            (due / threads, due % threads)
        };
        let mut shares: Vec<(u16, usize, usize)> =
            caches.nodes().map(|node| (node.0, share(node).0, share(node).1)).collect();
        let left = homes.len() - shares.iter().map(|(_, whole, _)| whole).sum::<usize>().min(homes.len());
        // What is over goes to who has most of one over, and of those stays with who has it.
        shares.sort_by_key(|(cache, _, over)| (Reverse(*over), Reverse(had(*cache, &homes)), *cache));
        let with_over =
            |(at, (cache, whole, _)): (usize, &(u16, usize, usize))| (*cache, whole + usize::from(at < left));
        let mut room: Vec<(u16, usize)> = shares.iter().enumerate().map(with_over).collect();
        let mut take = |wanted: Option<u16>| {
            let place = room.iter_mut().find(|(cache, room)| *room > 0 && wanted.is_none_or(|wanted| wanted == *cache));
            place.map(|(cache, room)| {
                *room -= 1;
                *cache
            })
        };
        for home in &mut homes {
            **home = home.and_then(|cache| take(Some(cache)));
        }
        for home in homes {
            *home = home.or_else(|| take(None));
        }
    }
}
