//! Asks a core from any thread of a program, and waits for the answers there.
//!
//! ```text
//! thread --> Caller: takes room --(what there is room for)--> Front --> ...
//!   ^------------- mailbox of this call <--(answers)-----------/
//! ```
//! Always true: each operation is answered once, in its place, also when the core's host has ended; no more is under way than the core takes,
//! so that what is refused is refused by the cluster and not for want of room.

use std::sync::{
    Arc,
    atomic::AtomicUsize,
    mpsc::{Receiver, sync_channel},
};

use guira_chain::{Late, Owned, Place, Reply};
use guira_item::{Request, Ticket, Time};

use crate::{
    Front, Wanted,
    asked::{Asked, What},
    owed::{Mailbox, Owed},
    room::Room,
};

/// All of a call is one batch.
const TICKET: Ticket = Ticket(0);

/// How much a program may ask at a time, over all of its threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallerBounds {
    /// Operations that are under way, at most; who asks for more waits.
    pub operations_max: usize,
    /// Bytes of values to be stored that are under way, at most; who asks for more waits.
    pub asked_len_max: usize,
    /// Bytes of values in answers that have come and wait for others of their call; further ones fail.
    pub kept_len_max: usize,
}

/// A program before one core.
#[derive(Debug)]
pub struct Caller<F> {
    front: F,
    room: Room,
    kept_len: Arc<AtomicUsize>,
    kept_len_max: usize,
}

impl<F: Front> Caller<F> {
    /// Before this core, whose host it does not keep from ending.
    pub fn before(front: F, bounds: CallerBounds) -> Self {
        let CallerBounds { operations_max, asked_len_max, kept_len_max } = bounds;
        let room = Room::new(operations_max, asked_len_max);
        Self { front, room, kept_len: Arc::default(), kept_len_max }
    }

    /// Asks for all of these, expiries in the cluster's seconds, and waits for the answers, which come in their order. A core whose
    /// host has ended answers with failures.
    pub fn ask(&self, requests: &[Request<'_>]) -> Vec<Reply> {
        let value_lens = |request: &Request<'_>| request.operation.value_len();
        let mut call = Call::new(self, requests.len());
        let (mut left, mut first) = (requests, 0);
        while !left.is_empty() {
            let taken = self.room.take(left.iter().map(value_lens));
            let (now, later) = left.split_at(taken.count());
            let asked = |(at, request): (u32, &Request<'_>)| Asked {
                key: request.key.as_bytes().into(),
                operation: Owned::of(&request.operation),
                owed: call.owed(at),
            };
            self.front.tell(Wanted(What::Asked((first..).zip(now).map(asked).collect())));
            call.wait_for(now.len());
            first += now.len() as u32;
            left = later;
        }
        call.end()
    }

    /// All items that are there at a time, in the cluster's seconds, are to be gone then; what has passed is now: waits until they are, or until it is
    /// sure that they will be, or until they may not be.
    pub fn flush_all(&self, at: Time) -> Reply {
        let mut call = Call::new(self, 1);
        let _taken = self.room.take([0].into_iter());
        self.front.tell(Wanted(What::Flush(at, call.owed(0))));
        call.wait_for(1);
        call.end().remove(0)
    }
}

/// What a thread waits for.
struct Call {
    mailbox: Arc<Mailbox>,
    woken: Receiver<()>,
    mail: Vec<(Place, Reply)>,
    late: Late,
    serial: u64,
}

impl Call {
    fn new(caller: &Caller<impl Front>, len: usize) -> Self {
        let mut late = Late::new(Arc::clone(&caller.kept_len), caller.kept_len_max);
        let serial = late.serial();
        late.open(TICKET, serial, 0, vec![None; len]);
        // Once woken and not yet awake, it need not be woken again.
        let (wake, woken) = sync_channel(1);
        let mailbox = Arc::new(Mailbox::new(Arc::new(move || wake.try_send(()).unwrap_or_default())));
        Self { mailbox, woken, mail: Vec::new(), late, serial }
    }

    fn owed(&self, at: u32) -> Owed {
        Owed::new(&self.mailbox, Place { ticket: TICKET, serial: self.serial, at }, None)
    }

    /// Waits for so many answers: each comes, since what ends without one has answered.
    fn wait_for(&mut self, len: usize) {
        let mut open = len;
        while open > 0 {
            self.woken.recv().expect("the mailbox is there");
            self.mailbox.take(&mut self.mail);
            open -= self.mail.len();
            self.mail.drain(..).for_each(|(place, reply)| self.late.put(place, reply));
        }
    }

    fn end(mut self) -> Vec<Reply> {
        let ready = self.late.next_ready();
        debug_assert_eq!(ready, Some(TICKET), "all were waited for");
        self.late.take(TICKET)
    }
}
