//! Conversations captured from Debian's memcached 1.6.18 (see `examples/capture_conversations.rs`), held with the reference
//! server: the same bytes must come back, however the input is cut and whenever the answers come.

use crate::reference::{Conversation, Server, conversations};

mod reference;

fn all() -> Vec<Conversation> {
    let all = conversations(include_str!("conversations.txt"));
    assert!(all.len() > 30, "the file was read");
    all
}

fn text(bytes: &[u8]) -> String {
    reference::escape(bytes).join("\n")
}

#[track_caller]
fn check(conversation: &Conversation, server: &Server, how: &str) {
    let Conversation { title, output, closed, .. } = conversation;
    assert_eq!(text(&server.sent), text(output), "{title}, {how}");
    assert_eq!(server.closed, *closed, "{title}, {how}: closed");
}

#[test]
fn answers_are_memcacheds() {
    let mut differences = String::new();
    for Conversation { title, options, input, output, closed } in all() {
        let mut server = Server::with_options(&options);
        server.receive(&input);
        if server.sent != output || server.closed != closed {
            differences += &format!("--- {title} (closed: {})\n", server.closed);
            let (ours, theirs) = (reference::escape(&server.sent), reference::escape(&output));
            for index in 0..ours.len().max(theirs.len()) {
                let (ours, theirs) = (ours.get(index), theirs.get(index));
                let mark = if ours == theirs { ' ' } else { '!' };
                differences += &format!("{mark} {ours:?} for {theirs:?}\n");
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn cutting_the_input_changes_nothing() {
    for conversation in all().iter().filter(|it| it.input.len() < 2000) {
        let mut bytewise = Server::with_options(&conversation.options);
        for byte in &conversation.input {
            bytewise.receive(&[*byte]);
        }
        check(conversation, &bytewise, "byte by byte");
        for cut in 1..conversation.input.len() {
            let mut server = Server::with_options(&conversation.options);
            server.receive(&conversation.input[..cut]);
            server.receive(&conversation.input[cut..]);
            check(conversation, &server, &format!("cut at {cut}"));
        }
    }
}

#[test]
fn answers_may_come_in_two_parts() {
    for conversation in &all() {
        for split in 0..12 {
            let mut server = Server::with_options(&conversation.options);
            server.answer_split = Some(split);
            server.receive(&conversation.input);
            check(conversation, &server, &format!("answered in two parts, {split}"));
        }
    }
}
