//! The memory file: items in blocks by rank, so that those of all orders of eviction can be loaded side by side though they were found
//! one order after the other.
//!
//! ```text
//! header   "GUIRAMEM" | version u32 | saved, Unix time in seconds u64 | last version of an item u64 |
//!          a flush is due, Unix time in seconds u64 (0: none) | crc u32 of that
//! blocks   items one after the other, all of one rank
//! index    for each block: offset u64 | length u64 | items u64 | rank u8 | crc u32 of the block
//! footer   offset of the index u64 | blocks u64 | crc u32 of the index and of these two | "GUIRAEND"
//! item     key length u8 | marks u8 | flags u32 | expires, Unix time in seconds u64 (0: never) | version u64 |
//!          not used for so many seconds u32 | value length u32 | key | value
//! ```
//! Numbers are little-endian. Always true: every byte is covered by a checksum or compared with what it has to be, and no length is
//! believed that reaches beyond the file, so that a damaged file is told from a sound one, and costs a few times as much memory as it
//! is long at most.

use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom, Write},
};

use guira_item::{Key, Rank};

const MAGIC: &[u8; 8] = b"GUIRAMEM";
const END_MAGIC: &[u8; 8] = b"GUIRAEND";

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 2;

const HEADER_LEN: usize = 8 + 4 + 8 + 8 + 8 + 4;
const ENTRY_LEN: usize = 8 + 8 + 8 + 1 + 4;
const FOOTER_LEN: usize = 8 + 8 + 4 + 8;
const ITEM_HEADER_LEN: usize = 1 + 1 + 4 + 8 + 8 + 4 + 4;

/// Bytes of a block from which on it is written; there are up to [`Rank::COUNT`] of them at a time.
const BLOCK_LEN: usize = 128 << 10;

const FETCHED: u8 = 1;
const STALE: u8 = 2;
const WON: u8 = 4;
const RECENT: u8 = 8;
const SPARED: u8 = 16;

/// What is kept of all items together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// When they were saved, Unix time in seconds.
    pub saved_unix_s: u64,
    /// The highest version that any item had been given, those included that were gone by then.
    pub last_version: u64,
    /// From then on, Unix time in seconds, none of them is to be seen; 0: no such thing was asked for.
    pub flush_unix_s: u64,
}

/// An item as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'a> {
    /// Whose value it is.
    pub key: Key<'a>,
    /// The client's flags.
    pub flags: u32,
    /// Unix time in seconds from which on it is gone; 0: never.
    pub expires_unix_s: u64,
    /// Its version.
    pub version: u64,
    /// Seconds between its last use and when it was saved.
    pub idle_s: u32,
    /// Has been read.
    pub fetched: bool,
    /// Is marked stale.
    pub stale: bool,
    /// A client has been told that it won.
    pub win_sent: bool,
    /// Had been read since the eviction hand came by.
    pub recent: bool,
    /// Had been spared by its policy.
    pub spared: bool,
    /// The bytes.
    pub value: &'a [u8],
}

/// Why a file is not read.
#[derive(Debug)]
pub enum FormatError {
    /// The system did not read or write.
    Io(io::Error),
    /// It does not begin as such a file does.
    NotOne,
    /// It is of another version.
    OtherVersion(u32),
    /// It is cut short, or some of it is not what was written.
    Damaged {
        /// What is not as it should be.
        what: &'static str,
    },
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NotOne => write!(f, "is no memory file of guira's"),
            Self::OtherVersion(found) => write!(f, "is of version {found}, and this guira reads version {VERSION}"),
            Self::Damaged { what } => write!(f, "is cut short or damaged ({what})"),
        }
    }
}

impl std::error::Error for FormatError {}

impl From<io::Error> for FormatError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn damaged(what: &'static str) -> FormatError {
    FormatError::Damaged { what }
}

/// A block, as the index has it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: u64,
    len: u64,
    items: u64,
    rank: Rank,
    crc: u32,
}

impl Entry {
    fn push_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&self.items.to_le_bytes());
        bytes.push(self.rank.number());
        bytes.extend_from_slice(&self.crc.to_le_bytes());
    }

    fn take(bytes: &mut Bytes<'_>) -> Option<Self> {
        let (offset, len, items) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        Some(Self { offset, len, items, rank: Rank::numbered(bytes.u8()?)?, crc: bytes.u32()? })
    }
}

/// A block under construction.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    items: u64,
}

