//! The thread that hears switches: who calls again, who is one too many, and what is told once it has ended.
#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use guira_openflow::{
    Broken, DatapathId, FlowKey, SwitchConfig, Switches, SwitchesConfig, SwitchesEnded, SwitchesTold, Told,
};

/// Far longer than a loaded machine needs.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a switch says of itself.
const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];
const FEATURES: [u8; 32] =
    [4, 6, 0, 32, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn listen(connections_max: usize) -> (Switches, Receiver<SwitchesTold>) {
    let (tell, told) = mpsc::channel();
    let config = SwitchesConfig { switch: SwitchConfig::default(), connections_max };
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
