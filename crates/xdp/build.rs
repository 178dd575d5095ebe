//! Has clang compile the eBPF program, which the crate then holds as bytes.

use std::{env, path::PathBuf, process::Command};

const SOURCE: &str = "bpf/route.c";

/// Where the kernel's headers are that are an architecture's: Debian has them in a folder of its name.
fn headers_of_the_architecture() -> Option<PathBuf> {
    let target = env::var("CARGO_CFG_TARGET_ARCH").ok()?;
    let folder = PathBuf::from(format!("/usr/include/{target}-linux-gnu"));
    folder.is_dir().then_some(folder)
}

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says it")).join("route.o");
    let mut command = Command::new(&clang);
    // Its maps are described by what -g writes.
    command.args(["-target", "bpf", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]);
    command.args(headers_of_the_architecture().map(|folder| format!("-I{}", folder.display())));
    command.args(["-c", SOURCE, "-o"]).arg(&object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(_) => panic!(
            "{clang} does not compile {SOURCE}: it wants clang with the target bpf, and libbpf's headers (Debian: clang, libbpf-dev)"
        ),
        Err(error) => panic!("{clang} cannot be run ({error}): it compiles {SOURCE} (Debian: clang, libbpf-dev)"),
    }
}