/// Writes a memory file.
pub struct Writer<W> {
    to: W,
    written: u64,
    blocks: Vec<Block>,
    index: Vec<Entry>,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Whatever `to` says.
    pub fn begin(mut to: W, head: &Head) -> io::Result<Self> {
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        for number in [head.saved_unix_s, head.last_version, head.flush_unix_s] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
        to.write_all(&header)?;
        let blocks = (0..Rank::COUNT).map(|_| Block::default()).collect();
        Ok(Self { to, written: HEADER_LEN as u64, blocks, index: Vec::new() })
    }

    /// Adds an item behind those of its rank that came before; its value comes in pieces, so that its own is not looked at.
    ///
    /// # Errors
    /// Whatever `to` says; a key or a value that is longer than the format allows.
    pub fn put<'p>(
        &mut self,
        rank: Rank,
        item: &Item<'_>,
        value_len: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> io::Result<()> {
        let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "an item that is too long for a memory file");
        let key = item.key.as_bytes();
        let key_len = u8::try_from(key.len()).map_err(|_| too_long())?;
        let value_len = u32::try_from(value_len).map_err(|_| too_long())?;
        let block = &mut self.blocks[usize::from(rank.number())];
        let [stale, won] = [(item.stale, STALE), (item.win_sent, WON)];
        let marks = [(item.fetched, FETCHED), stale, won, (item.recent, RECENT), (item.spared, SPARED)];
        let marks = marks.into_iter().filter(|(is_set, _)| *is_set).fold(0, |marks, (_, mark)| marks | mark);
        block.bytes.extend_from_slice(&[key_len, marks]);
        block.bytes.extend_from_slice(&item.flags.to_le_bytes());
        block.bytes.extend_from_slice(&item.expires_unix_s.to_le_bytes());
        block.bytes.extend_from_slice(&item.version.to_le_bytes());
        block.bytes.extend_from_slice(&item.idle_s.to_le_bytes());
        block.bytes.extend_from_slice(&value_len.to_le_bytes());
        block.bytes.extend_from_slice(key);
        let begin = block.bytes.len();
        pieces.for_each(|piece| block.bytes.extend_from_slice(piece));
        assert_eq!(block.bytes.len() - begin, value_len as usize, "the pieces are the value");
        block.items += 1;
        if block.bytes.len() >= BLOCK_LEN { self.write_block(rank) } else { Ok(()) }
    }

    fn write_block(&mut self, rank: Rank) -> io::Result<()> {
        let block = &mut self.blocks[usize::from(rank.number())];
        let (len, crc) = (block.bytes.len() as u64, crc32fast::hash(&block.bytes));
        self.to.write_all(&block.bytes)?;
        self.index.push(Entry { offset: self.written, len, items: std::mem::take(&mut block.items), rank, crc });
        self.written += len;
        // A long value's room is not kept for short ones.
        block.bytes.clear();
        block.bytes.shrink_to(2 * BLOCK_LEN);
        Ok(())
    }

    /// Writes what is left, and what makes a file of it; returns how many items there are, and where they went.
    ///
    /// # Errors
    /// Whatever it is written to says.
    pub fn finish(mut self) -> io::Result<(u64, W)> {
        for rank in (0..Rank::COUNT as u8).filter_map(Rank::numbered) {
            if self.blocks[usize::from(rank.number())].items > 0 {
                self.write_block(rank)?;
            }
        }
        let mut end = Vec::with_capacity(self.index.len() * ENTRY_LEN + FOOTER_LEN);
        self.index.iter().for_each(|entry| entry.push_to(&mut end));
        end.extend_from_slice(&self.written.to_le_bytes());
        end.extend_from_slice(&(self.index.len() as u64).to_le_bytes());
        end.extend_from_slice(&crc32fast::hash(&end).to_le_bytes());
        end.extend_from_slice(END_MAGIC);
        self.to.write_all(&end)?;
        Ok((self.index.iter().map(|entry| entry.items).sum(), self.to))
    }
}

/// Reads a memory file.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    head: Head,
    /// The lowest rank first.
    index: Vec<Entry>,
    bytes: Vec<u8>,
}

