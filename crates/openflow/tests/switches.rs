//! The thread that hears switches: who calls again, who is one too many, and what is told once it has ended.
#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use guira_openflow::{
    Actions, Broken, DatapathId, FlowAt, FlowKey, Switches, SwitchesConfig, SwitchesEnded, SwitchesTold, Told,
    message_len,
};

/// Far longer than a loaded machine needs.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a switch says of itself.
const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];
const FEATURES: [u8; 32] =
    [4, 6, 0, 32, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn listen(connections_max: usize) -> (Switches, Receiver<SwitchesTold>) {
    listen_as(SwitchesConfig { connections_max, ..SwitchesConfig::default() })
}

fn listen_as(config: SwitchesConfig) -> (Switches, Receiver<SwitchesTold>) {
    let (tell, told) = mpsc::channel();
    let switches = Switches::listen((Ipv4Addr::LOCALHOST, 0).into(), config, move |told| drop(tell.send(told)));
    (switches.unwrap(), told)
}

/// A switch that calls, and says who it is.
fn call(switches: &Switches) -> TcpStream {
    let mut stream = TcpStream::connect(switches.address()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(&HELLO).unwrap();
    stream.write_all(&FEATURES).unwrap();
    stream
}

#[test]
fn a_switch_that_calls_again_has_the_place_of_its_earlier_connection() {
    let (switches, told) = listen(8);
    let mut first = call(&switches);
    let seven = Some(DatapathId(7));
    assert!(matches!(told.recv_timeout(DEADLINE), Ok(SwitchesTold::Of(of, Told::Known(_))) if of == seven));
    let _second = call(&switches);
    assert!(matches!(told.recv_timeout(DEADLINE), Ok(SwitchesTold::Of(of, Told::Known(_))) if of == seven));
    assert!(matches!(told.recv_timeout(DEADLINE), Ok(SwitchesTold::Gone(of, Some(Broken::Replaced))) if of == seven));
    first.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(switches.status().unwrap().len(), 1);
}

#[test]
fn a_switch_that_is_not_expected_is_told_nothing_and_closed() {
    let expected = |switch| SwitchesConfig { expected: Some([switch].into()), ..SwitchesConfig::default() };
    let (switches, told) = listen_as(expected(DatapathId(8)));
    switches.want(FlowKey::default(), Actions::default()).unwrap();
    let mut stream = call(&switches);
    let gone = told.recv_timeout(DEADLINE);
    assert!(matches!(gone, Ok(SwitchesTold::Gone(Some(DatapathId(7)), Some(Broken::Unexpected)))), "{gone:?}");
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    // Hello, and who are you.
    let kinds: Vec<u8> = messages(&said).map(|message| message[1]).collect();
    assert_eq!(kinds, [0, 5]);

    let (switches, told) = listen_as(expected(DatapathId(7)));
    let _stream = call(&switches);
    assert!(matches!(told.recv_timeout(DEADLINE), Ok(SwitchesTold::Of(Some(DatapathId(7)), Told::Known(_)))));
    assert_eq!(switches.status().unwrap()[0].datapath, Some(DatapathId(7)));
}

#[test]
fn a_switch_is_told_what_all_are_to_have_and_what_it_alone_is() {
    let (switches, _told) = listen(8);
    let flow = |switch: Option<u64>, priority| FlowAt {
        switch: switch.map(DatapathId),
        key: FlowKey { priority, ..FlowKey::default() },
    };
    let wanted = |switches: &Switches| switches.status().unwrap()[0].wanted;
    let before = [flow(None, 1), flow(Some(7), 2), flow(Some(8), 3)].map(|flow| (flow, Some(Actions::default())));
    switches.update(before).unwrap();
    let _stream = call(&switches);
    while switches.status().unwrap().first().and_then(|switch| switch.datapath).is_none() {
        thread::yield_now();
    }
    assert_eq!(wanted(&switches), 2);
    let behind = [flow(None, 4), flow(Some(7), 5), flow(Some(8), 6)].map(|flow| (flow, Some(Actions::default())));
    switches.update(behind).unwrap();
    assert_eq!(wanted(&switches), 4);
    switches.update([flow(Some(7), 2), flow(Some(8), 3)].map(|flow| (flow, None))).unwrap();
    assert_eq!(wanted(&switches), 3);
}

/// The messages that there are.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (message, rest) = bytes.split_at_checked(message_len(bytes).ok()??)?;
        bytes = rest;
        Some(message)
    })
}

#[test]
fn a_connection_beside_the_main_one_is_closed() {
    let (switches, told) = listen(8);
    let mut stream = TcpStream::connect(switches.address()).unwrap();
    let mut features = FEATURES;
    features[21] = 1;
    stream.write_all(&[&HELLO[..], &features].concat()).unwrap();
    assert!(matches!(told.recv_timeout(DEADLINE), Ok(SwitchesTold::Gone(None, Some(Broken::Auxiliary)))));
}

#[test]
fn who_is_one_too_many_is_closed_and_others_are_not() {
    let (switches, told) = listen(1);
    let first = call(&switches);
    assert!(matches!(told.recv_timeout(DEADLINE), Ok(SwitchesTold::Of(..))));
    let mut second = TcpStream::connect(switches.address()).unwrap();
    second.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(second.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(switches.status().unwrap().len(), 1);
    drop(first);
    assert!(matches!(told.recv_timeout(DEADLINE), Ok(SwitchesTold::Gone(_, None))));
    let mut third = TcpStream::connect(switches.address()).unwrap();
    third.set_read_timeout(Some(DEADLINE)).unwrap();
    third.read_exact(&mut [0; 8]).unwrap();
}

#[test]
fn once_the_thread_has_ended_by_itself_nobody_waits_for_it() {
    let config = SwitchesConfig::default();
    let panics = |told| panic!("as it is to: {told:?}");
    let switches = Switches::listen((Ipv4Addr::LOCALHOST, 0).into(), config, panics).unwrap();
    let mut stream = call(&switches);
    // Its end closes the connection, sooner or later by a reset.
    let _ = stream.read_to_end(&mut Vec::new());
    assert_eq!(switches.status(), Err(SwitchesEnded));
    assert_eq!(switches.unwant(FlowKey::default()), Err(SwitchesEnded));
}
