//! A server before three nodes of Cassandra, of which one is killed: it goes on, starts again without it, and loses nothing.

use crate::{
    book::Book,
    cassandra_nodes::{alone, store},
    server::{Program, Server},
};

const NODES: usize = 3;

/// Answers about each key between one event and the next: one of which a dead node has the only copy would get none.
const ACTS: u64 = 20;

#[test]
fn each_node_is_killed_in_the_middle_of_the_work_and_nothing_is_lost() {
    let nodes = alone();
    let (store, book) = (store("three"), Book::with_refusals());
    let start = || Server::start(Program::Guira, &["-t", "2", "--store", &store]);
    for node in 1..=NODES {
        let cycle = 10 * node as u64;
        book.fill(&mut start(), cycle, || {
            book.wait_for_acts_with_each_key(ACTS);
            nodes.kill(node);
            book.wait_for_acts_with_each_key(ACTS);
        });
        // Nor does a start need all of them.
        book.fill(&mut start(), cycle + 1, || {
            book.wait_for_acts_with_each_key(ACTS);
            nodes.restart();
            book.wait_for_acts_with_each_key(ACTS);
        });
    }
    book.check(&start());
}
