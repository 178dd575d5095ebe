//! A folder with all that is in it, as values.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// Something in a folder.
#[derive(Clone, PartialEq, Eq)]
pub enum Node {
    /// A folder.
    Folder,
    /// A file, with its bytes.
    File(Vec<u8>),
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder => f.write_str("folder"),
            Self::File(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

/// All files and folders in a folder, by their paths from there. A file that has two names is there twice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree(pub BTreeMap<PathBuf, Node>);

impl Tree {
    /// What is in `folder`; sockets and the like are left out.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_folder(folder: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.add(folder, Path::new(""))?;
        Ok(tree)
    }

    fn add(&mut self, folder: &Path, below: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder.join(below))? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, below.join(entry.file_name()));
            if kind.is_dir() {
                self.0.insert(path.clone(), Node::Folder);
                self.add(folder, &path)?;
            } else if kind.is_file() {
                self.0.insert(path, Node::File(fs::read(entry.path())?));
            }
        }
        Ok(())
    }

    /// Makes `folder`, with all of this in it.
    ///
    /// # Errors
    /// What the system says.
    pub fn write_to(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        for (path, node) in &self.0 {
            match node {
                Node::Folder => fs::create_dir(folder.join(path))?,
                Node::File(bytes) => fs::write(folder.join(path), bytes)?,
            }
        }
        Ok(())
    }

    /// The bytes of a file, if there is one of this name.
    pub fn file(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        match self.0.get(path.as_ref())? {
            Node::File(bytes) => Some(bytes),
            Node::Folder => None,
        }
    }

    /// What differs between two, a line each.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let paths = self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path)));
        paths
            .filter(|path| self.0.get(*path) != other.0.get(*path))
            .map(|path| format!("{}: {:?} and {:?}", path.display(), self.0.get(path), other.0.get(path)))
            .collect()
    }
}
