//! Counts words with all cores: `cargo run --release --example word_count < FILE`.

use std::io::Read;

use guira_cuckoo::{Change, CuckooMap};

fn main() -> std::io::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let counts: CuckooMap<&str, u64> = CuckooMap::new();
    let threads = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        for share in words.chunks(words.len().div_ceil(threads).max(1)) {
            let counts = &counts;
            scope.spawn(move || {
                for word in share {
                    counts.compute(*word, |count| Change::Put(count.map_or(1, |count| count + 1)));
                }
            });
        }
    });
    let mut counts: Vec<(&str, u64)> = counts.iter().collect();
    counts.sort_by_key(|(word, count)| (std::cmp::Reverse(*count), *word));
    for (word, count) in counts.iter().take(10) {
        println!("{count:8} {word}");
    }
    Ok(())
}
