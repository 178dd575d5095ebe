//! The plan of rule updates: what a switch is told, and when (SwitchKV, NSDI 2016, section 3.2.3).
//!
//! ```text
//!          want                        next
//! (none) -------> install waits -----------------> installed
//!    ^   <-------                                   |  ^
//!    |    unwant: no update           unwant, delay |  | want: no update
//!    |                                              v  |
//!    +---------------------------------------- deletion waits
//!          next: when nothing else waits, in turns with installs once it has waited long enough, or while there is no room
//! ```
//! Where a rule may lead to two nodes it may also be wanted to lead to one of them only. That is an install, as half of the key's load is on a
//! detour until it is made.
//! A switch takes few updates a second. When many keys become hot at once, their rules are what counts: so installs come first, those of the hottest before others, and rules
//! that are no longer wanted stay for a while in a part of the table that is kept free for them. A rule that stays too long costs its key a
//! detour.
//! Always true: a rule waits in one queue if it is not as it is wanted, and in none if it is; no update is made that changes nothing; no
//! more rules are wanted than may be cached, and no more are in the table than it has room for, so that what waits is bounded by both.

use std::{cmp::Reverse, collections::BTreeMap, fmt};

use guira_item::{Moment, Span};
use serde::{Deserialize, Serialize};

use crate::{Choices, KeyHash, NodeId};

/// What a switch can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleBudget {
    /// Updates of rules it takes each second.
    pub updates_per_s: u32,
    /// Rules it has room for.
    pub table_len_max: usize,
    /// How long a rule may stay after its key has left the cache, while others are installed.
    pub deletion_delay: Span,
    /// Cache nodes that a rule may lead to: one, or two if the router chooses between them.
    pub choices: RuleChoices,
}

/// How many cache nodes a rule may lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RuleChoices {
    /// One: a switch knows no better.
    #[default]
    One,
    /// Two: the router goes to the less loaded.
    Two,
}

impl RuleBudget {
    /// Rules that may be in the table beyond those of cached keys: as many as can be installed while a deletion waits.
    pub fn buffer_len(&self) -> usize {
        let rules =
            (u128::from(self.updates_per_s) * u128::from(self.deletion_delay.ns())).div_ceil(u128::from(NS_PER_S));
        usize::try_from(rules).unwrap_or(usize::MAX)
    }

    /// Keys that may be cached: the rest of the table.
    pub fn cached_max(&self) -> usize {
        self.table_len_max.saturating_sub(self.buffer_len())
    }
}

/// A budget that no plan can be made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BudgetError {
    /// No updates at all.
    NoUpdates,
    /// The buffer leaves no room for the rules of cached keys.
    NoRoom {
        /// What is kept free.
        buffer_len: usize,
        /// Of so many.
        table_len_max: usize,
    },
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUpdates => write!(f, "no rule can be installed at 0 updates a second"),
            Self::NoRoom { buffer_len, table_len_max } => {
                write!(f, "a buffer of {buffer_len} rules takes all of a table of {table_len_max}: delete sooner")
            }
        }
    }
}

impl std::error::Error for BudgetError {}

/// As many rules are wanted as may be: one must no longer be wanted first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyWanted {
    /// So many may be.
    pub cached_max: usize,
}

impl fmt::Display for TooManyWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rules are wanted already, as many as may be", self.cached_max)
    }
}

impl std::error::Error for TooManyWanted {}

/// What a switch is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RuleUpdate {
    /// Route a hash to these cache nodes, and no longer to others.
    Install {
        /// Of the key.
        hash: KeyHash,
        /// Where it is cached.
        choices: Choices,
    },
    /// Route a hash to no cache node.
    Delete {
        /// Of the key.
        hash: KeyHash,
    },
}

/// Which rules are wanted, which are in the table, and what is to be done about it. O(log n) in the rules, but for [`Self::forget_node`].
#[derive(Debug)]
pub struct RulePlan {
    budget: RuleBudget,
    /// What the switch has shown since, if it had room for less.
    learned: Option<Learned>,
    tokens: Tokens,
    rules: BTreeMap<KeyHash, Rule>,
    /// Of a dead node: to be deleted, or replaced.
    ahead: Queue,
    installs: Queue,
    deletions: Queue,
    /// How many rules are wanted.
    wanted: usize,
    /// How many are in the table.
    installed: usize,
    /// How many are to be installed.
    to_install: usize,
    /// The last update came from the deletions: an install is next, if one waits.
    last_was_deletion: bool,
    ticket_next: u64,
}

/// What a switch that was full had room for.
#[derive(Clone, Copy, Debug)]
struct Learned {
    table_len_max: usize,
    /// Of these, kept free at most, whatever the budget says.
    buffer_len_max: usize,
    grows_at: Moment,
}

