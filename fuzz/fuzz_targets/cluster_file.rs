//! A cluster's file: any text. What is a cluster is printed as one, and has what all members need.
#![no_main]

use guira_switched::StaticFile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(file) = StaticFile::parse(text) else { return };
    let printed = file.print().expect("what was read can be written");
    // But for numbers that are not equal to themselves.
    assert_eq!(StaticFile::parse(&printed).expect("it is a cluster").print(), Ok(printed));
    assert!(file.members().is_ok() && file.partitions().is_ok());
    assert!(file.member(file.controller()).is_some());
});
