//! At a core's host: who waits for what it was asked, and what is asked next.
//!
//! Always true: what was asked has one number until it is answered; what is behind it in its line is asked once it is.

use std::{
    collections::{HashMap, VecDeque},
    mem,
};

use guira_chain::{Owned, Reply};
use guira_item::{Answer, Failure, Key, Moment, Span, Time};

use crate::{
    Wanted,
    asked::{Asked, What},
    lines::{Line, lines_of},
    owed::Owed,
};

/// Operations, of each line the first, between two flushes: as many requests that fill a datagram each fit into what may wait of datagrams. Longer ones go in streams, where
/// what waits is bounded in bytes: a core has no more of them under way, unless items may be longer than 4 MiB.
const ASKED_A_FLUSH: usize = 256;

/// Names what a core was asked, of one desk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AskNumber(pub u64);

/// What a core is to be asked.
#[derive(Clone, Debug)]
pub enum Ask<'a> {
    /// Something of a key; expiries are in the cluster's seconds.
    Key(AskNumber, Key<'a>, &'a Owned),
    /// That all items that are there at a time, in the cluster's seconds, are gone then.
    Flush(AskNumber, Time),
    /// Nothing: what is to be sent is to be sent now, before more comes.
    Send,
}

/// What a core was asked and has not answered yet.
#[derive(Debug)]
pub struct Desk {
    owing: HashMap<AskNumber, Owing>,
    /// Operations that wait for one that is under way.
    behind: usize,
    /// How long an answer is waited for.
    answer_within: Span,
    last: AskNumber,
    /// Of one step; kept for its memory.
    answers: Vec<(AskNumber, Reply)>,
}

/// What is owed for an operation that is under way.
#[derive(Debug)]
struct Owing {
    owed: Owed,
    behind: Option<Box<Behind>>,
}

/// What is asked for once that is answered, in order.
#[derive(Debug)]
struct Behind {
    asked: VecDeque<Asked>,
    /// That is answered before, if it is answered in time.
    until: Moment,
}

impl Desk {
    /// Of a core that answers within so long, as a rule.
    pub fn new(answer_within: Span) -> Self {
        Self { owing: HashMap::new(), behind: 0, answer_within, last: AskNumber(0), answers: Vec::new() }
    }

    /// Operations that wait for one that is under way.
    pub fn behind(&self) -> usize {
        self.behind
    }

