# The two commands of the README. Every other chore is `cargo xtask`.

PORT ?= 11211
LISTEN ?= 127.0.0.1
# Megabytes for items and index together.
MEMORY ?= 1024
THREADS ?= $(shell nproc)

# rustup's place, for a shell that was open when `scripts/install` put Rust there.
export PATH := $(PATH):$(HOME)/.cargo/bin

# Where `scripts/install` puts RocksDB, so that it is built once and not for every profile.
export ROCKSDB_LIB_DIR := $(shell scripts/rocksdb --folder)
export ROCKSDB_STATIC := 1

.PHONY: run test

run:
	@scripts/install build
	@cargo build --release --package guira
	@PORT=$(PORT) LISTEN=$(LISTEN) MEMORY=$(MEMORY) THREADS=$(THREADS) scripts/serve

test:
	@scripts/install test
	@cargo xtask test
