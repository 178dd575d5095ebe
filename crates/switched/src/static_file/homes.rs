//! Which cache node has which backends' keys to cache.
//!
//! Always true: a backend's cache node is there, if there is one.

use guira_routing::NodeId;

use super::{Member, Role, StaticFile};

impl StaticFile {
    /// Gives each backend a cache node that is there, so that all have as many of them, and as few backends as can be another one than they had; none, if
    /// there is none.
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
        let mut room: Vec<(u16, usize)> = caches.iter().map(|NodeId(cache)| (*cache, had(*cache, &homes))).collect();
        // What is over a whole number stays with who has it.
        room.sort_by_key(|(cache, had)| (std::cmp::Reverse(*had), *cache));
        let (each, over) = (homes.len() / caches.len().max(1), homes.len() % caches.len().max(1));
        for (at, (_, room)) in room.iter_mut().enumerate() {
            *room = each + usize::from(at < over);
        }
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
