//! A gateway whose network routes: what is only read goes by its content at first, and all else, and all that is not answered, to members themselves.

use guira_item::{Answer, Operation, Span};
use guira_routing::NodeId;
use guira_switched::{Network, Router, StaticFile, gateway::GatewayCounts};

use crate::asking::{BACKENDS, CACHE, SET, Setting, WIN};

/// As long as an answer is waited for at first.
const AT_FIRST: Span = Span::from_ms(20);

/// Longer than that, and than what is waited for then.
const A_WHILE: Span = Span::from_ms(100);

/// As long as who does not answer is passed by.
const PASSED_BY: Span = Span::from_s(1);

fn setting() -> Setting {
    let encoding = "ipv6=fd5e:a1c0::/32".parse().expect("one");
    let network = Network::new(Router::Openflow, encoding, 7_100, ([127, 0, 0, 1], 6_653).into());
    let mut setting = Setting::new(StaticFile { network: Some(network), ..StaticFile::default() });
    setting.answering.push(CACHE);
    let first = setting.reads(BACKENDS[0]);
    assert_eq!(setting.answer(first), Some(&Answer::Miss), "there is a session now");
    setting
}

/// What was routed, asked of cache nodes, and asked of backends.
fn asked(setting: &Setting) -> (u64, u64, u64) {
    let GatewayCounts { routed, to_caches, to_backends, .. } = setting.gateway.counts();
    (routed, to_caches, to_backends)
}

fn is_answered(setting: &mut Setting, operation: Operation<'_>) -> bool {
    let id = setting.ask(BACKENDS[0], operation);
    setting.answer(id).is_some()
}

#[test]
fn what_is_only_read_goes_by_its_content_and_all_else_to_its_backend() {
    let mut setting = setting();
    let (routed, _, to_backends) = asked(&setting);
    for leads_to in [None, Some(CACHE), None] {
        setting.leads_to = leads_to;
        let id = setting.reads(BACKENDS[0]);
        assert_eq!(setting.answer(id), Some(&Answer::Miss));
        assert_eq!(setting.gateway.routes(), usize::from(leads_to.is_some()), "who has answered last");
        assert_eq!(setting.routed.last().map(|(backend, _)| *backend), Some(BACKENDS[0]));
    }
    assert_eq!(asked(&setting), (routed + 3, 0, to_backends));
    assert!(is_answered(&mut setting, SET) && is_answered(&mut setting, WIN));
    assert_eq!(asked(&setting), (routed + 3, 0, to_backends + 2));
}

#[test]
fn who_may_win_by_a_read_is_asked_of_the_cache_node_that_has_answered_and_then_of_the_backend() {
    let mut setting = setting();
    setting.leads_to = Some(CACHE);
    setting.has_cache = true;
    setting.reads(BACKENDS[0]);
    let (routed, _, to_backends) = asked(&setting);
    assert!(is_answered(&mut setting, WIN), "it has nothing, and says so");
    assert_eq!(asked(&setting), (routed, 1, to_backends));
    assert_eq!(setting.routed.len() as u64, routed, "it is told where it is");
}

#[test]
fn what_nobody_answers_is_asked_of_its_backend_and_so_are_others_of_its_hash_for_a_while() {
    let mut setting = setting();
    // A cache node that is dead, of which this gateway knows nothing.
    setting.leads_to = Some(NodeId(101));
    let id = setting.reads(BACKENDS[0]);
    setting.pass(AT_FIRST - Span::from_ns(1));
    assert_eq!(setting.answer(id), None);
    setting.pass(A_WHILE);
    assert_eq!((setting.answers_of(id), setting.gateway.counts().resent), (1, 1));
    let (routed, _, to_backends) = asked(&setting);
    let others = setting.reads(BACKENDS[1]);
    assert_eq!(setting.answer(others), None, "of another hash");
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), asked(&setting)), (Some(&Answer::Miss), (routed + 1, 0, to_backends + 1)));
    setting.leads_to = None;
    setting.pass(PASSED_BY);
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), asked(&setting)), (Some(&Answer::Miss), (routed + 2, 0, to_backends + 1)));
}

#[test]
fn a_cache_node_that_has_fallen_silent_is_passed_by_for_all_that_it_answered() {
    let mut setting = setting();
    setting.leads_to = Some(CACHE);
    for backend in BACKENDS {
        setting.reads(backend);
    }
    setting.pass(A_WHILE);
    assert_eq!(setting.gateway.routes(), 2);
    setting.answering.retain(|member| *member != CACHE);
    for _ in 0..3 {
        let id = setting.reads(BACKENDS[0]);
        assert_eq!(setting.answer(id), None);
        setting.pass(A_WHILE);
        assert_eq!(setting.answer(id), Some(&Answer::Miss), "by its backend");
    }
    let (routed, ..) = asked(&setting);
    for backend in BACKENDS {
        let id = setting.reads(backend);
        assert_eq!(setting.answer(id), Some(&Answer::Miss), "at once");
    }
    assert_eq!(asked(&setting).0, routed);
    setting.answering.push(CACHE);
    setting.pass(PASSED_BY);
    let id = setting.reads(BACKENDS[0]);
    assert_eq!((setting.answer(id), asked(&setting).0), (Some(&Answer::Miss), routed + 1));
}

#[test]
fn nothing_goes_by_its_content_whose_backend_is_away() {
    let mut setting = setting();
    (setting.alive, setting.answering) = (vec![], vec![CACHE]);
    let change = setting.ask(BACKENDS[0], SET);
    setting.pass(Span::from_s(10));
    assert!(setting.answer(change).is_some());
    let routed = setting.routed.len();
    let id = setting.reads(BACKENDS[0]);
    assert!(matches!(setting.answer(id), Some(Answer::Failed(_))), "at once");
    assert_eq!(setting.routed.len(), routed);
}
