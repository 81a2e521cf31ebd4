//! The command: parses arguments, runs, prints one error line, exits with a documented status.

use std::process::ExitCode;

/// Gives large buffers out at page boundaries, and again without asking the system: each chunk is read, decoded and written from some.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = chunkmount::cli::Cli::from_arguments(std::env::args_os()).unwrap_or_else(|e| e.exit());
    match chunkmount::command::run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("chunkmount: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}
