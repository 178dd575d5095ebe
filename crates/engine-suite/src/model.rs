//! Every operation does what [`apply`] says.

use std::collections::HashMap;

use guira_item::{
    Answer, Arithmetic, ArithmeticMode, CasRule, Change, Current, Delete, Engine, Expiry, Get, Hit, Invalidate, Key,
    Operation, Request, Restore, Store, StoreMode, Time, apply,
};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::{
    Subject,
    caller::{Answers, NOW, Reply, run},
};

/// Random operations of all kinds on a few keys, beside a map that goes by [`apply`].
pub fn behaves_as_the_operations_say<E: Engine>(subject: &Subject<E>) {
    let operations = prop::collection::vec((0u8..12, any_operation(), 0u32..2), 1..4_000);
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(250) });
    let policies = prop::sample::select(subject.policies.to_vec());
    let outcome = runner.run(&(policies, operations), |(eviction, operations)| {
        let engine = subject.engine_with(64, eviction);
        let mut worker = engine.worker();
        let mut map = HashMap::new();
        let mut now = NOW;
        for (key, operation, seconds) in operations {
            now.0 += seconds * u32::from(key == 0);
            let name = format!("a key with a name of its own {key}");
            let version = map.get(&key).map_or(0, |item: &Reference| item.current.cas);
            let operation = operation.with_version(version);
            let reply = run(&engine, &mut worker, now, name.as_bytes(), operation);
            let cas = match &reply {
                Reply::Hit(hit, _) => hit.cas,
                Reply::Other(Answer::Stored { cas } | Answer::Number { cas, .. }) => *cas,
                Reply::Other(Answer::Invalidated) => version + 1_000_000,
                Reply::Other(_) => 0,
            };
            let expected = reference_step(&mut map, key, &operation, now, cas);
            match (&reply, expected) {
                (Reply::Other(answer), Err(expected)) => prop_assert_eq!(*answer, expected),
                (Reply::Hit(hit, value), Ok(expected)) => {
                    // What the classic commands do not tell, their reads need not know.
                    let tells_all =
                        !matches!(operation, Operation::Get(Get { value: true, wins: false, touch: None, .. }));
                    let told = |hit: &Hit| (hit.flags, hit.value_len, hit.won, hit.created);
                    prop_assert_eq!(told(hit), told(&expected));
                    if tells_all {
                        let rest = |hit: &Hit| (hit.expiry_before, hit.expiry, hit.stale, hit.win_sent);
                        prop_assert_eq!(rest(hit), rest(&expected));
                    }
                    let wants_value = matches!(operation, Operation::Get(Get { value: true, .. }));
                    if let (Some(item), true) = (map.get(&key), wants_value) {
                        prop_assert_eq!(value, &item.value);
                    }
                }
                (reply, expected) => prop_assert!(false, "{reply:?} but {expected:?}"),
            }
            // A new version is learnt from a read when the answer does not tell it.
            if let Some(item) = map.get_mut(&key)
                && let Reply::Hit(hit, _) =
                    run(&engine, &mut worker, now, name.as_bytes(), Operation::Get(Get { bump: false, ..Get::PLAIN }))
            {
                item.current.cas = hit.cas;
            }
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// The same in batches of many lengths, as a connection's pipeline comes: each request finds what those before it have left.
pub fn batches_behave_as_their_operations_one_by_one<E: Engine>(subject: &Subject<E>) {
    let batch = prop::collection::vec((0u8..40, any_operation()), 1..300);
    let batches = prop::collection::vec((batch, 0u32..3), 1..12);
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) });
    let policies = prop::sample::select(subject.policies.to_vec());
    let outcome = runner.run(&(policies, batches), |(eviction, batches)| {
        let engine = subject.engine_with(64, eviction);
        let mut worker = engine.worker();
        let mut map = HashMap::new();
        let mut now = NOW;
        for (batch, seconds) in batches {
            now.0 += seconds;
            let names: Vec<String> =
                batch.iter().map(|(key, _)| format!("a key with a name of its own {key}")).collect();
            let requests: Vec<Request<'_>> = batch
                .iter()
                .zip(&names)
                .map(|((_, operation), name)| Request {
                    key: Key::new(name.as_bytes()).expect("a key"),
                    operation: operation.without_version(),
                })
                .collect();
            let mut answers = Answers::default();
            engine.execute(&mut worker, now, &requests, &mut answers);
            prop_assert_eq!(answers.list.len(), requests.len());
            for ((request, (key, _)), reply) in requests.iter().zip(&batch).zip(answers.list) {
                let expected = reference_step(&mut map, *key, &request.operation, now, 0);
                match (reply, expected) {
                    (Reply::Hit(hit, value), Ok(expected)) => {
                        let told = |hit: &Hit| (hit.flags, hit.value_len, hit.won, hit.created);
                        prop_assert_eq!(told(&hit), told(&expected));
                        if let (Some(item), Operation::Get(Get { value: true, .. })) =
                            (map.get(key), &request.operation)
                        {
                            prop_assert_eq!(&value, &item.value);
                        }
                    }
                    (Reply::Other(answer), Err(expected)) => {
                        prop_assert_eq!(without_its_version(answer), without_its_version(expected));
                    }
                    (reply, expected) => prop_assert!(false, "{reply:?} but {expected:?}"),
                }
            }
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

fn without_its_version(answer: Answer) -> Answer {
    match answer {
        Answer::Stored { .. } => Answer::Stored { cas: 0 },
        Answer::Number { value, expiry_before, expiry, created, .. } => {
            Answer::Number { value, cas: 0, expiry_before, expiry, created }
        }
        other => other,
    }
}

fn any_operation() -> impl Strategy<Value = OwnedOperation> {
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (0u64..1_000).prop_map(|number| number.to_string().into_bytes()),
        (16_000usize..40_000).prop_map(|len| vec![b'x'; len]),
    ];
    let mode = prop::sample::select(vec![
        StoreMode::Set,
        StoreMode::Set,
        StoreMode::Add,
        StoreMode::Replace,
        StoreMode::Append,
        StoreMode::Prepend,
    ]);
    let expiry = prop_oneof![Just(Expiry::NEVER), (0u32..40).prop_map(|s| Expiry::at(Time(NOW.0 + s)))];
    let restore = (0u32..3, expiry.clone(), 0u64..20, any::<[bool; 3]>(), value.clone()).prop_map(
        |(flags, expiry, version, marks, value)| OwnedOperation::Restore { flags, expiry, version, marks, value },
    );
    let get = (any::<[bool; 3]>(), prop::option::of(expiry.clone()), prop::option::of(expiry.clone())).prop_map(
        |([wins, value, bump], touch, vivify)| {
            OwnedOperation::Get(Get { value, bump, wins, touch, vivify, ..Get::PLAIN })
        },
    );
    prop_oneof![
        4 => get,
        6 => (mode, 0u32..3, expiry.clone(), 0u8..4, value).prop_map(|(mode, flags, expiry, cas, value)| OwnedOperation::Store {
            mode, flags, expiry, cas, value
        }),
        2 => (0u8..3, any::<bool>()).prop_map(|(cas, stale)| OwnedOperation::Delete { cas, stale }),
        2 => (any::<bool>(), 0u64..50, any::<bool>()).prop_map(|(up, delta, create)| OwnedOperation::Arithmetic { up, delta, create }),
        1 => expiry.prop_map(OwnedOperation::Touch),
        1 => restore,
    ]
}

/// An operation whose versions are still to be filled in: 0 none, 1 the right one, others wrong.
#[derive(Clone, Debug)]
enum OwnedOperation {
    Get(Get),
    Store { mode: StoreMode, flags: u32, expiry: Expiry, cas: u8, value: Vec<u8> },
    Delete { cas: u8, stale: bool },
    Arithmetic { up: bool, delta: u64, create: bool },
    Touch(Expiry),
    Restore { flags: u32, expiry: Expiry, version: u64, marks: [bool; 3], value: Vec<u8> },
}

impl OwnedOperation {
    /// Whatever the version is.
    fn without_version(&self) -> Operation<'_> {
        match self {
            Self::Store { mode, flags, expiry, value, .. } => {
                Operation::Store(Store { mode: *mode, flags: *flags, expiry: *expiry, cas: None, vivify: None, value })
            }
            Self::Delete { stale, .. } => {
                Operation::Delete(Delete { cas: None, invalidate: stale.then_some(Invalidate { touch: None }) })
            }
            other => other.with_version(0),
        }
    }

    fn with_version(&self, version: u64) -> Operation<'_> {
        match self {
            Self::Get(get) => Operation::Get(*get),
            Self::Store { mode, flags, expiry, cas, value } => Operation::Store(Store {
                mode: *mode,
                flags: *flags,
                expiry: *expiry,
                cas: (*cas > 0).then(|| CasRule { expected: version + u64::from(*cas) - 1, or_stale: *cas == 3 }),
                vivify: None,
                value,
            }),
            Self::Delete { cas, stale } => Operation::Delete(Delete {
                cas: (*cas > 0).then(|| version + u64::from(*cas) - 1),
                invalidate: stale.then_some(Invalidate { touch: None }),
            }),
            Self::Arithmetic { up, delta, create } => Operation::Arithmetic(Arithmetic {
                mode: if *up { ArithmeticMode::Increment } else { ArithmeticMode::Decrement },
                delta: *delta,
                cas: None,
                touch: None,
                create: create.then_some((5, Expiry::NEVER)),
            }),
            Self::Touch(expiry) => Operation::Touch(*expiry),
            Self::Restore { flags, expiry, version, marks: [fetched, stale, win_sent], value } => {
                let (flags, expiry, version) = (*flags, *expiry, *version);
                let (fetched, stale, win_sent) = (*fetched, *stale, *win_sent);
                Operation::Restore(Restore {
                    replaces: false,
                    flags,
                    expiry,
                    version,
                    fetched,
                    stale,
                    win_sent,
                    idle_s: 7,
                    recent: false,
                    spared: false,
                    value,
                })
            }
        }
    }
}

/// What the reference keeps of an item.
#[derive(Clone, Debug)]
struct Reference {
    current: Current<'static>,
    value: Vec<u8>,
}

/// Carries `operation` out on the reference; versions come from the engine, so they are compared by their effect.
fn reference_step(
    map: &mut HashMap<u8, Reference>,
    key: u8,
    operation: &Operation<'_>,
    now: Time,
    cas: u64,
) -> Result<Hit, Answer> {
    if map.get(&key).is_some_and(|item| item.current.expiry.is_past(now)) {
        map.remove(&key);
    }
    let old = map.get(&key).cloned();
    let current = old.as_ref().map(|item| Current { value: Some(&item.value[..]), ..item.current });
    let (change, answer) = apply(operation, current.as_ref(), now, cas);
    let present = old.as_ref().map(|item| item.value.clone()).unwrap_or_default();
    match change {
        Change::Keep => {}
        Change::Remove => {
            map.remove(&key);
        }
        Change::Mark { expiry, stale, win_sent, new_version } => {
            let current = &mut map.get_mut(&key).expect("there").current;
            (current.expiry, current.stale, current.win_sent) = (expiry, stale, win_sent);
            if new_version {
                current.cas = cas;
            }
        }
        Change::Rewrite { value, flags, expiry, stale, win_sent } => {
            let value = value.bytes_with(&present);
            let current = Current {
                flags,
                cas,
                expiry,
                value_len: value.len(),
                value: None,
                fetched: false,
                stale,
                win_sent,
                idle_s: 0,
                class: 0,
                total_len: 0,
            };
            map.insert(key, Reference { current, value });
        }
    }
    answer
}
