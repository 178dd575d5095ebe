//! One chore's run: its steps, how long each took, and what the test runner counted in them.

use std::{
    env, fmt,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
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
}

impl Run {
    /// A run in the workspace that xtask belongs to.
    pub fn in_workspace() -> Self {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { workspace: xtask.parent().unwrap_or(xtask).to_path_buf(), counts: Counts::default() }
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
    pub fn step(&mut self, name: &str, mut command: Command) -> Result<Counts, Failed> {
        let started = Instant::now();
        println!("\n== {name}: {}", describe(&command));
        let failed = |why: String| Failed(format!("{name}: {why}"));

        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| failed(error.to_string()))?;
        let stdout = child.stdout.take().ok_or_else(|| failed("no standard output".into()))?;
        let counts = relay(stdout, io::stdout()).map_err(|error| failed(error.to_string()))?;
        let status = child.wait().map_err(|error| failed(error.to_string()))?;

        self.counts.add(counts);
        println!("== {name}: {:.1} s", started.elapsed().as_secs_f64());
        if status.success() { Ok(counts) } else { Err(failed(status.to_string())) }
    }

    /// Runs steps beside each other, as many at a time as there are processors: such as keep to one. What a step says is printed once it has ended.
    /// All are run, whatever fails.
    ///
    /// # Errors
    /// One of them could not start or did not succeed: the first of those in the order given.
    pub fn steps_together(&mut self, steps: Vec<(String, Command)>) -> Result<(), Failed> {
        let at_a_time = thread::available_parallelism().map_or(1, usize::from).min(steps.len());
        println!("\n== {} steps, {at_a_time} at a time", steps.len());
        let waiting = Mutex::new(steps.into_iter().enumerate());
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let ended = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..at_a_time {
                scope.spawn(|| {
                    while let Some((number, (name, mut command))) = next() {
                        let started = Instant::now();
                        println!("== {name}: begins");
                        let output = command.output();
                        let seconds = started.elapsed().as_secs_f64();
                        let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                        println!("\n== {name}: {}", describe(&command));
                        ended.push((number, judge(&name, output)));
                        println!("== {name}: {seconds:.1} s");
                    }
                });
            }
        });
        let mut ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        ended.sort_by_key(|(number, _)| *number);
        let mut outcome = Ok(());
        for (_, (counts, judged)) in ended {
            self.counts.add(counts);
            outcome = outcome.and(judged);
        }
        outcome
    }

    /// The sum over all steps, `N passed, N failed`. A step that failed without counting anything is one failure.
    pub fn closing_line(&self, outcome: &Result<(), Failed>) -> String {
        let Counts { passed, failed } = self.counts;
        let failed = if outcome.is_err() { failed.max(1) } else { failed };
        format!("{passed} passed, {failed} failed")
    }
}

/// Prints what a step has said; what it counted, and whether it succeeded.
fn judge(name: &str, output: io::Result<Output>) -> (Counts, Result<(), Failed>) {
    let failed = |why: String| Err(Failed(format!("{name}: {why}")));
    let Output { status, stdout, stderr } = match output {
        Ok(output) => output,
        Err(error) => return (Counts::default(), failed(error.to_string())),
    };
    let stdout = String::from_utf8_lossy(&stdout);
    print!("{stdout}");
    eprint!("{}", String::from_utf8_lossy(&stderr));
    let mut counts = Counts::default();
    stdout.lines().for_each(|line| counts.add(Counts::from_line(line)));
    let judged = if status.success() { Ok(()) } else { failed(status.to_string()) };
    (counts, judged)
}

/// Passes a step's output on, byte for byte, and counts the tests in it.
fn relay(from: impl io::Read, mut to: impl Write) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        counts.add(Counts::from_line(&String::from_utf8_lossy(&line)));
        line.clear();
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
        assert_eq!(relay(output.as_bytes(), &mut passed_on).unwrap(), Counts { passed: 14, failed: 3 });
        assert_eq!(passed_on, output.as_bytes());
    }

    #[test]
    fn steps_beside_each_other_are_all_run_and_counted() {
        let mut run = Run { workspace: PathBuf::from("/"), counts: Counts::default() };
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
    fn a_failed_step_never_closes_with_none_failed() {
        let run = Run { workspace: PathBuf::new(), counts: Counts { passed: 7, failed: 0 } };
        assert_eq!(run.closing_line(&Ok(())), "7 passed, 0 failed");
        assert_eq!(run.closing_line(&Err(Failed("clippy".into()))), "7 passed, 1 failed");
    }
}
