//! Any bytes as a memory file, and as a block of items in one whose checksums are right: what is read is sound, and written again it
//! is read as the same.
#![no_main]

use std::io::Cursor;

use guira_item::Rank;
use guira_persist::format::{FormatError, Head, Item, Reader, VERSION, Writer};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = read(data);
    // How many items the index says there are, and the block.
    let Some((count, block)) = data.split_first() else { return };
    let Ok(items) = read(&file(u64::from(*count), block)) else { return };
    assert_eq!(items.len(), usize::from(*count));
    let mut writer = Writer::begin(Vec::new(), &Head::default()).expect("memory");
    for item in &items {
        let item = item.as_item();
        writer.put(Rank::default(), &item, item.value.len(), std::iter::once(item.value)).expect("as long as before");
    }
    let (written, bytes) = writer.finish().expect("memory");
    assert_eq!(written, items.len() as u64);
    assert!(read(&bytes).expect("just written") == items);
});

/// A sound file with one block.
fn file(count: u64, block: &[u8]) -> Vec<u8> {
    let mut bytes = b"GUIRAMEM".to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    for number in [7u64, 8, 9] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    let at = bytes.len() as u64;
    bytes.extend_from_slice(block);
    let mut end = Vec::new();
    for number in [at, block.len() as u64, count] {
        end.extend_from_slice(&number.to_le_bytes());
    }
    end.push(3);
    end.extend_from_slice(&crc32fast::hash(block).to_le_bytes());
    for number in [bytes.len() as u64, 1] {
        end.extend_from_slice(&number.to_le_bytes());
    }
    end.extend_from_slice(&crc32fast::hash(&end).to_le_bytes());
    bytes.extend_from_slice(&end);
    bytes.extend_from_slice(b"GUIRAEND");
    bytes
}

/// An item that owns its bytes.
#[derive(PartialEq)]
struct Owned {
    key: Vec<u8>,
    value: Vec<u8>,
    numbers: (u32, u64, u64, u32),
    marks: [bool; 5],
}

impl Owned {
    fn of(item: &Item<'_>) -> Self {
        Self {
            key: item.key.as_bytes().to_vec(),
            value: item.value.to_vec(),
            numbers: (item.flags, item.expires_unix_s, item.version, item.idle_s),
            marks: [item.fetched, item.stale, item.win_sent, item.recent, item.spared],
        }
    }

    fn as_item(&self) -> Item<'_> {
        let key = guira_item::Key::new(&self.key).expect("it was one");
        let ((flags, expires_unix_s, version, idle_s), value) = (self.numbers, &self.value[..]);
        let [fetched, stale, win_sent, recent, spared] = self.marks;
        Item { key, flags, expires_unix_s, version, idle_s, fetched, stale, win_sent, recent, spared, value }
    }
}

fn read(bytes: &[u8]) -> Result<Vec<Owned>, FormatError> {
    let mut items = Vec::new();
    Reader::open(Cursor::new(bytes))?.read::<FormatError>(|block| {
        items.extend(block.iter().map(Owned::of));
        Ok(())
    })?;
    Ok(items)
}
