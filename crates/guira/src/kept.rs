//! `-e`: the items that a stopped server comes back with, and what the user is told about them.

use std::path::{Path, PathBuf};

use guira_persist::{Loaded, MemoryFile, MemoryFileError, Saved};
use guira_server::Watch;

use crate::engine::Ready;

/// The memory file of this server.
pub(crate) struct Kept {
    path: PathBuf,
    file: MemoryFile,
}

impl Kept {
    /// Claims the file, under the user that the server runs as.
    pub(crate) fn claim(path: &Path) -> Result<Self, String> {
        let file = MemoryFile::claim(path).map_err(|error| told(path, "cannot be had", &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Loads what is there, and removes it; returns what the user is to know.
    pub(crate) fn load(&self, engine: &dyn Ready, watch: &Watch, evicts: bool) -> Result<String, String> {
        let path = self.path.display();
        let loaded =
            engine.load(&self.file, watch, evicts).map_err(|error| told(&self.path, "cannot be read", &error))?;
        // Where there is none, too: whoever removed it may have been killed before that was on disk, and a power cut would bring it back.
        self.file
            .forget()
            .map_err(|error| format!("-e {path}: cannot be removed ({error}), and would be out of date"))?;
        Ok(match loaded {
            Some(loaded) => format!("-e {path}: {}", summary(&loaded)),
            None => format!("-e {path}: no file yet, the cache is empty"),
        })
    }

    /// Saves what the engine has.
    pub(crate) fn save(self, engine: &dyn Ready, watch: &Watch) -> Result<(), String> {
        let Self { path, file } = self;
        match engine.save(file, watch) {
            Ok(Saved { items, bytes }) => {
                tracing::info!(items, bytes, "saved in {}", path.display());
                Ok(())
            }
            Err(error) => Err(told(&path, "the items are lost, since it cannot be written", &error)),
        }
    }
}

/// What went wrong with the file: what the system says, or what is wrong with what is in it.
fn told(path: &Path, what: &str, error: &MemoryFileError) -> String {
    let path = path.display();
    match error {
        MemoryFileError::Format(guira_persist::format::FormatError::Io(error)) => {
            format!("-e {path}: {what} ({error})")
        }
        error => format!("-e {path} {error}"),
    }
}

fn summary(loaded: &Loaded) -> String {
    let Loaded { items, expired, flushed, too_large, no_room } = *loaded;
    let mut text = format!("{items} {} back", if items == 1 { "item is" } else { "items are" });
    for (count, why) in [
        (expired, "had expired"),
        (flushed, "went with a flush_all that came due"),
        (no_room, "of the oldest found no room: raise -m to keep all"),
        (too_large, "are larger than -I allows"),
    ] {
        if count > 0 {
            text += &format!(", {count} {why}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_all_items_is_told() {
        let told = |loaded| summary(&loaded);
        let none = Loaded::default();
        assert_eq!(told(none), "0 items are back");
        assert_eq!(told(Loaded { items: 1, expired: 2, ..none }), "1 item is back, 2 had expired");
        let flushed = Loaded { flushed: 7, ..none };
        assert_eq!(told(flushed), "0 items are back, 7 went with a flush_all that came due");
        assert_eq!(
            told(Loaded { items: 5, expired: 1, too_large: 2, no_room: 3, ..none }),
            "5 items are back, 1 had expired, 3 of the oldest found no room: raise -m to keep all, 2 are larger than -I allows"
        );
    }
}
