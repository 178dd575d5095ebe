//! All that a store, or a memory file, has for clients, as values that can be compared.

use std::{collections::BTreeMap, convert::Infallible, fs::File, path::Path};

use guira_item::store::StoreState;
use guira_persist::{
    FormatError,
    format::Reader,
    rocks::{OpenError, StoppedStore},
};

use super::judge::unix_now;

/// What is under a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    pub flags: u32,
    pub expires_unix_s: u64,
    /// 0 where it is not asked for.
    pub version: u64,
    pub is_stale: bool,
    pub value: Vec<u8>,
}

/// By keys.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Contents(pub BTreeMap<Vec<u8>, Content>);

impl Contents {
    /// What a store has that nobody serves, and its state, unless there is none that could be looked at.
    pub fn of_store(path: &Path) -> Result<(Self, StoreState), OpenError> {
        let store = StoppedStore::open(path, unix_now())?;
        let mut all = Self::default();
        let note = |key: guira_item::Key<'_>, record: &guira_item::store::Record<&[u8]>| {
            let (flags, expires_unix_s, version) = (record.flags, record.expires_unix_s, record.version);
            let content =
                Content { flags, expires_unix_s, version, is_stale: record.stale, value: record.value.to_vec() };
            all.0.insert(key.as_bytes().to_vec(), content);
            Ok(())
        };
        let Ok(findings) = store.read::<Infallible>(note, |_| ());
        match findings.defects {
            0 => Ok((all, store.state())),
            _ => Err(OpenError::Damaged(findings.told.join(", "))),
        }
    }

    /// What a memory file has; `None` if there is no file.
    pub fn of_file(path: &Path) -> Result<Option<Self>, FormatError> {
        if !path.exists() {
            return Ok(None);
        }
        let mut all = Self::default();
        Reader::open(File::open(path)?)?.read::<FormatError>(|items| {
            for item in items {
                let (flags, expires_unix_s, version) = (item.flags, item.expires_unix_s, item.version);
                let content =
                    Content { flags, expires_unix_s, version, is_stale: item.stale, value: item.value.to_vec() };
                all.0.insert(item.key.as_bytes().to_vec(), content);
            }
            Ok(())
        })?;
        Ok(Some(all))
    }

    /// The same, whatever the versions.
    pub fn without_versions(mut self) -> Self {
        self.0.values_mut().for_each(|content| content.version = 0);
        self
    }

    /// Whether all of it is in the other one, too.
    pub fn is_part_of(&self, other: &Self) -> bool {
        self.0.iter().all(|(key, content)| other.0.get(key) == Some(content))
    }
}
