//! What a cut has left, opened, and compared with what clients were told.

use std::sync::{Arc, mpsc};

use guira_history::{Event, Violation, check};
use guira_item::{
    Key,
    store::{Generation, Record, Store},
};
use guira_persist::{
    Durability,
    rocks::{OpenError, RocksOptions, RocksStore, StoppedStore, UnixNow},
};

use super::lab::Cut;
use crate::book::{Act, Book, Item, KEYS, STEPS_AN_ACT};

pub fn unix_now() -> UnixNow {
    Arc::new(|| 1)
}

/// What clients can have of a store's item.
pub type Found = Option<Record<Arc<[u8]>>>;

pub fn get(store: &RocksStore, name: &str, generation: Generation) -> Found {
    let (told, found) = mpsc::channel();
    let key = Key::new(name.as_bytes()).expect("a key");
    store.get(key, Box::new(move |found| drop(told.send(found))));
    let found = found.recv().expect("it is completed").expect("it can be read");
    found.record.filter(|record| record.is_live(1, generation))
}

/// Opens what a cut has left, and tells what is under the keys and up to where versions are reserved; or why not.
pub fn open(cut: &Cut<'_>) -> Result<(Vec<Found>, u64), String> {
    let path = cut.folder.join("store");
    match StoppedStore::open(&path, unix_now()) {
        Ok(stopped) => {
            let Ok(findings) = stopped.read::<std::convert::Infallible>(|_, _| Ok(()), |_| ());
            if findings.defects > 0 {
                return Err(format!("{:?}", findings.told));
            }
        }
        // It was begun, and there is nothing in it; or it is for whoever may change it.
        Err(OpenError::NoStore | OpenError::Torn(_)) => {}
        Err(OpenError::Rocks(line)) if line.contains("Column family not found") => {}
        Err(error) => return Err(format!("looked at, it {error}")),
    }
    let options = RocksOptions::with_memory(16 << 20, Durability::Always, unix_now());
    let store = RocksStore::open(&path, &options).map_err(|error| format!("it {error}"))?;
    if let Some(why) = store.read_only() {
        return Err(why.to_owned());
    }
    let state = store.state();
    let found = (0..KEYS).map(|key| get(&store, &format!("key{key}"), state.generation)).collect();
    store.shut().map_err(|error| error.to_string())?;
    Ok((found, state.versions_reserved))
}

/// What remains of a history if the power goes at `at` and what was answered before `certain` counts as stored.
fn remaining(history: &[Event<Act>], at: u64, certain: u64) -> Vec<Event<Act>> {
    let begun = history.iter().filter(|event| Book::position_at(event.invoked) < at);
    let kept = begun.filter_map(|event| {
        let is_answered = |until| event.returned.is_some_and(|answered| Book::position_at(answered) <= until);
        match event.act {
            // What was only seen is gone with it.
            Act::Get(_) if !is_answered(certain) => None,
            _ => {
                let returned = event.returned.filter(|_| is_answered(at));
                Some(Event { is_certain: event.is_certain && is_answered(certain), returned, ..event.clone() })
            }
        }
    });
    kept.collect()
}

fn version_told(event: &Event<Act>) -> Option<u64> {
    match event.act {
        Act::Set(_, version) => version,
        Act::Cas(_, _, Some(Ok(version))) => Some(version),
        Act::Get(found) => found.map(|(_, version)| version),
        _ => None,
    }
}

/// Whether what a cut has left goes with what clients were told, if what was answered before `certain` counts as stored. What was not
/// answered before the cut, and may have been, is noted as over.
pub fn judge(book: &Book, cut: &Cut<'_>, certain: u64) -> Result<Vec<Vec<Event<Act>>>, String> {
    let (found, versions_reserved) = open(cut)?;
    let over = book.tick();
    let mut histories = Vec::new();
    for (key, (found, history)) in found.iter().zip(&book.histories).enumerate() {
        let mut history = remaining(&history.lock().expect("no panic with it"), cut.at, certain);
        let told = history.iter().filter(|event| event.returned.is_some()).filter_map(version_told).max();
        if told.is_some_and(|told| told > versions_reserved) {
            return Err(format!("key{key}: {told:?} was told, and versions go on from {versions_reserved}"));
        }
        history.iter_mut().filter(|event| event.returned.is_none()).for_each(|event| event.returned = Some(over));
        let seen = found.as_ref().map(|record| {
            let text = String::from_utf8_lossy(&record.value);
            let value = text.split(' ').next().and_then(|number| number.parse().ok());
            (value.unwrap_or_else(|| panic!("no number in {text:?}")), record.version)
        });
        let (invoked, returned) = (book.tick(), Some(book.tick()));
        history.push(Event { invoked, returned, is_certain: true, act: Act::Get(seen) });
        match check(&Item, &history, STEPS_AN_ACT * history.len() as u64) {
            Ok(()) => {}
            Err(violation @ Violation::Impossible { .. }) => return Err(format!("key{key}: {violation:?}")),
            Err(Violation::OutOfSteps) => panic!("key{key}: it took too long to find out"),
        }
        histories.push(history);
    }
    Ok(histories)
}
