//! Two nodes that tell each other as much as they may, and more, over a network that loses, doubles and delays, from view to view.

use guira_consistency::{Key, Message as OfHotKeys, Timestamp, Version, Writer};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::*;

const ASK_AFTER: Span = Span::from_ms(40);
const STEP: Span = Span::from_ms(1);
const ENDS: [NodeId; 2] = [NodeId(1), NodeId(2)];

fn small(mutant: Option<FlowMutant>) -> FlowConfig {
    FlowConfig { messages: 4, messages_wait: 16, mutant, ..FlowConfig::default() }
}

fn envelope(epoch: u64, number: u32) -> Envelope {
    let at = Timestamp { version: number, writer: Writer(1) };
    Envelope { epoch: Epoch(epoch), message: OfHotKeys::Question { key: Key::from(&b"key"[..]), at } }
}

fn of_value(number: u32, len: usize) -> Envelope {
    let at = Timestamp { version: number, writer: Writer(1) };
    let value = guira_consistency::Value {
        flags: 0,
        cas: 1,
        expiry: guira_item::Expiry::NEVER,
        stale: false,
        win_sent: false,
        bytes: vec![0; len].into(),
    };
    let version = Version { at, base: at, kind: guira_consistency::Kind::Plain, value: Some(value), by: None };
    let (key, generation) = (Key::from(&b"key"[..]), guira_consistency::Generation::default());
    let message = OfHotKeys::Update { key, generation, version, done: Default::default(), settles: false };
    Envelope { epoch: Epoch(1), message }
}

/// Both ends, and what is under way between them.
struct Ends {
    now: Moment,
    flows: [Flow; 2],
    under_way: Vec<(Moment, usize, Message)>,
    told: u32,
    rng: Xoshiro256PlusPlus,
    is_bad: bool,
    heard: u64,
}

impl Ends {
    fn new(mutant: Option<FlowMutant>, seed: u64) -> Self {
        let flows = [(); 2].map(|()| Flow::new(small(mutant), ASK_AFTER));
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { now: Moment::default(), flows, under_way: Vec::new(), told: 0, rng, is_bad: true, heard: 0 }
    }

    fn carry(&mut self, from: usize, out: Vec<(NodeId, Message)>) {
        for (_, message) in out {
            let copies = if !self.is_bad { 1 } else { [0, 1, 1, 1, 2][self.rng.random_range(0..5)] };
            for _ in 0..copies {
                let late = if self.is_bad && self.rng.random_bool(0.2) { 300 } else { 1 };
                let after = Span::from_ms(self.rng.random_range(0..=late));
                self.under_way.push((self.now + after, 1 - from, message.clone()));
            }
        }
    }

    fn pass(&mut self) {
        self.now = self.now + STEP;
        let now = self.now;
        let (come, left) = std::mem::take(&mut self.under_way).into_iter().partition(|(at, ..)| *at <= now);
        self.under_way = left;
        let come: Vec<(Moment, usize, Message)> = come;
        for (_, to, message) in come {
            let (from, mut out) = (ENDS[1 - to], Vec::new());
            let flow = &mut self.flows[to];
            match message {
                Message::Protocol { number, seen, envelope } => {
                    self.heard += 1;
                    flow.hear(now, from, envelope.epoch, (number, seen), &mut out);
                    flow.tell(from, &mut out);
                }
                Message::Credits { epoch, seen } => flow.hear_credits(now, from, epoch, seen, &mut out),
                Message::AskCredits { epoch, sent } => flow.on_asked(from, epoch, sent, &mut out),
                other => panic!("{other:?}"),
            }
            self.carry(to, out);
        }
        for end in 0..2 {
            let mut out = Vec::new();
            self.flows[end].ask(now, &mut out);
            self.carry(end, out);
        }
    }

    fn tell(&mut self, end: usize) {
        self.told += 1;
        let (told, mut out) = (self.told, Vec::new());
        let flow = &mut self.flows[end];
        let epoch = flow.epoch.0;
        flow.send(self.now, ENDS[1 - end], envelope(epoch, told), &mut out);
        self.carry(end, out);
    }