impl<R: Read + Seek> Reader<R> {
    /// Looks whether `from` is such a file, and what blocks it has.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn open(mut from: R) -> Result<Self, FormatError> {
        let len = from.seek(SeekFrom::End(0))?;
        from.seek(SeekFrom::Start(0))?;
        let mut header = [0; HEADER_LEN];
        let got = read_up_to(&mut from, &mut header)?;
        if got < MAGIC.len() || header[..MAGIC.len()] != MAGIC[..] {
            return Err(FormatError::NotOne);
        }
        let cut = damaged("the header");
        let mut bytes = Bytes(&header[MAGIC.len()..got]);
        let Some(version) = bytes.u32() else { return Err(cut) };
        if version != VERSION {
            return Err(FormatError::OtherVersion(version));
        }
        let (Some(saved_unix_s), Some(last_version), Some(flush_unix_s), Some(crc)) =
            (bytes.u64(), bytes.u64(), bytes.u64(), bytes.u32())
        else {
            return Err(cut);
        };
        if crc != crc32fast::hash(&header[..HEADER_LEN - 4]) {
            return Err(cut);
        }
        let mut index = read_index(&mut from, len)?;
        index.sort_by_key(|entry| entry.rank);
        let head = Head { saved_unix_s, last_version, flush_unix_s };
        Ok(Self { from, head, index, bytes: Vec::new() })
    }

    /// What it says of all items together.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Items there are.
    pub fn len(&self) -> u64 {
        self.index.iter().map(|entry| entry.items).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Shows all items a block at a time, those that would go first come first; those of one rank as they were written.
    ///
    /// # Errors
    /// [`FormatError`], and whatever `show` says; what was shown until then was sound.
    pub fn read<E: From<FormatError>>(mut self, mut show: impl FnMut(&[Item<'_>]) -> Result<(), E>) -> Result<(), E> {
        for entry in std::mem::take(&mut self.index) {
            let bytes = self.block(entry)?;
            let items = parse(bytes, entry.items)?;
            show(&items)?;
        }
        Ok(())
    }

    fn block(&mut self, entry: Entry) -> Result<&[u8], FormatError> {
        self.from.seek(SeekFrom::Start(entry.offset))?;
        self.bytes.clear();
        // Lies in the file: it has been compared with that.
        self.bytes.resize(entry.len as usize, 0);
        self.from.read_exact(&mut self.bytes)?;
        if crc32fast::hash(&self.bytes) == entry.crc { Ok(&self.bytes) } else { Err(damaged("items")) }
    }
}

/// The blocks of a file of `len` bytes, as they lie.
fn read_index<R: Read + Seek>(from: &mut R, len: u64) -> Result<Vec<Entry>, FormatError> {
    let cut = || damaged("its end");
    let footer_at = len.checked_sub(FOOTER_LEN as u64).filter(|at| *at >= HEADER_LEN as u64).ok_or_else(cut)?;
    from.seek(SeekFrom::Start(footer_at))?;
    let mut footer = [0; FOOTER_LEN];
    from.read_exact(&mut footer)?;
    let mut bytes = Bytes(&footer);
    let (Some(index_at), Some(blocks), Some(crc)) = (bytes.u64(), bytes.u64(), bytes.u32()) else { return Err(cut()) };
    let index_len = blocks.checked_mul(ENTRY_LEN as u64);
    if bytes.0 != END_MAGIC || index_len.and_then(|len| len.checked_add(index_at)) != Some(footer_at) {
        return Err(cut());
    }
    from.seek(SeekFrom::Start(index_at))?;
    let mut index = vec![0; (footer_at - index_at) as usize];
    from.read_exact(&mut index)?;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&index);
    sum.update(&footer[..16]);
    if sum.finalize() != crc {
        return Err(cut());
    }
    let mut bytes = Bytes(&index);
    let entries: Vec<Entry> = std::iter::from_fn(|| Entry::take(&mut bytes)).collect();
    // They lie one after the other from the header to the index, so that nothing is in none of them.
    let end = entries.iter().try_fold(HEADER_LEN as u64, |at, entry| {
        at.checked_add(entry.len).filter(|end| entry.offset == at && *end <= index_at)
    });
    // One whose rank there is not ends the list.
    if end == Some(index_at) && entries.len() as u64 == blocks { Ok(entries) } else { Err(cut()) }
}

/// The items of a block.
fn parse(bytes: &[u8], count: u64) -> Result<Vec<Item<'_>>, FormatError> {
    let mut bytes = Bytes(bytes);
    let mut items = Vec::with_capacity((count as usize).min(bytes.0.len() / ITEM_HEADER_LEN));
    while !bytes.0.is_empty() {
        items.push(bytes.item().ok_or_else(|| damaged("an item"))?);
    }
    if items.len() as u64 == count { Ok(items) } else { Err(damaged("the number of items")) }
}