/// A switch that was full is tried with an eighth more after so long: others may have had the room.
const GROWS_AFTER: Span = Span::from_s(10);

/// Those who wait: who has more load comes first, then who came first.
type Queue = BTreeMap<Turn, Waiting>;

/// When somebody's turn is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Turn {
    load: Reverse<Load>,
    ticket: u64,
}

/// The load of a key, queries a second, as far as it decides whose rule is installed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Load(pub u32);

#[derive(Clone, Copy, Debug)]
struct Waiting {
    hash: KeyHash,
    since: Moment,
}

/// A hash's rule: in the table, wanted, or both.
#[derive(Clone, Copy, Default, Debug)]
struct Rule {
    wanted: Option<Choices>,
    installed: Option<Choices>,
    /// The load that was told last.
    load: Load,
    /// Where it waits.
    place: Option<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    line: Line,
    turn: Turn,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Ahead,
    Installs,
    Deletions,
}

impl Rule {
    /// Where it has to wait, if nothing else is known of it.
    fn line(&self) -> Option<Line> {
        match (self.wanted, self.installed) {
            (wanted, installed) if wanted == installed => None,
            (Some(_), _) => Some(Line::Installs),
            (None, _) => Some(Line::Deletions),
        }
    }
}

impl RulePlan {
    /// A plan for a switch that has no rules.
    pub fn new(budget: RuleBudget) -> Result<Self, BudgetError> {
        if budget.updates_per_s == 0 {
            return Err(BudgetError::NoUpdates);
        }
        if budget.cached_max() == 0 {
            return Err(BudgetError::NoRoom { buffer_len: budget.buffer_len(), table_len_max: budget.table_len_max });
        }
        Ok(Self {
            budget,
            learned: None,
            tokens: Tokens::full(budget.updates_per_s),
            rules: BTreeMap::new(),
            ahead: Queue::new(),
            installs: Queue::new(),
            deletions: Queue::new(),
            wanted: 0,
            installed: 0,
            to_install: 0,
            last_was_deletion: false,
            ticket_next: 0,
        })
    }

    /// The table has room for so many rules from now on. What is wanted stays so, also if it is more.
    pub fn set_table_len_max(&mut self, table_len_max: usize) {
        self.budget.table_len_max = table_len_max;
        self.learned = None;
    }

    fn table_len_max(&self) -> usize {
        self.budget().table_len_max
    }

    fn cached_max(&self) -> usize {
        let buffer_len_max = self.learned.map_or(usize::MAX, |learned| learned.buffer_len_max);
        self.table_len_max().saturating_sub(self.budget.buffer_len().min(buffer_len_max))
    }

    /// Tries whether there is more room than was learned, if it was long ago; whether it does.
    fn grow(&mut self, now: Moment) -> bool {
        let Some(learned) = self.learned.filter(|learned| now >= learned.grows_at) else { return false };
        let table_len_max = learned.table_len_max + learned.table_len_max / 8 + 1;
        let grown = Learned { table_len_max, buffer_len_max: table_len_max / 8, grows_at: now + GROWS_AFTER };
        self.learned = Some(grown).filter(|grown| grown.table_len_max < self.budget.table_len_max);
        true
    }

    /// The switch takes so many updates a second from now on, at least one: the budget's are those that are believed before it is known.
    pub fn set_updates_per_s(&mut self, now: Moment, updates_per_s: u32) {
        self.budget.updates_per_s = updates_per_s.max(1);
        self.tokens.set_rate(now, self.budget.updates_per_s);
    }

    /// The switch has not taken a rule that it was told: it is not there, and not wanted. Who wanted it is told, so that its key makes room for others.
    pub fn refused(&mut self, now: Moment, hash: KeyHash) -> Option<Choices> {
        let rule = self.rule(hash);
        rule.installed?;
        self.set(now, hash, Rule { wanted: None, installed: None, ..rule });
        rule.wanted
    }

    /// It was refused for want of room: there is room for no more than there are, until it is tried whether there is.
    pub fn is_full(&mut self, now: Moment) {
        let len = self.installed.min(self.budget.table_len_max);
        // What was to be kept free may be more than there is.
        self.learned = Some(Learned { table_len_max: len, buffer_len_max: len / 8, grows_at: now + GROWS_AFTER });
    }

    /// What is gone by: the budget, less what was learned since.
    pub fn budget(&self) -> RuleBudget {
        let table_len_max = self.learned.map_or(self.budget.table_len_max, |learned| learned.table_len_max);
        RuleBudget { table_len_max, ..self.budget }
    }