    /// Views, in each a time in which everything goes wrong, and in every other one then a time in which nothing does: by the end of that nothing waits any more. Nobody is told more than he has
    /// said.
    fn run(&mut self) -> Result<(), &'static str> {
        for epoch in 1..=4 {
            for end in 0..2 {
                self.flows[end].set_view(Epoch(epoch));
                (0..3).for_each(|_| self.pass());
            }
            self.is_bad = true;
            for _ in 0..300 {
                for end in 0..2 {
                    let count = self.rng.random_range(0..3);
                    (0..count).for_each(|_| self.tell(end));
                }
                self.pass();
            }
            if epoch % 2 == 1 {
                continue;
            }
            self.is_bad = false;
            (0..500).for_each(|_| self.pass());
            if self.flows.iter().any(|flow| flow.counts.beyond > 0) {
                return Err("more was told than there was credit for");
            }
            if self.flows.iter().any(|flow| flow.waiting() > 0) {
                return Err("something waits for a credit that nobody gives back");
            }
        }
        Ok(())
    }
}

#[test]
fn whatever_is_lost_comes_twice_or_comes_late_no_credit_is_lost_and_none_is_made() {
    let mut all = FlowCounts::default();
    for seed in 0..100 {
        let mut ends = Ends::new(None, seed);
        assert_eq!(ends.run(), Ok(()), "seed {seed}");
        for flow in &ends.flows {
            all.messages_waited += flow.counts.messages_waited;
            all.messages_dropped += flow.counts.messages_dropped;
            all.asked += flow.counts.asked;
        }
        assert!(ends.heard > 100, "seed {seed}: {}", ends.heard);
    }
    assert!(all.messages_waited > 1_000 && all.messages_dropped > 100 && all.asked > 100, "{all:?}");
}

#[test]
fn faults_that_are_put_in_are_found_out() {
    for mutant in [FlowMutant::LossLeaks, FlowMutant::NeverAsks, FlowMutant::FormerCounts] {
        let is_found = |seed| Ends::new(Some(mutant), seed).run().is_err();
        assert!((0..100).any(is_found), "{} was not found out", mutant.name());
    }
}

/// What a flow says when it does something.
fn said(does: impl FnOnce(&mut Vec<(NodeId, Message)>)) -> Vec<Message> {
    let mut out = Vec::new();
    does(&mut out);
    out.into_iter().map(|(_, message)| message).collect()
}

fn begun(config: FlowConfig) -> Flow {
    let mut flow = Flow::new(config, ASK_AFTER);
    flow.set_view(Epoch(1));
    flow
}

#[test]
fn an_answer_gives_back_what_it_answers_and_credits_come_for_the_rest_a_quarter_at_a_time() {
    let (now, [one, other]) = (Moment::default(), ENDS);
    let config = FlowConfig { messages: 8, ..small(None) };
    let (mut writer, mut reader) = (begun(config), begun(config));
    let mut credits = 0;
    for number in 1..=16 {
        let sent = said(|out| writer.send(now, other, envelope(1, number), out));
        let [Message::Protocol { number, seen, .. }] = sent[..] else { panic!("it has no credit: {sent:?}") };
        reader.hear(now, one, Epoch(1), (number, seen), &mut Vec::new());
        for message in said(|out| reader.tell(one, out)) {
            let Message::Credits { epoch, seen } = message else { panic!("{message:?}") };
            assert_eq!(seen, number);
            writer.hear_credits(now, other, epoch, seen, &mut Vec::new());
            credits += 1;
        }
    }
    assert_eq!(credits, 8, "one for two");

    // One that is answered needs none.
    for at in 17..=32 {
        let sent = said(|out| writer.send(now, other, envelope(1, at), out));
        let [Message::Protocol { number, seen, .. }] = sent[..] else { panic!("it has no credit: {sent:?}") };
        reader.hear(now, one, Epoch(1), (number, seen), &mut Vec::new());
        let ack = said(|out| reader.send(now, one, envelope(1, at), out));
        assert_eq!(said(|out| reader.tell(one, out)), []);
        let [Message::Protocol { number, seen, .. }] = ack[..] else { panic!("{ack:?}") };
        assert_eq!(seen, MessageNumber(u64::from(at)));
        writer.hear(now, other, Epoch(1), (number, seen), &mut Vec::new());
        assert_eq!(said(|out| writer.tell(other, out)), [], "what it tells next tells that");
    }
}

