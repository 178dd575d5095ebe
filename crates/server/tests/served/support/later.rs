//! A service whose answers come later, from another thread, in whatever order that thread likes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use guira_item::{
    Answer, Death, Engine, EngineStats, EvictionLog, Footprints, Hit, ItemInfo, Key, MemoryLimitError, Operation,
    PinnedValue, Request, Restore, ScanCursor, Service, Sink, Store, Ticket, Time, Wake,
};

use super::reference::Reference;

/// A request that owns its bytes.
struct Owned {
    key: Vec<u8>,
    operation: Operation<'static>,
    value: Vec<u8>,
}

impl Owned {
    fn of(request: &Request<'_>) -> Self {
        let (operation, value) = match request.operation {
            Operation::Store(store) => (Operation::Store(Store { value: &[], ..store }), store.value.to_vec()),
            Operation::Get(get) => (Operation::Get(get), Vec::new()),
            Operation::Delete(delete) => (Operation::Delete(delete), Vec::new()),
            Operation::Arithmetic(arithmetic) => (Operation::Arithmetic(arithmetic), Vec::new()),
            Operation::Touch(expiry) => (Operation::Touch(expiry), Vec::new()),
            Operation::Restore(item) => (Operation::Restore(Restore { value: &[], ..item }), item.value.to_vec()),
        };
        Self { key: request.key.as_bytes().to_vec(), operation, value }
    }

    fn request(&self) -> Request<'_> {
        let operation = match self.operation {
            Operation::Store(store) => Operation::Store(Store { value: &self.value, ..store }),
            Operation::Restore(item) => Operation::Restore(Restore { value: &self.value, ..item }),
            other => other,
        };
        Request { key: Key::new(&self.key).unwrap(), operation }
    }
}

struct Batch {
    now: Time,
    first: usize,
    requests: Vec<Owned>,
}

#[derive(Default)]
struct Desk {
    open: HashMap<Ticket, Batch>,
    ready: VecDeque<Ticket>,
}

pub struct LaterWorker {
    desk: Arc<Mutex<Desk>>,
    wake: Wake,
}

/// Answers the first `at_once` requests of a batch at once and the rest after `open` has been called, from a thread that
/// takes the newest ticket first.
pub struct Later {
    engine: Reference,
    at_once: usize,
    done: mpsc::Sender<(Arc<Mutex<Desk>>, Wake, Ticket)>,
    pub abandoned: Arc<AtomicUsize>,
    pub submitted: Arc<AtomicUsize>,
}

/// Lets the answers go.
pub struct Gate(mpsc::Sender<()>);

impl Gate {
    pub fn open(&self) {
        self.0.send(()).unwrap();
    }
}

impl Later {
    pub fn new(at_once: usize) -> (Self, Gate) {
        let (done, work) = mpsc::channel::<(Arc<Mutex<Desk>>, Wake, Ticket)>();
        let (gate, opened) = mpsc::channel();
        thread::spawn(move || {
            // Closed: nothing goes out. Once opened, everything does, the newest first.
            if opened.recv().is_err() {
                return;
            }
            while let Ok(first) = work.recv() {
                let mut all = vec![first];
                all.extend(work.try_iter());
                while let Some((desk, wake, ticket)) = all.pop() {
                    desk.lock().unwrap().ready.push_back(ticket);
                    wake();
                }
            }
        });
        let later =
            Self { engine: Reference::default(), at_once, done, abandoned: Arc::default(), submitted: Arc::default() };
        (later, Gate(gate))
    }
}

struct Shifted<'s, S>(&'s mut S, usize);

impl<S: Sink> Sink for Shifted<'_, S> {
    fn reserve(&mut self, index: usize, hit: &Hit) -> &mut [u8] {
        self.0.reserve(index + self.1, hit)
    }

    fn commit(&mut self, index: usize, hit: &Hit) {
        self.0.commit(index + self.1, hit);
    }

    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        self.0.pinned(index + self.1, hit, value);
    }

    fn metadata(&mut self, index: usize, hit: &Hit) {
        self.0.metadata(index + self.1, hit);
    }

    fn found_dead(&mut self, index: usize, death: Death) {
        self.0.found_dead(index + self.1, death);
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        self.0.answer(index + self.1, answer);
    }

    fn answer_change(&mut self, index: usize, answer: Answer, items: &Footprints) {
        self.0.answer_change(index + self.1, answer, items);
    }
}

impl Service for Later {
    type Worker = LaterWorker;

    fn worker(&self, wake: Wake) -> LaterWorker {
        LaterWorker { desk: Arc::default(), wake }
    }

    fn submit<S: Sink>(
        &self,
        worker: &mut LaterWorker,
        now: Time,
        ticket: Ticket,
        requests: &[Request<'_>],
        sink: &mut S,
    ) -> usize {
        let first = self.at_once.min(requests.len());
        self.engine.execute(&mut (), now, &requests[..first], sink);
        if first < requests.len() {
            let requests = requests[first..].iter().map(Owned::of).collect();
            let before = worker.desk.lock().unwrap().open.insert(ticket, Batch { now, first, requests });
            assert!(before.is_none(), "{ticket:?} was open already");
            self.done.send((Arc::clone(&worker.desk), Arc::clone(&worker.wake), ticket)).unwrap();
        }
        self.submitted.fetch_add(1, SeqCst);
        first
    }

    fn next_ready(&self, worker: &mut LaterWorker) -> Option<Ticket> {
        let mut desk = worker.desk.lock().unwrap();
        loop {
            let ticket = desk.ready.pop_front()?;
            if desk.open.contains_key(&ticket) {
                return Some(ticket);
            }
        }
    }

    fn deliver<S: Sink>(&self, worker: &mut LaterWorker, ticket: Ticket, sink: &mut S) {
        let batch = worker.desk.lock().unwrap().open.remove(&ticket).unwrap();
        let mut sink = Shifted(sink, batch.first);
        for (index, request) in batch.requests.iter().enumerate() {
            self.engine.execute_one(index, &request.request(), batch.now, &mut sink);
        }
    }

    fn abandon(&self, worker: &mut LaterWorker, ticket: Ticket) {
        if worker.desk.lock().unwrap().open.remove(&ticket).is_some() {
            self.abandoned.fetch_add(1, SeqCst);
        }
    }

    fn flush_all(&self, _worker: &mut LaterWorker, at: Time, now: Time, _ticket: Ticket) -> Option<Answer> {
        self.engine.flush_all(at, now);
        Some(Answer::Deleted)
    }

    fn stats(&self) -> EngineStats {
        self.engine.stats()
    }

    fn scan(
        &self,
        cursor: ScanCursor,
        limit: usize,
        now: Time,
        visit: &mut dyn FnMut(&ItemInfo<'_>),
    ) -> Option<ScanCursor> {
        self.engine.scan(cursor, limit, now, visit)
    }

    fn set_memory_limit(&self, bytes: usize) -> Result<(), MemoryLimitError> {
        self.engine.set_memory_limit(bytes)
    }

    fn maintain(&self, _worker: &mut LaterWorker, now: Time) -> bool {
        self.engine.maintain(&mut (), now)
    }

    fn log_evictions(&self, log: Option<EvictionLog>) {
        self.engine.log_evictions(log);
    }
}