/// Bytes that are taken from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        self.take(LEN)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn item(&mut self) -> Option<Item<'a>> {
        let (key_len, marks) = (self.u8()?, self.u8()?);
        let (flags, expires_unix_s, version) = (self.u32()?, self.u64()?, self.u64()?);
        let (idle_s, value_len) = (self.u32()?, self.u32()?);
        let (key, value) = (Key::new(self.take(key_len.into())?).ok()?, self.take(value_len as usize)?);
        let all = [FETCHED, STALE, WON, RECENT, SPARED];
        let [fetched, stale, win_sent, recent, spared] = all.map(|mark| marks & mark != 0);
        let is_known = marks & !all.into_iter().fold(0, |all, mark| all | mark) == 0;
        let item =
            Item { key, flags, expires_unix_s, version, idle_s, fetched, stale, win_sent, recent, spared, value };
        is_known.then_some(item)
    }
}

/// Reads until the buffer is full or there is no more; returns how much there was.
fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match from.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// An item's rank, key, flags and value.
    type Parts = (Rank, Vec<u8>, u32, Vec<u8>);

    const HEAD: Head = Head { saved_unix_s: 1_700_000_000, last_version: 77, flush_unix_s: 1_700_000_500 };

    /// A file of items of many lengths and ranks, and the items.
    fn file(count: u32) -> (Vec<u8>, Vec<Parts>) {
        let mut writer = Writer::begin(Vec::new(), &HEAD).expect("memory");
        let items: Vec<_> = (0..count)
            .map(|i| {
                let value = vec![i as u8; if i % 97 == 5 { 300_000 } else { i as usize % 700 }];
                (Rank::of(u64::from(i) * 7 % 1_000, 1_000), format!("key{i}").into_bytes(), i, value)
            })
            .collect();
        for (rank, key, flags, value) in &items {
            let [fetched, stale, win_sent, recent, spared] = [1, 2, 4, 8, 16].map(|mark| flags & mark != 0);
            let (expires_unix_s, version) = (u64::from(*flags) << 3, u64::from(*flags) << 20);
            let key = Key::new(key).expect("a key");
            let (flags, idle_s) = (*flags, flags / 3);
            let item =
                Item { key, flags, expires_unix_s, version, idle_s, fetched, stale, win_sent, recent, spared, value };
            // In two pieces.
            let (front, back) = value.split_at(value.len() / 3);
            writer.put(*rank, &item, value.len(), [front, back].into_iter()).expect("memory");
        }
        (writer.finish().expect("memory").1, items)
    }

    fn read(bytes: &[u8]) -> Result<Vec<Parts>, FormatError> {
        let mut found = Vec::new();
        let reader = Reader::open(Cursor::new(bytes))?;
        reader.read::<FormatError>(|items| {
            for item in items {
                let marks = [item.fetched, item.stale, item.win_sent, item.recent, item.spared];
                assert_eq!([1, 2, 4, 8, 16].map(|mark| item.flags & mark != 0), marks);
                assert_eq!(item.idle_s, item.flags / 3);
                assert_eq!((item.expires_unix_s, item.version), ((item.flags as u64) << 3, (item.flags as u64) << 20));
                let rank = Rank::of(u64::from(item.flags) * 7 % 1_000, 1_000);
                found.push((rank, item.key.as_bytes().to_vec(), item.flags, item.value.to_vec()));
            }
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn items_come_back_the_lowest_rank_first() {
        let (bytes, mut items) = file(3_000);
        items.sort_by_key(|(rank, ..)| *rank);
        let reader = Reader::open(Cursor::new(&bytes)).expect("sound");
        assert_eq!((reader.len(), reader.head()), (3_000, HEAD));
        assert!(read(&bytes).expect("sound") == items);
        let (empty, _) = file(0);
        assert!(Reader::open(Cursor::new(&empty)).expect("sound").is_empty());
        assert_eq!(read(&empty).expect("sound"), []);
    }

    #[test]
    fn whatever_is_changed_or_missing_is_noticed() {
        let (bytes, _) = file(5);
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "cut to {len} of {}", bytes.len());
        }
        for (at, bit) in (0..bytes.len()).flat_map(|at| [1, 0x80].map(|bit| (at, bit))) {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            assert!(read(&changed).is_err(), "byte {at}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(read(&longer).is_err());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let (mut bytes, _) = file(3);
        let told = |bytes: &[u8]| read(bytes).expect_err("refused").to_string();
        assert_eq!(told(b"something else"), "is no memory file of guira's");
        assert_eq!(told(b""), "is no memory file of guira's");
        assert_eq!(told(&bytes[..bytes.len() - 1]), "is cut short or damaged (its end)");
        bytes[8] = 7;
        assert_eq!(told(&bytes), "is of version 7, and this guira reads version 2");
    }
}
