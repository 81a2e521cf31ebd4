//! The command: parses arguments, runs, prints one error line, exits with a documented status.

use std::process::ExitCode;

/// Chunks are decoded by threads that come and go, in buffers of megabytes. The system's allocator keeps such a buffer for each thread
/// that ever had one (half a gigabyte for 40 readers), and puts it where some processors are slow to copy to.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

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
