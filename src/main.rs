//! The command: parses arguments, runs, prints one error line, exits with a documented status.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match chunkmount::mount::run(&chunkmount::cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("chunkmount: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}