    /// Has the core asked what is wanted. `ask` asks it one thing, and appends the answers that come of it, to that or to something else.
    pub fn want(&mut self, now: Moment, wanted: Wanted, mut ask: impl FnMut(Ask<'_>, &mut Vec<(AskNumber, Reply)>)) {
        match wanted.0 {
            What::Flush(at, mut owed) => {
                owed.begin(true);
                let number = self.owe(owed, None);
                ask(Ask::Flush(number, at), &mut self.answers);
                self.go_on_with(now, Vec::new(), &mut ask);
            }
            What::Asked(all) => {
                for (at, line) in (1..).zip(lines_of(all)) {
                    self.go_on_with(now, vec![line], &mut ask);
                    if at % ASKED_A_FLUSH == 0 {
                        ask(Ask::Send, &mut self.answers);
                    }
                }
            }
        }
    }

    /// The core has answered, to what it was asked before.
    pub fn hear(&mut self, answers: impl IntoIterator<Item = (AskNumber, Reply)>) {
        self.answers.extend(answers);
    }

    /// Brings what was heard to those who wait for it, and has the core asked what that lets go on; `ask` as for [`want`](Self::want).
    pub fn go_on(&mut self, now: Moment, mut ask: impl FnMut(Ask<'_>, &mut Vec<(AskNumber, Reply)>)) {
        self.go_on_with(now, Vec::new(), &mut ask);
    }

    /// The same, with lines that go on.
    fn go_on_with(
        &mut self,
        now: Moment,
        mut lines: Vec<Line>,
        ask: &mut impl FnMut(Ask<'_>, &mut Vec<(AskNumber, Reply)>),
    ) {
        loop {
            let mut answers = mem::take(&mut self.answers);
            lines.extend(answers.drain(..).filter_map(|(number, reply)| self.on_answer(now, number, reply)));
            self.answers = answers;
            let Some(line) = lines.pop() else { return };
            self.ask(now, line, ask);
        }
    }

    /// Asks for the first of a line, which the others wait for.
    fn ask(&mut self, now: Moment, line: Line, ask: &mut impl FnMut(Ask<'_>, &mut Vec<(AskNumber, Reply)>)) {
        let Line { first: Asked { key, operation, mut owed }, behind } = line;
        let key = Key::new(&key).expect("a client's key");
        owed.begin(!operation.get().only_reads());
        let until = now + self.answer_within;
        let behind = (!behind.is_empty()).then(|| Behind { asked: behind, until });
        let number = self.owe(owed, behind);
        ask(Ask::Key(number, key, &operation), &mut self.answers);
    }

    /// Notes who waits for what is asked next, and what is asked then.
    fn owe(&mut self, owed: Owed, behind: Option<Behind>) -> AskNumber {
        self.last = AskNumber(self.last.0 + 1);
        self.behind += behind.as_ref().map_or(0, |behind| behind.asked.len());
        self.owing.insert(self.last, Owing { owed, behind: behind.map(Box::new) });
        self.last
    }

    /// Answers an operation; the rest of its line, if there is one. Behind what has had no answer in time nothing is asked for: each could take as long.
    fn on_answer(&mut self, now: Moment, number: AskNumber, reply: Reply) -> Option<Line> {
        let Owing { owed, behind } = self.owing.remove(&number)?;
        owed.answer(reply);
        let Behind { asked: mut behind, until } = *behind?;
        self.behind -= behind.len();
        if now >= until {
            behind.into_iter().for_each(|asked| asked.owed.answer(Reply::Answer(Answer::Failed(Failure::Away), None)));
            return None;
        }
        Some(Line { first: behind.pop_front()?, behind })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use guira_chain::Place;
    use guira_item::{Delete, Get, Operation, Ticket};

    use super::*;
    use crate::owed::Mailbox;

    const DELETE: Operation<'_> = Operation::Delete(Delete { cas: None, invalidate: None });
    const GET: Operation<'_> = Operation::Get(Get::PLAIN);

    fn batch(mailbox: &Arc<Mailbox>, all: &[(&str, Operation<'_>)]) -> Wanted {
        let asked = |(at, (key, operation)): (u32, &(&str, Operation<'_>))| Asked {
            key: key.as_bytes().into(),
            operation: Owned::of(operation),
            owed: Owed::new(mailbox, Place { ticket: Ticket(0), serial: 0, at }, None),
        };
        Wanted(What::Asked((0..).zip(all).map(asked).collect()))
    }

    /// The places of what was answered, with what.
    fn told(mailbox: &Mailbox) -> Vec<(u32, Reply)> {
        let mut mail = Vec::new();
        mailbox.take(&mut mail);
        mail.into_iter().map(|(place, reply)| (place.at, reply)).collect()
    }

    fn reply(answer: Answer) -> Reply {
        Reply::Answer(answer, None)
    }

    #[test]
    fn what_is_behind_is_asked_once_the_first_is_answered() {
        let mailbox = Arc::new(Mailbox::new(Arc::new(|| {})));
        let (mut desk, now) = (Desk::new(Span::from_s(1)), Moment::from_ns(7));
        let mut asked = Vec::new();
        let mut ask = |ask: Ask<'_>, answers: &mut Vec<(AskNumber, Reply)>| {
            let Ask::Key(number, key, operation) = ask else { panic!("{ask:?}") };
            asked.push((number, key.as_bytes().to_vec()));
            if operation.get().only_reads() {
                answers.push((number, reply(Answer::Miss)));
            }
        };
        let wanted = batch(&mailbox, &[("a", DELETE), ("b", GET), ("a", GET), ("a", DELETE), ("a", GET)]);
        desk.want(now, wanted, &mut ask);
        assert_eq!((desk.behind(), told(&mailbox)), (3, vec![(1, reply(Answer::Miss))]));
        desk.hear([(AskNumber(1), reply(Answer::Deleted)), (AskNumber(99), reply(Answer::Deleted))]);
        desk.go_on(now, &mut ask);
        assert_eq!(told(&mailbox), [(0, reply(Answer::Deleted)), (2, reply(Answer::Miss))]);
        desk.hear([(AskNumber(4), reply(Answer::NotFound))]);
        desk.go_on(now, &mut ask);
        assert_eq!(told(&mailbox), [(3, reply(Answer::NotFound)), (4, reply(Answer::Miss))]);
        let keys: Vec<(u64, &[u8])> = asked.iter().map(|(number, key)| (number.0, &key[..])).collect();
        assert_eq!(keys, [(1, &b"a"[..]), (2, b"b"), (3, b"a"), (4, b"a"), (5, b"a")]);
        assert_eq!(desk.behind(), 0);
    }

    #[test]
    fn behind_what_has_no_answer_in_time_nothing_is_asked() {
        let mailbox = Arc::new(Mailbox::new(Arc::new(|| {})));
        let (mut desk, now) = (Desk::new(Span::from_s(1)), Moment::from_ns(7));
        let mut count = 0;
        let mut ask = |_: Ask<'_>, _: &mut Vec<(AskNumber, Reply)>| count += 1;
        desk.want(now, batch(&mailbox, &[("a", DELETE), ("a", GET)]), &mut ask);
        desk.hear([(AskNumber(1), reply(Answer::Failed(Failure::Unknown)))]);
        desk.go_on(now + Span::from_s(1), &mut ask);
        let (unknown, away) = (reply(Answer::Failed(Failure::Unknown)), reply(Answer::Failed(Failure::Away)));
        assert_eq!((told(&mailbox), desk.behind()), (vec![(0, unknown), (1, away)], 0));
        // What it has not been told it is owed, also when it ends.
        desk.want(now, batch(&mailbox, &[("a", DELETE), ("a", GET)]), &mut ask);
        drop(desk);
        let mut told = told(&mailbox);
        told.sort_by_key(|(at, _)| *at);
        let refused = reply(Answer::Failed(Failure::Refused));
        assert_eq!(told, [(0, reply(Answer::Failed(Failure::Unknown))), (1, refused)]);
        assert_eq!(count, 2);
    }
}
