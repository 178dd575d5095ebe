//! A map in a process of its own, told line by line what to do: `phase`'s text in, one line out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{
    BenchError,
    contender::Contender,
    phase::{Outcome, Phase},
    subject::{Opening, Subject},
};
use crate::process_usage;

/// What a process answers once its map is made.
pub(super) const READY: &str = "ready";

/// Longest answer, bytes: some ten numbers, or a sentence. Whatever says more is no contender.
const ANSWER_BYTES_MAX: u64 = 1024;

/// A running contender; killed when dropped.
pub(super) struct Process {
    name: String,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Runs `command` and lets it make its map.
    pub fn start(mut command: Command, opening: &Opening<'_>, huge_pages: bool) -> Result<Self, BenchError> {
        if huge_pages {
            // glibc's malloc and oneTBB's, each by its own name.
            command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1").env("TBB_MALLOC_USE_HUGE_PAGES", "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            command.spawn().map_err(|source| BenchError::System { doing: "starting a contender", source })?;
        let (requests, answers) = child.stdin.take().zip(child.stdout.take()).expect("both were asked to be pipes");
        let name = opening.contender.to_string();
        let mut process = Self { name, child, requests, answers: BufReader::new(answers) };
        let answer = process.ask(&opening.to_string())?;
        if answer != READY {
            return Err(process.nonsense(&answer));
        }
        Ok(process)
    }

    fn ask(&mut self, request: &str) -> Result<String, BenchError> {
        let failed = |source| BenchError::System { doing: "talking to a contender", source };
        let mut answer = String::new();
        writeln!(self.requests, "{request}").and_then(|()| self.requests.flush()).map_err(failed)?;
        std::io::Read::take(&mut self.answers, ANSWER_BYTES_MAX).read_line(&mut answer).map_err(failed)?;
        match answer.strip_suffix('\n') {
            Some(line) => Ok(line.to_string()),
            None if answer.is_empty() => {
                Err(BenchError::Invalid(format!("{} ended when asked to '{request}'", self.name)))
            }
            None => Err(self.nonsense(&answer)),
        }
    }

    fn nonsense(&self, answer: &str) -> BenchError {
        BenchError::Invalid(format!("{} answered '{}'", self.name, answer.escape_debug()))
    }
}

impl Subject for Process {
    fn play(&mut self, phase: &Phase) -> Result<Outcome, BenchError> {
        let answer = self.ask(&phase.to_string())?;
        answer.parse().map_err(|_| self.nonsense(&answer))
    }

    fn resident_bytes(&self) -> Result<u64, BenchError> {
        Ok(process_usage::of(self.child.id())?.rss_bytes)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other side, for Rust's contenders: `guira bench map-contender`, started by `guira bench map`.
///
/// # Errors
/// [`BenchError`]: a line that makes no sense, a core that cannot be had, a pipe that broke.
pub fn serve(requests: impl BufRead, mut answers: impl Write) -> Result<(), BenchError> {
    let failed = |source| BenchError::System { doing: "talking to the benchmark", source };
    let garbled = |line: &str| BenchError::Setting(format!("'{line}' is for `guira bench map` to say"));
    let mut lines = requests.lines();
    let Some(line) = lines.next().transpose().map_err(failed)? else { return Ok(()) };
    let opening = Opening::parse(&line).map_err(|_| garbled(&line))?;
    let contender = Contender::called(opening.contender).ok_or_else(|| garbled(&line))?;
    let mut subject = contender.here(&opening)?;
    writeln!(answers, "{READY}").and_then(|()| answers.flush()).map_err(failed)?;
    for line in lines {
        let line = line.map_err(failed)?;
        let phase: Phase = line.parse().map_err(|_| garbled(&line))?;
        let outcome = subject.play(&phase)?;
        writeln!(answers, "{outcome}").and_then(|()| answers.flush()).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::phase::Work;

    fn process(script: &str) -> Result<Process, BenchError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command, &Opening { contender: "sh", value_bytes: 8, room: None }, false)
    }

    #[test]
    fn a_process_that_talks_nonsense_or_ends_is_refused() {
        for script in ["read x; echo steady", "read x", "yes | tr -d '\\n'", "read x; printf ready"] {
            let error = process(script).err().expect("must fail").to_string();
            assert!(error.contains("sh ") && !error.contains('\n'), "{error}");
        }
        let mut process = process("read x; echo ready; read x; echo spent 1 2; cat").expect("starts");
        let phase = Phase::new(Work::Fill, 0..10, &[0]);
        let error = process.play(&phase).expect_err("must fail").to_string();
        assert!(error.contains("spent 1 2"), "{error}");
    }

    #[test]
    fn phases_are_served_over_lines() {
        let phase = |work, numbers| Phase::new(work, numbers, &[guira_loadgen::affinity::cores()[0]]);
        let requests = [
            Opening { contender: "dashmap", value_bytes: 16, room: None }.to_string(),
            phase(Work::Fill, 0..1000).with_lookups(1).to_string(),
            phase(Work::Hits, 0..1000).to_string(),
            phase(Work::Misses, 0..1000).to_string(),
        ];
        let mut answers = Vec::new();
        serve(requests.join("\n").as_bytes(), &mut answers).expect("serves");
        let text = String::from_utf8(answers).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (4, READY));
        assert!(lines[1].starts_with("spent 2000 ") && lines[2].starts_with("spent "), "{text}");
        assert!(lines[3].starts_with("wrong "), "misses that hit are noticed: {text}");
        assert!(serve("open nobody 8 0\n".as_bytes(), Vec::new()).is_err());
        assert!(serve("open dashmap 9 0\n".as_bytes(), Vec::new()).is_err());
    }
}
