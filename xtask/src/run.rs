//! One chore's run: its steps, how long each took, and what the test runner counted in them.

use std::{
    env, fmt,
    io::{self, BufRead, BufReader, Write},
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

/// Why a chore stopped; one line.
#[derive(Debug)]
pub struct Failed(pub String);

impl Failed {
    /// The user asked for something there is not.
    pub fn usage(usage: &str) -> Self {
        Self(format!("no such chore\n{usage}"))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What `cargo test` counted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
}

impl Counts {
    /// From a line such as `test result: ok. 12 passed; 0 failed; 1 ignored; ...`; other lines count nothing.
    fn from_line(line: &str) -> Self {
        let Some(result) = line.strip_prefix("test result: ") else { return Self::default() };
        let number_before = |word: &str| {
            let words: Vec<&str> = result.split([' ', ';']).filter(|word| !word.is_empty()).collect();
            words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
        };
        Self { passed: number_before("passed"), failed: number_before("failed") }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// A chore in progress.
pub struct Run {
    workspace: PathBuf,
    counts: Counts,
    /// Others run beside it: what its steps say stands behind this name.
    lane: Option<String>,
}

/// Steps that run one after the other, beside others.
pub type Lane<'a> = Box<dyn FnOnce(&mut Run) -> Result<(), Failed> + Send + 'a>;

impl Run {
    /// A run in the workspace that xtask belongs to.
    pub fn in_workspace() -> Self {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self::new(xtask.parent().unwrap_or(xtask).to_path_buf())
    }

    fn new(workspace: PathBuf) -> Self {
        Self { workspace, counts: Counts::default(), lane: None }
    }

    /// The workspace's root.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Where cargo puts what it builds.
    pub fn target_dir(&self) -> PathBuf {
        match env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.workspace.join(folder),
            None => self.workspace.join("target"),
        }
    }

    /// A command line as a command, run at the workspace's root.
    pub fn command(&self, command_line: &str) -> Command {
        let mut words = command_line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(&self.workspace);
        command
    }

    /// Runs one step and counts the tests it reports. `name` says what it is for.
    ///
    /// # Errors
    /// The step could not start or did not succeed.
    pub fn step(&mut self, name: &str, command: Command) -> Result<Counts, Failed> {
        let started = Instant::now();
        println!("\n== {name}: {}", describe(&command));
        let ran = match &self.lane {
            None => run_alone(command),
            Some(lane) => run_beside_others(lane, command),
        };
        let (status, counts) = ran.map_err(|error| Failed(format!("{name}: {error}")))?;
        self.counts.add(counts);
        println!("== {name}: {:.1} s", started.elapsed().as_secs_f64());
        if status.success() { Ok(counts) } else { Err(Failed(format!("{name}: {status}"))) }
    }

    /// Runs lanes beside each other, all to their ends, whatever fails. Each has a name.
    ///
    /// # Errors
    /// One of them failed: the first of those in the order given.
    pub fn lanes(&mut self, lanes: Vec<(String, Lane<'_>)>) -> Result<(), Failed> {
        let workspace = &self.workspace;
        let ended: Vec<_> = thread::scope(|scope| {
            let begin = |name, lane: Lane<'_>| {
                let mut run = Self { lane: Some(name), ..Self::new(workspace.clone()) };
                (lane(&mut run), run.counts)
            };
            let lanes: Vec<_> = lanes.into_iter().map(|(name, lane)| scope.spawn(move || begin(name, lane))).collect();
            lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let mut outcome = Ok(());
        for (lane, counts) in ended {
            self.counts.add(counts);
            outcome = outcome.and(lane);
        }
        outcome
    }

    /// Runs steps beside each other, as many at a time as there are processors: such as keep to one. All are run, whatever fails.
    ///
    /// # Errors
    /// One of them could not start or did not succeed: the first of those in the order given.
    pub fn steps_together(&mut self, steps: Vec<(String, Command)>) -> Result<(), Failed> {
        let at_a_time = thread::available_parallelism().map_or(1, usize::from).min(steps.len());
        println!("\n== {} steps, {at_a_time} at a time", steps.len());
        let waiting = Mutex::new(steps.into_iter().enumerate());
        let ended = Mutex::new(Vec::new());
        let work = |run: &mut Self| {
            let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((number, (name, command))) = next() {
                let step = run.step(&name, command);
                ended.lock().unwrap_or_else(PoisonError::into_inner).push((number, step));
            }
            Ok(())
        };
        self.lanes((1..=at_a_time).map(|lane| (lane.to_string(), Box::new(work) as Lane<'_>)).collect())?;
        let mut ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        ended.sort_by_key(|(number, _)| *number);
        ended.into_iter().try_for_each(|(_, step)| step.map(drop))
    }

    /// The sum over all steps, `N passed, N failed`. A step that failed without counting anything is one failure.
    pub fn closing_line(&self, outcome: &Result<(), Failed>) -> String {
        let Counts { passed, failed } = self.counts;
        let failed = if outcome.is_err() { failed.max(1) } else { failed };
        format!("{passed} passed, {failed} failed")
    }
}

/// Runs a command and passes its output on as it comes. What it says of errors goes where it wants.
fn run_alone(mut command: Command) -> io::Result<(ExitStatus, Counts)> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
    let counts = relay(stdout, "", io::stdout())?;
    Ok((child.wait()?, counts))
}

/// Runs a command and passes on what it says, errors or not, in one order, each line behind the lane's name.
fn run_beside_others(lane: &str, mut command: Command) -> io::Result<(ExitStatus, Counts)> {
    let (reader, writer) = io::pipe()?;
    let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // It keeps the pipe open.
    drop(command);
    let counts = relay(reader, &format!("{lane}| "), io::stdout())?;
    Ok((child.wait()?, counts))
}

/// Passes a step's output on, byte for byte, each line behind a prefix, and counts the tests in it.
fn relay(from: impl io::Read, prefix: &str, mut to: impl Write) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut lines = BufReader::new(from);
    let mut line = prefix.as_bytes().to_vec();
    while lines.read_until(b'\n', &mut line)? > 0 {
        // At once, so that no line of another lane comes in between.
        to.write_all(&line)?;
        counts.add(Counts::from_line(&String::from_utf8_lossy(&line[prefix.len()..])));
        line.truncate(prefix.len());
    }
    Ok(counts)
}

/// The command as one could type it.
fn describe(command: &Command) -> String {
    let environment = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={:?}", name.to_string_lossy(), value?.to_string_lossy())));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    environment.chain(words.map(|word| word.to_string_lossy().into_owned())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_result_lines_are_counted() {
        let output = "running 3 tests\ntest a ... ok\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
            test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out\n5 passed; 5 failed\n";
        let mut passed_on = Vec::new();
        assert_eq!(relay(output.as_bytes(), "", &mut passed_on).unwrap(), Counts { passed: 14, failed: 3 });
        assert_eq!(passed_on, output.as_bytes());
        passed_on.clear();
        relay(&b"a\nb"[..], "lane| ", &mut passed_on).unwrap();
        assert_eq!(passed_on, b"lane| a\nlane| b");
    }

    #[test]
    fn steps_beside_each_other_are_all_run_and_counted() {
        let mut run = Run::new(PathBuf::from("/"));
        let step = |name: &str, line: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            (name.to_owned(), command)
        };
        let ok = "echo 'test result: ok. 2 passed; 0 failed'";
        run.steps_together(vec![step("a", ok), step("b", ok), step("c", ok)]).unwrap();
        assert_eq!(run.counts, Counts { passed: 6, failed: 0 });

        let bad = format!("{ok}; exit 3");
        let failed = run.steps_together(vec![step("d", "exit 4"), step("e", &bad), step("f", ok)]).unwrap_err();
        assert!(failed.0.starts_with("d: "), "{failed}");
        assert_eq!(run.counts, Counts { passed: 10, failed: 0 });
        run.steps_together(vec![("g".into(), Command::new("/is/not/there"))]).unwrap_err();
        run.steps_together(Vec::new()).unwrap();
    }

    #[test]
    fn a_lane_goes_on_when_another_has_failed_and_ends_at_its_own_failure() {
        let mut run = Run::new(PathBuf::from("/"));
        let shell = |line: &'static str| {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            command
        };
        let ok = "echo 'test result: ok. 1 passed; 0 failed'";
        let fails: Lane<'_> = Box::new(move |run| {
            run.step("a", shell("exit 2"))?;
            run.step("b", shell(ok)).map(drop)
        });
        let goes_on: Lane<'_> = Box::new(move |run| {
            run.step("c", shell(ok))?;
            run.step("d", shell(ok)).map(drop)
        });
        let failed = run.lanes(vec![("left".into(), fails), ("right".into(), goes_on)]).unwrap_err();
        assert!(failed.0.starts_with("a: "), "{failed}");
        assert_eq!(run.counts, Counts { passed: 2, failed: 0 });
    }

    #[test]
    fn a_failed_step_never_closes_with_none_failed() {
        let run = Run { counts: Counts { passed: 7, failed: 0 }, ..Run::new(PathBuf::new()) };
        assert_eq!(run.closing_line(&Ok(())), "7 passed, 0 failed");
        assert_eq!(run.closing_line(&Err(Failed("clippy".into()))), "7 passed, 1 failed");
    }
}
