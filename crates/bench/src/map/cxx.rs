//! The C++ program with the maps of oneTBB and tsl: compiled when a benchmark starts, from sources that are part of the
//! binary.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The program, and the headers that it includes.
const SOURCES: [(&str, &str); 4] = [
    ("main.cpp", include_str!("../../peers-cxx/main.cpp")),
    ("maps.hpp", include_str!("../../peers-cxx/maps.hpp")),
    ("phase.hpp", include_str!("../../peers-cxx/phase.hpp")),
    ("play.hpp", include_str!("../../peers-cxx/play.hpp")),
];

/// For the processor that Rust compiles for by default, too.
const COMPILER: &str = "g++ -std=c++20 -O3 -DNDEBUG -pthread -o maps main.cpp -ltbb";

/// A compiled program, in a folder that is removed with it.
pub(super) struct CxxProgram {
    folder: TempDir,
    version: String,
}

impl CxxProgram {
    /// Compiles it.
    ///
    /// # Errors
    /// A line that says what is missing.
    pub fn build() -> Result<Self, String> {
        let folder = TempDir::new().map_err(|error| format!("there is no folder to compile in: {error}"))?;
        for (name, text) in SOURCES {
            std::fs::write(folder.path().join(name), text).map_err(|error| format!("{name}: {error}"))?;
        }
        compile(COMPILER, folder.path())?;
        let mut program = Self { folder, version: String::new() };
        let output =
            program.command().arg("--version").output().map_err(|error| format!("it does not start: {error}"))?;
        program.version = String::from_utf8_lossy(&output.stdout).trim().to_string();
        Ok(program)
    }

    /// What it is made of.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its command, which expects an opening and phases on standard input.
    pub fn command(&self) -> Command {
        Command::new(self.folder.path().join("maps"))
    }
}

fn compile(compiler: &str, folder: &Path) -> Result<(), String> {
    let mut words = compiler.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program} does not start ({error}); `apt-get install g++`"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let words = text.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
    Err(format!("{program} says '{words}'; `apt-get install g++ libtbb-dev libtsl-hopscotch-map-dev`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_one_line_with_its_package() {
        let folder = TempDir::new().expect("a folder");
        let line = compile("nowhere-g++ main.cpp", folder.path()).expect_err("must fail");
        assert!(line.contains("apt-get install g++") && !line.contains('\n'), "{line}");
        std::fs::write(folder.path().join("main.cpp"), "#include <nowhere.h>\n").expect("a file");
        let line = compile("g++ main.cpp", folder.path()).expect_err("must fail");
        assert!(line.contains("nowhere.h") && line.contains("libtbb-dev") && !line.contains('\n'), "{line}");
    }
}
