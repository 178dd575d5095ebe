//! Folders whose names are on disk: a name is, when the folder that it is in is synced.

use std::{fs::File, io, path::Path};

/// The folder that a path is in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Sees to it that the names in a folder are on disk.
///
/// # Errors
/// What the system says.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes a folder, and those it is in, and syncs their names.
///
/// # Errors
/// What the system says; some of them may be there then.
#[cfg(feature = "rocksdb")]
pub(crate) fn create_all(path: &Path) -> io::Result<()> {
    let mut missing = vec![path];
    while let folder = parent(missing[missing.len() - 1])
        && folder != Path::new(".")
        && !folder.exists()
    {
        missing.push(folder);
    }
    std::fs::create_dir_all(path)?;
    missing.into_iter().rev().try_for_each(|made| sync(parent(made)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_with_those_they_are_in_or_it_is_told_why_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("a/b/c");
        create_all(&deep).expect("made");
        create_all(&deep).expect("it is there");
        assert!(deep.is_dir());
        std::fs::write(folder.path().join("file"), "").expect("a file");
        create_all(&folder.path().join("file/below")).expect_err("in a file");
    }

    #[test]
    fn what_has_no_folder_before_it_is_in_this_one() {
        for (path, folder) in [("a", "."), ("a/b", "a"), ("/a", "/"), ("/", ".")] {
            assert_eq!(parent(Path::new(path)), Path::new(folder), "{path}");
        }
    }
}