    /// A key is cached at `node` now: its rule is to be installed, before those of keys with less load. Costs no update if it still is. Where a rule
    /// leads to one node that is the last one; where it may lead to two, the first two.
    pub fn want(&mut self, now: Moment, hash: KeyHash, node: NodeId, load: Load) -> Result<(), TooManyWanted> {
        let rule = self.rule(hash);
        if rule.wanted.is_none() && self.wanted >= self.cached_max() {
            self.grow(now);
        }
        let cached_max = self.cached_max();
        if rule.wanted.is_none() && self.wanted >= cached_max {
            return Err(TooManyWanted { cached_max });
        }
        let wanted = match (rule.wanted, self.budget.choices) {
            (Some(wanted), RuleChoices::Two) => wanted.with(node).unwrap_or(wanted),
            _ => node.into(),
        };
        // Of two nodes each tells what it sees.
        let load = if rule.wanted.is_some() { rule.load.max(load) } else { load };
        self.set(now, hash, Rule { wanted: Some(wanted), load, ..rule });
        Ok(())
    }

    /// A key is no longer cached at `node`: its rule is to be deleted, unless it is wanted to lead elsewhere too. Costs no update if it was not
    /// installed yet.
    pub fn unwant(&mut self, now: Moment, hash: KeyHash, node: NodeId) {
        let rule = self.rule(hash);
        if let Some(wanted) = rule.wanted.filter(|wanted| wanted.contains(node)) {
            self.set(now, hash, Rule { wanted: wanted.without(node), ..rule });
        }
    }

    /// A cache node is dead: nothing is wanted to lead to it, and what does is deleted, or replaced, ahead of all else: such a deletion
    /// costs nobody a detour, and saves one. Looks at all rules.
    pub fn forget_node(&mut self, now: Moment, node: NodeId) {
        let leads_to = |choices: Option<Choices>| choices.is_some_and(|choices| choices.contains(node));
        let is_its = |rule: &Rule| leads_to(rule.wanted) || leads_to(rule.installed);
        let its: Vec<_> =
            self.rules.iter().filter(|(_, rule)| is_its(rule)).map(|(hash, rule)| (*hash, *rule)).collect();
        for (hash, mut rule) in its {
            rule.wanted = rule.wanted.and_then(|wanted| wanted.without(node));
            self.set(now, hash, rule);
            if leads_to(rule.installed) {
                self.stand(now, hash, Some(Line::Ahead));
            }
        }
    }

    /// The next update, if one may be made now; it counts as made. First what leads to a dead node, then deletions that have waited for as long as
    /// they may, in turns with installs, then installs, or the oldest deletion while there is no room for one, then deletions.
    pub fn next(&mut self, now: Moment) -> Option<RuleUpdate> {
        if self.tokens.wait(now) > Span::default() {
            return None;
        }
        let hash = self.first(now)?;
        self.tokens.take(now);
        let rule = self.rule(hash);
        self.last_was_deletion = rule.place.is_some_and(|place| place.line == Line::Deletions);
        self.set(now, hash, Rule { installed: rule.wanted, ..rule });
        Some(match rule.wanted {
            Some(choices) => RuleUpdate::Install { hash, choices },
            None => RuleUpdate::Delete { hash },
        })
    }

    /// When [`Self::next`] has something, not before `now`; `None` if nothing waits.
    pub fn wake_at(&self, now: Moment) -> Option<Moment> {
        let (installs, deletions) = self.waiting();
        (installs + deletions > 0).then(|| now + self.tokens.wait(now))
    }

    /// How many rules are in the table.
    pub fn rules(&self) -> usize {
        self.installed
    }

    /// How many installs and how many deletions wait.
    pub fn waiting(&self) -> (usize, usize) {
        let all = self.ahead.len() + self.installs.len() + self.deletions.len();
        (self.to_install, all - self.to_install)
    }

    /// Whose turn it is.
    fn first(&self, now: Moment) -> Option<KeyHash> {
        let front = |queue: &Queue| queue.first_key_value().map(|(_, waiting)| *waiting);
        if let Some(ahead) = front(&self.ahead) {
            return Some(ahead.hash);
        }
        let has_room = |hash| self.installed < self.table_len_max() || self.rule(hash).installed.is_some();
        let install = front(&self.installs).filter(|install| has_room(install.hash));
        let deletion = front(&self.deletions);
        // All of the rate for what is late would leave none to what is hot: that would come once it is not any more.
        let goes_first =
            |deletion: &Waiting| now >= deletion.since + self.budget.deletion_delay && !self.last_was_deletion;
        let late = deletion.filter(goes_first);
        // Where there is no room, a deletion waits: fewer rules are wanted than there is room for.
        late.or(install).or(deletion).map(|waiting| waiting.hash)
    }