#[test]
fn what_waits_is_bounded_in_messages_and_in_bytes_and_the_same_waits_once() {
    let (now, other) = (Moment::default(), ENDS[1]);
    let mut flow = begun(small(None));
    let sent = said(|out| (1..=40).for_each(|number| flow.send(now, other, envelope(1, number), out)));
    assert_eq!((sent.len(), flow.waiting()), (4, 16));
    assert_eq!((flow.counts.messages_waited, flow.counts.messages_dropped), (16, 20));
    assert_eq!(said(|out| flow.send(now, other, envelope(1, 5), out)), [], "it waits already");
    assert_eq!((flow.waiting(), flow.counts.messages_dropped), (16, 20));
    let gone_on = said(|out| flow.hear_credits(now, other, Epoch(1), MessageNumber(3), out));
    assert_eq!((gone_on.len(), flow.waiting()), (3, 13));

    let mut flow = begun(small(None));
    (1..=4).for_each(|number| flow.send(now, other, envelope(1, number), &mut Vec::new()));
    for number in 5..=8 {
        flow.send(now, other, of_value(number, VALUES_LEN_MAX / 2), &mut Vec::new());
    }
    assert_eq!((flow.waiting(), flow.counts.messages_dropped), (2, 2));
}

#[test]
fn who_hears_nothing_asks_and_what_is_of_another_view_is_not_heard() {
    let [one, other] = ENDS;
    let at = |ms| Moment::default() + Span::from_ms(ms);
    let (mut writer, mut reader) = (begun(small(None)), begun(small(None)));
    (1..=5).for_each(|number| writer.send(at(0), other, envelope(1, number), &mut Vec::new()));
    assert_eq!(said(|out| writer.ask(at(39), out)), []);
    let asked = said(|out| writer.ask(at(40), out));
    assert_eq!(asked, [Message::AskCredits { epoch: Epoch(1), sent: MessageNumber(4) }]);
    assert_eq!(said(|out| writer.ask(at(79), out)), [], "it was asked");
    assert_eq!(said(|out| writer.ask(at(80), out)).len(), 1);

    assert_eq!(said(|out| reader.on_asked(one, Epoch(2), MessageNumber(4), out)), []);
    let told = said(|out| reader.on_asked(one, Epoch(1), MessageNumber(4), out));
    assert_eq!(told, [Message::Credits { epoch: Epoch(1), seen: MessageNumber(4) }]);
    for (epoch, seen) in [(0, 4), (2, 4), (1, 5), (1, u64::MAX)] {
        let goes_on = said(|out| writer.hear_credits(at(81), other, Epoch(epoch), MessageNumber(seen), out));
        assert_eq!(goes_on, [], "of another view, or of what was never sent");
    }
    assert_eq!(said(|out| writer.hear_credits(at(82), other, Epoch(1), MessageNumber(4), out)).len(), 1);
    writer.set_view(Epoch(2));
    assert_eq!(said(|out| (1..=9).for_each(|n| writer.send(at(83), other, envelope(2, n), out))).len(), 4, "all anew");
}

/// All that one end had credit for was lost, and the other end had so much to say that the first, which heard it, never asked: a simulated cluster did not settle.
#[test]
fn who_hears_what_he_has_heard_before_asks_as_if_he_heard_nothing() {
    let other = ENDS[1];
    let at = |ms| Moment::default() + Span::from_ms(ms);
    let mut flow = begun(small(None));
    (1..=5).for_each(|number| flow.send(at(0), other, envelope(1, number), &mut Vec::new()));
    for ms in 1..40 {
        let told = (MessageNumber(ms), MessageNumber(0));
        assert_eq!(said(|out| flow.hear(at(ms), other, Epoch(1), told, out)), []);
    }
    let asked = said(|out| flow.ask(at(40), out));
    assert_eq!(asked, [Message::AskCredits { epoch: Epoch(1), sent: MessageNumber(4) }]);
}
