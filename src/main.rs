//! The command: parses arguments, runs, prints one error line, exits with a documented status.

use std::io::Write;
use std::process::ExitCode;

/// Chunks are decoded by threads that come and go, in buffers of megabytes. The system's allocator keeps such a buffer for each thread
/// that ever had one (half a gigabyte for 40 readers), and puts it where some processors are slow to copy to.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let done = match chunkmount::cli::Cli::from_arguments(std::env::args_os()) {
        Ok(cli) => chunkmount::command::run(&cli),
        Err(e) if e.use_stderr() => e.exit(),
        Err(help) => chunkmount::command::print(&help),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // The status says it too, where nobody can be told.
            let _ = writeln!(std::io::stderr(), "chunkmount: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}
