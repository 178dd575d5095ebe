//! What each operation means, case by case.

use super::*;

const NOW: Time = Time(100);

fn item(value: &[u8]) -> Current<'_> {
    Current {
        flags: 7,
        cas: 5,
        expiry: Expiry::NEVER,
        value_len: value.len(),
        value: Some(value),
        fetched: false,
        stale: false,
        win_sent: false,
        idle_s: 0,
        class: 1,
        total_len: value.len() + 10,
    }
}

fn store(mode: StoreMode, cas: Option<CasRule>) -> Operation<'static> {
    Operation::Store(Store { mode, flags: 1, expiry: Expiry::NEVER, cas, vivify: None, value: b"new" })
}

fn answer_of(operation: &Operation<'_>, current: Option<&Current<'_>>) -> Answer {
    apply(operation, current, NOW, 6).1.expect_err("not a read hit")
}

#[test]
fn stores_obey_their_condition() {
    let here = item(b"old");
    let stored = Answer::Stored { cas: 6 };
    let cas = |expected| Some(CasRule { expected, or_stale: false });
    for (mode, rule, when_there, when_not) in [
        (StoreMode::Set, None, stored, stored),
        (StoreMode::Add, None, Answer::NotStored, stored),
        (StoreMode::Replace, None, stored, Answer::NotStored),
        (StoreMode::Append, None, stored, Answer::NotStored),
        (StoreMode::Prepend, None, stored, Answer::NotStored),
        (StoreMode::Set, cas(5), stored, Answer::NotFound),
        (StoreMode::Set, cas(4), Answer::Exists, Answer::NotFound),
        (StoreMode::Append, cas(4), Answer::Exists, Answer::NotStored),
    ] {
        let operation = store(mode, rule);
        assert_eq!(answer_of(&operation, Some(&here)), when_there, "{mode:?} {rule:?} on an item");
        assert_eq!(answer_of(&operation, None), when_not, "{mode:?} {rule:?} on nothing");
        let changes = |current| apply(&operation, current, NOW, 6).0 != Change::Keep;
        assert_eq!(changes(Some(&here)), when_there == stored);
        assert_eq!(changes(None), when_not == stored);
    }
}

#[test]
fn append_keeps_flags_and_expiry() {
    let here = item(b"old");
    let (change, _) = apply(&store(StoreMode::Append, None), Some(&here), NOW, 6);
    let Change::Rewrite { value, flags, .. } = change else { panic!("{change:?}") };
    assert_eq!((value, flags), (NewValue::Append(b"new"), 7));
    assert_eq!((value.len_with(3), value.bytes_with(b"old")), (6, b"oldnew".to_vec()));
}

#[test]
fn an_older_version_may_store_a_stale_value() {
    let here = item(b"old");
    let rule = |expected| Some(CasRule { expected, or_stale: true });
    let (change, answer) = apply(&store(StoreMode::Set, rule(4)), Some(&here), NOW, 6);
    assert!(matches!(change, Change::Rewrite { stale: true, .. }), "{change:?}");
    assert_eq!(answer, Err(Answer::Stored { cas: 6 }));
    assert_eq!(answer_of(&store(StoreMode::Set, rule(9)), Some(&here)), Answer::Exists);
}

#[test]
fn numbers_wrap_up_stop_at_zero_and_keep_their_length() {
    let change = |mode, delta, text: &'static [u8]| {
        let operation = Operation::Arithmetic(Arithmetic { mode, delta, cas: None, touch: None, create: None });
        match apply(&operation, Some(&item(text)), NOW, 6) {
            (Change::Rewrite { value: NewValue::Number(text), .. }, Err(Answer::Number { value, .. })) => {
                let digits = String::from_utf8(text.digits().to_vec()).expect("digits");
                Ok((value, format!("{digits:<0$}", text.padded_len())))
            }
            (_, answer) => Err(answer.expect_err("no read")),
        }
    };
    let up = ArithmeticMode::Increment;
    let down = ArithmeticMode::Decrement;
    assert_eq!(change(up, 1, b"9"), Ok((10, "10".into())));
    assert_eq!(change(down, 1, b"10"), Ok((9, "9 ".into())));
    assert_eq!(change(down, 50, b"42"), Ok((0, "0 ".into())));
    assert_eq!(change(up, 2, b"18446744073709551615"), Ok((1, format!("1{}", " ".repeat(19)))));
    assert_eq!(change(up, 1, b"9 "), Ok((10, "10".into())));
    assert_eq!(change(up, 1, b" +5 apples"), Ok((6, format!("6{}", " ".repeat(9)))));
    assert_eq!(change(up, 1, b"5\0x"), Ok((6, "6  ".into())));
    assert_eq!(change(up, 1, b"-18446744073709551611"), Ok((6, format!("6{}", " ".repeat(20)))));
    for text in [&b""[..], b"x", b"1x", b"-1", b"18446744073709551616"] {
        assert_eq!(change(up, 1, text), Err(Answer::NonNumeric), "{text:?}");
    }
}

#[test]
fn the_first_reader_of_a_stale_item_wins() {
    let read = Operation::Get(Get { wins: true, ..Get::PLAIN });
    let mut here = item(b"old");
    here.stale = true;
    let (change, answer) = apply(&read, Some(&here), NOW, 6);
    assert!(answer.expect("hit").won);
    assert!(matches!(change, Change::Mark { win_sent: true, stale: true, .. }));
    here.win_sent = true;
    let (change, answer) = apply(&read, Some(&here), NOW, 6);
    assert!(!answer.expect("hit").won);
    assert_eq!(change, Change::Keep);
    let classic = apply(&Operation::Get(Get::PLAIN), Some(&item(b"v")), NOW, 6);
    assert_eq!(classic.0, Change::Keep);
}

#[test]
fn recache_wins_only_near_the_end_of_an_item() {
    let mut here = item(b"v");
    here.expiry = Expiry::at(Time(120));
    let wins = |deadline| {
        let get = Get { wins: true, recache: Some(Expiry::at(Time(deadline))), ..Get::PLAIN };
        apply(&Operation::Get(get), Some(&here), NOW, 6).1.expect("hit").won
    };
    assert!(wins(130));
    assert!(!wins(110));
}

#[test]
fn a_vivified_miss_is_an_empty_item_whose_creator_won() {
    let get = Get { wins: true, vivify: Some(Expiry::at(Time(130))), ..Get::PLAIN };
    let (change, answer) = apply(&Operation::Get(get), None, NOW, 6);
    let hit = answer.expect("created");
    assert!(hit.won && hit.created && hit.value_len == 0);
    assert!(matches!(change, Change::Rewrite { win_sent: true, .. }));
}

#[test]
fn invalidation_marks_and_renews_the_version() {
    let delete = Operation::Delete(Delete { cas: Some(5), invalidate: Some(crate::Invalidate { touch: None }) });
    let (change, answer) = apply(&delete, Some(&item(b"v")), NOW, 6);
    assert_eq!(answer, Err(Answer::Invalidated));
    assert!(matches!(change, Change::Mark { stale: true, win_sent: false, new_version: true, .. }));
}
