//! Compiles the file system against the headers of the RocksDB that is linked.

use std::{env, fs, path::PathBuf};

/// As `src/nowait.cc` has it.
const ENVIRONMENT: &str = "struct rocksdb_env_t {\n  Env* rep;\n  bool is_default;\n};";

fn main() {
    println!("cargo:rerun-if-changed=src/nowait.cc");
    let rocksdb = env::var_os("DEP_ROCKSDB_CARGO_MANIFEST_DIR").expect("librocksdb-sys says where it is");
    let rocksdb = PathBuf::from(rocksdb).join("rocksdb");
    let interface = fs::read_to_string(rocksdb.join("db/c.cc")).expect("RocksDB's sources");
    assert!(interface.contains(ENVIRONMENT), "RocksDB lays out its environments in another way: see src/nowait.cc");
    // As RocksDB itself is compiled, where its headers go by it.
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .include(rocksdb.join("include"))
        .define("NDEBUG", "1")
        .flag("-include")
        .flag("cstdint")
        .warnings(true)
        .flag_if_supported("-Wno-unused-parameter")
        .file("src/nowait.cc")
        .compile("guira_nowait");
}
