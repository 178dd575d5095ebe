//! Flags of the benchmarks that start servers: which Guira is started, and where servers and generator run.
//!
//! Always true: what is not chosen is left to the benchmark, which has the cores that this process may use.

use std::path::PathBuf;

use clap::Args;

/// See the head of the file.
#[derive(Clone, Debug, Default, Args)]
pub struct Placement {
    /// Guira's binary [default: this one]
    #[arg(long, value_name = "PATH")]
    pub guira: Option<PathBuf>,
    /// Cores for the servers [default: the first]
    #[arg(long, value_delimiter = ',', value_name = "CORE,...")]
    pub server_cores: Vec<usize>,
    /// Cores for the generator [default: the last]
    #[arg(long, value_delimiter = ',', value_name = "CORE,...")]
    pub generator_cores: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use crate::{server, store};

    /// What a flag of a benchmark says of itself.
    fn help<A: clap::Args>(flag: &str) -> String {
        let command = A::augment_args(Command::new("bench"));
        let flag = command.get_arguments().find(|argument| argument.get_long() == Some(flag)).expect("a flag");
        flag.get_help().expect("help").to_string()
    }

    #[test]
    fn each_benchmark_tells_its_own_default() {
        let server = "Cores for the servers [default: the first; half of them for `threads`]";
        assert_eq!(help::<server::Options>("server-cores"), server);
        assert_eq!(help::<store::Options>("server-cores"), "Cores for the servers [default: the first]");
        let generator = "Cores for the generator [default: the last; the other half for `threads`]";
        assert_eq!(help::<server::Options>("generator-cores"), generator);
        assert_eq!(help::<store::Options>("generator-cores"), "Cores for the generator [default: the last]");
    }
}
