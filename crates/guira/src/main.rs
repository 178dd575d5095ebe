//! The `guira` program: parse, build, run, report. What it does is in the crates below; here it is only put together.
//!
//! Called through a link named `memcached` it takes memcached's flags directly.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod cluster;
mod config_file;
mod coordinator;
mod cores;
mod daemon;
mod engine;
mod extended;
mod health;
mod help;
mod kept;
mod lock_memory;
mod mistake;
mod model;
mod node;
mod options;
mod pidfile;
mod plan;
mod rest;
mod serve;
mod sim;
mod size;
mod store;
mod store_tools;
mod user;
mod with_parent;

use std::process::ExitCode;

use cli::{Call, Command};

fn main() -> ExitCode {
    let done = match cli::parse(std::env::args_os()) {
        Ok(Call::Say(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Ok(Call::Run(Command::Serve(flags))) => serve::run(*flags),
        Ok(Call::Run(Command::Health(arguments))) => health::run(&arguments),
        Ok(Call::Run(Command::Store(arguments))) => store_tools::run(&arguments),
        Ok(Call::Run(Command::Cluster(arguments))) => cluster::run(arguments),
        Ok(Call::Run(Command::Node(arguments))) => node::run(&arguments),
        Ok(Call::Run(Command::Sim(arguments))) => sim::run(&arguments),
        Ok(Call::Run(Command::Model(arguments))) => model::run(&arguments),
        Ok(Call::Run(Command::Plan(arguments))) => plan::run(&arguments),
        Ok(Call::Run(Command::Bench(arguments))) => bench::run(*arguments),
        Err(line) => Err(line),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("guira: {}", mistake::one_line(&line));
            ExitCode::FAILURE
        }
    }
}
