//! Small files that are there whole or not at all, whatever is killed or loses power meanwhile.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Has a file have these bytes: they are written beside it, and get its name once they are on disk. When this returns, so is that.
///
/// # Errors
/// The file is as it was, or as it was to be.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    let next = path.with_file_name(name);
    let mut file = File::create(&next)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
