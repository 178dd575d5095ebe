//! Rows on disk, of either cluster: one file of JSON lines for each experiment, and the figures beside it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use guira_loadgen::error::LoadError;
use serde::{Serialize, de::DeserializeOwned};

use super::{Row, aims::Aim, experiments::experiments, figures};

/// A run as a line of a file.
pub trait Kept: Serialize + DeserializeOwned + 'static {
    /// Names of all experiments.
    fn experiments() -> Vec<&'static str>;

    /// What is aimed at.
    fn aims() -> &'static [Aim<Self>];

    /// Which experiment it belongs to.
    fn experiment(&self) -> &str;

    /// Everything was drawn from it.
    fn seed(&self) -> u64;

    /// Draws every figure that some rows tell of; returns what was written.
    ///
    /// # Errors
    /// [`LoadError::Plot`] if a file cannot be written.
    fn draw(folder: &Path, rows: &[Self]) -> Result<Vec<PathBuf>, LoadError>;
}

impl Kept for Row {
    fn experiments() -> Vec<&'static str> {
        experiments().iter().map(|(name, _)| *name).collect()
    }

    fn aims() -> &'static [Aim<Self>] {
        &super::aims::AIMS
    }

    fn experiment(&self) -> &str {
        &self.experiment
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn draw(folder: &Path, rows: &[Self]) -> Result<Vec<PathBuf>, LoadError> {
        figures::draw(folder, rows)
    }
}

/// What can go wrong with what is kept.
#[derive(Debug)]
pub enum KeptError {
    /// A file or folder could not be read or written.
    File {
        /// Which.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A line that is no row.
    Line {
        /// Of which file.
        path: PathBuf,
        /// From 1 on.
        number: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// No experiment's file is there.
    Nothing {
        /// In which folder.
        folder: PathBuf,
        /// What there could be.
        names: Vec<&'static str>,
    },
    /// A figure could not be drawn.
    Figure(LoadError),
}

impl fmt::Display for KeptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Line { path, number, source } => write!(f, "{}, line {number} is no row: {source}", path.display()),
            Self::Nothing { folder, names } => {
                write!(f, "{} has no rows: NAME.jsonl, where NAME is one of {}", folder.display(), names.join(", "))
            }
            Self::Figure(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for KeptError {}

fn file_of(folder: &Path, experiment: &str) -> PathBuf {
    folder.join(format!("{experiment}.jsonl"))
}

/// Writes the rows of an experiment and its figures into a folder; returns what was written.
///
/// # Errors
/// [`KeptError`]
pub fn keep<R: Kept>(folder: &Path, experiment: &str, rows: &[R]) -> Result<Vec<PathBuf>, KeptError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| KeptError::File { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let path = file_of(folder, experiment);
    let mut lines = String::new();
    for row in rows {
        lines += &serde_json::to_string(row).map_err(|error| failed(&path)(error.into()))?;
        lines.push('\n');
    }
    std::fs::write(&path, lines).map_err(failed(&path))?;
    let mut written = vec![path];
    written.extend(R::draw(folder, rows).map_err(KeptError::Figure)?);
    Ok(written)
}

/// Draws the figures of all that is kept in a folder again; returns its rows.
///
/// # Errors
/// [`KeptError`]
pub fn redraw<R: Kept>(folder: &Path) -> Result<Vec<R>, KeptError> {
    let mut rows = Vec::new();
    for experiment in R::experiments() {
        let path = file_of(folder, experiment);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(KeptError::File { path, source }),
        };
        for (number, line) in (1..).zip(text.lines()) {
            let row =
                serde_json::from_str(line).map_err(|source| KeptError::Line { path: path.clone(), number, source });
            rows.push(row?);
        }
    }
    if rows.is_empty() {
        return Err(KeptError::Nothing { folder: folder.to_path_buf(), names: R::experiments() });
    }
    R::draw(folder, &rows).map_err(KeptError::Figure)?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::super::row::example;
    use super::*;

    #[test]
    fn what_is_no_row_is_told_by_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let told = |folder: &Path| redraw::<Row>(folder).expect_err("it cannot be drawn").to_string();
        assert!(told(folder.path()).contains("has no rows: NAME.jsonl, where NAME is one of skew, "));
        let row = serde_json::to_string(&example::answering("skew", 1.0)).expect("a line");
        std::fs::write(folder.path().join("skew.jsonl"), format!("{row}\n{{}}\n")).expect("a file");
        assert!(told(folder.path()).contains("skew.jsonl, line 2 is no row: missing field"), "{}", told(folder.path()));
    }
}