    fn rule(&self, hash: KeyHash) -> Rule {
        self.rules.get(&hash).copied().unwrap_or_default()
    }

    /// Says what is wanted of a hash and what is installed, and has it wait where it must.
    fn set(&mut self, now: Moment, hash: KeyHash, rule: Rule) {
        let before = self.rule(hash);
        let line = rule.line();
        let count = |counter: &mut usize, was: bool, is: bool| *counter = *counter + usize::from(is) - usize::from(was);
        count(&mut self.wanted, before.wanted.is_some(), rule.wanted.is_some());
        count(&mut self.installed, before.installed.is_some(), rule.installed.is_some());
        count(&mut self.to_install, before.line() == Some(Line::Installs), line == Some(Line::Installs));
        self.rules.insert(hash, Rule { place: before.place, ..rule });
        // What leads to a dead node stays ahead until it does not.
        let is_ahead = before.place.is_some_and(|place| place.line == Line::Ahead);
        self.stand(now, hash, line.map(|line| if is_ahead { Line::Ahead } else { line }));
        if rule.wanted.is_none() && rule.installed.is_none() {
            self.rules.remove(&hash);
        }
    }

    /// Has a rule wait in a line, behind those with as much load, or nowhere. Where it waits already it keeps its place among those.
    fn stand(&mut self, now: Moment, hash: KeyHash, line: Option<Line>) {
        let Some(rule) = self.rules.get_mut(&hash) else { return };
        let before = rule.place;
        // Only installs differ: a deletion is as old as it is.
        let load = Reverse(if line == Some(Line::Installs) { rule.load } else { Load(0) });
        let stays = before.filter(|place| Some(place.line) == line);
        if stays.map_or(line.is_none() && before.is_none(), |place| place.turn.load == load) {
            return;
        }
        let ticket = stays.map_or(self.ticket_next, |place| place.turn.ticket);
        self.ticket_next += u64::from(stays.is_none());
        let turn = Turn { load, ticket };
        rule.place = line.map(|line| Place { line, turn });
        let waited = before.and_then(|place| self.queue(place.line).remove(&place.turn));
        if let Some(line) = line {
            let since = waited.filter(|_| stays.is_some()).map_or(now, |waited| waited.since);
            self.queue(line).insert(turn, Waiting { hash, since });
        }
    }

    fn queue(&mut self, line: Line) -> &mut Queue {
        match line {
            Line::Ahead => &mut self.ahead,
            Line::Installs => &mut self.installs,
            Line::Deletions => &mut self.deletions,
        }
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// A token bucket: an update takes one token.
///
/// It holds one and what [`Self::LATE`] brings, and no more: whoever comes so late for an update loses nothing of the rate, and a switch
/// that was left alone for long is not flooded for it.
#[derive(Debug)]
struct Tokens {
    per_s: u32,
    /// As of `at`, in billionths: so many come each nanosecond as whole ones each second, and nothing is rounded.
    billionths: u64,
    at: Moment,
}

impl Tokens {
    /// A timer's delay, at the worst that is usual.
    const LATE: Span = Span::from_ms(1);
    const ONE: u64 = NS_PER_S;

    fn full(per_s: u32) -> Self {
        let mut tokens = Self { per_s, billionths: 0, at: Moment::default() };
        tokens.billionths = tokens.most();
        tokens
    }

    /// What it holds stays, as far as it may.
    fn set_rate(&mut self, now: Moment, per_s: u32) {
        let held = self.now(now);
        (self.per_s, self.at) = (per_s, self.at.max(now));
        self.billionths = held.min(self.most());
    }

    /// What it holds at most: below 2^53.
    fn most(&self) -> u64 {
        Self::ONE + u64::from(self.per_s) * Self::LATE.ns()
    }

    /// What it holds now; a clock that goes back brings nothing.
    fn now(&self, now: Moment) -> u64 {
        let came = now.since(self.at).ns().saturating_mul(u64::from(self.per_s));
        self.billionths.saturating_add(came).min(self.most())
    }

    /// How long until there is one.
    fn wait(&self, now: Moment) -> Span {
        // A clock that has gone back must first come to where it was.
        let missing = Self::ONE.saturating_sub(self.now(now)).div_ceil(u64::from(self.per_s));
        if missing == 0 { Span::default() } else { self.at.since(now) + Span::from_ns(missing) }
    }

    /// Takes one, which is there.
    fn take(&mut self, now: Moment) {
        self.billionths = self.now(now) - Self::ONE;
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
#[path = "rule_plan_tests.rs"]
mod tests;
