//! Compiles the file system against the headers of the RocksDB that is linked.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=src/nowait.cc");
    let rocksdb = env::var_os("DEP_ROCKSDB_CARGO_MANIFEST_DIR").expect("librocksdb-sys says where it is");
    let include = PathBuf::from(rocksdb).join("rocksdb/include");
    // As RocksDB itself is compiled, where its headers go by it.
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .include(include)
        .define("NDEBUG", "1")
        .flag("-include")
        .flag("cstdint")
        .warnings(true)
        .flag_if_supported("-Wno-unused-parameter")
        .file("src/nowait.cc")
        .compile("guira_nowait");
}
