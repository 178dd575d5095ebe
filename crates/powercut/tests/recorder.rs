//! What a process does under the recorder is what its journal says. The process is this test once more.

use std::{
    env,
    error::Error,
    fs::{self, File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use guira_powercut::{Act, Choices, Disk, Fault, Journal, Recorder, Tree};

const CHILD: &str = "GUIRA_POWERCUT_CHILD";

/// Runs the child's part of a test under a recorder; what it says comes back.
fn run(recorder: &Recorder, part: &str, folder: &Path, clock_s: i64) -> String {
    let mut command = Command::new(env::current_exe().expect("this test"));
    command.args(["--exact", "the_process_that_is_recorded", "--nocapture"]).env(CHILD, part).current_dir(folder);
    recorder.record(&mut command, clock_s);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_process_that_is_recorded() -> Result<(), Box<dyn Error>> {
    match env::var(CHILD).as_deref() {
        Ok("files") => use_files(&env::current_dir()?)?,
        Ok("fault") => println!("told: {:?}", fail()),
        Ok("clock") => println!("unix: {}", unix_s()),
        // Somebody runs all tests.
        _ => {}
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it is the wall clock that is set")]
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("later than that").as_secs()
}

/// In every way that the standard library has.
fn use_files(folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::write(folder.with_file_name("beside"), "not recorded")?;
    fs::create_dir_all(folder.join("one/two"))?;
    let mut file = File::create_new(folder.join("one/a"))?;
    file.write_all(b"some bytes")?;
    file.sync_all()?;
    file.write_all_at(b"SOME", 0)?;
    file.seek(SeekFrom::Start(20))?;
    file.write_all(b"beyond a hole")?;
    file.set_len(30)?;
    file.sync_data()?;
    drop(file);
    // Relative, and at its end.
    OpenOptions::new().append(true).open("one/a")?.write_all(b" and more")?;
    fs::copy("one/a", "one/two/copy")?;
    File::open("one/two/copy")?.sync_all()?;
    fs::hard_link("one/two/copy", "link")?;
    fs::write("gone", "x")?;
    fs::remove_file("gone")?;
    fs::create_dir("empty")?;
    fs::remove_dir("empty")?;
    fs::create_dir_all("tree/below")?;
    fs::write("tree/below/file", "x")?;
    fs::remove_dir_all("tree")?;
    fs::write("b", "first")?;
    fs::write("b", "2nd")?;
    fs::write("c", "third")?;
    fs::rename("c", "b")?;
    fs::rename("one", "renamed")?;
    Ok(File::open(folder)?.sync_all()?)
}

fn fail() -> Result<(), Box<dyn Error>> {
    let mut file = File::create("other")?;
    file.write_all(b"x")?;
    file.sync_all()?;
    let mut file = File::create("file.log")?;
    file.write_all(b"x")?;
    Ok(file.sync_data()?)
}

#[test]
fn what_is_replayed_is_what_is_there() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("disk");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("before"), "was there").expect("a file");
    let recorder = Recorder::new(&folder).expect("a compiler");
    let mut disk = Disk::of_folder(&folder).expect("a folder");
    run(&recorder, "files", &folder, 0);
    let journal = Journal::read(&recorder.journal()).expect("a journal");
    assert_eq!(journal.len(), recorder.now());
    for entry in &journal.entries {
        disk.apply(entry).expect("possible");
    }
    let there = Tree::of_folder(&folder).expect("a folder");
    assert_eq!(disk.as_seen().differences(&there), Vec::<String>::new());
    assert!(there.file("renamed/two/copy").is_some_and(|bytes| bytes.len() == 39));
    // Its last act was a sync of the folder: names in it are on disk, and so are the bytes that were synced.
    let left = disk.after_cut(&Choices::none_kept());
    assert_eq!(left.file("renamed/two/copy"), there.file("renamed/two/copy"));
    assert_eq!(left.file("renamed/a").map(<[u8]>::len), Some(30));
    assert_eq!(left.file("b").map(<[u8]>::len), Some(0), "its bytes were not");
    assert_eq!(left.file("before"), Some(&b"was there"[..]));
}

#[test]
fn a_fault_comes_once_and_where_it_is_to() {
    let place = tempfile::tempdir().expect("a folder");
    let recorder = Recorder::new(place.path()).expect("a compiler");
    for (operation, errno) in [("sync", 5), ("write", 28)] {
        recorder.inject(Fault { operation, errno, suffix: ".log" }).expect("a file");
        assert!(!recorder.has_failed());
        let said = run(&recorder, "fault", place.path(), 0);
        assert!(recorder.has_failed() && said.contains(&format!("code: {errno}")), "{said}");
        let said = run(&recorder, "fault", place.path(), 0);
        assert!(said.contains("told: Ok(())"), "{said}");
    }
    let journal = Journal::read(&recorder.journal()).expect("a journal");
    let failed = journal.entries.iter().filter(|entry| matches!(entry.act, Act::SyncFailed(_))).count();
    let begun = journal.entries.iter().filter(|entry| entry.act == Act::Begin).count();
    assert_eq!((failed, begun), (1, 4));
}

#[test]
fn the_wall_clock_is_set() {
    let place = tempfile::tempdir().expect("a folder");
    let recorder = Recorder::new(place.path()).expect("a compiler");
    for clock_s in [-86_400, 0, 86_400] {
        let before = unix_s().saturating_add_signed(clock_s);
        let said = run(&recorder, "clock", place.path(), clock_s);
        let told = said.lines().find_map(|line| line.strip_prefix("unix: ")?.parse::<u64>().ok());
        let after = unix_s().saturating_add_signed(clock_s);
        assert!(told.is_some_and(|told| (before..=after).contains(&told)), "{said}");
    }
}
