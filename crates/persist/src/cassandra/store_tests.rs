//! The store before a Cassandra that runs.
