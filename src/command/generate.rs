//! The manual page and the completions, made of the definitions that the arguments are parsed by.

use crate::cli::commands::Generated;
use crate::cli::{Cli, VERSION};
use crate::command::text::Out;
use crate::error::{Error, Kind, Result};
use clap::CommandFactory;
use clap_complete::Shell;

/// What follows the sections that are made.
const SEE_ALSO: &str = ".SH \"SEE ALSO\"\nmount(8), fusermount3(1), fuse(8), systemd.mount(5)\n";

/// Writes it to the standard output.
///
/// # Errors
/// When it cannot be written.
pub fn run(what: Generated) -> Result<()> {
    let mut out = Out::new();
    out.bytes(&made(what)?)?;
    out.flush()
}

fn made(what: Generated) -> Result<Vec<u8>> {
    // The page's foot and the completions want the number alone.
    let number = VERSION.lines().next().unwrap_or_default();
    let mut command = Cli::command().version(number);
    let mut bytes = Vec::new();
    let shell = match what {
        Generated::Man => return man(command).map_err(|e| Error::new(Kind::Bug, e.to_string())),
        Generated::Bash => Shell::Bash,
        Generated::Zsh => Shell::Zsh,
        Generated::Fish => Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "chunkmount", &mut bytes);
    Ok(bytes)
}

/// One page for the program and its commands.
fn man(command: clap::Command) -> std::io::Result<Vec<u8>> {
    // The page takes what `-h` leaves out for what has nothing to say.
    let whole = |command: clap::Command| command.mut_args(|arg| arg.hide_short_help(false));
    let mut command = whole(command).mut_subcommands(whole);
    command.build();
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone().disable_version_flag(true)).section("1");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let man = clap_mangen::Man::new(sub.clone().disable_help_flag(true));
        page.extend(format!(".SH \"COMMAND {}\"\n", sub.get_name().to_uppercase()).bytes());
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        page.extend(format!("{about}.\n").bytes());
        let mut options = Vec::new();
        man.render_synopsis_section(&mut options)?;
        man.render_options_section(&mut options)?;
        let text = String::from_utf8_lossy(&options).into_owned();
        page.extend(text.lines().filter(|l| !l.starts_with(".ie") && !l.starts_with(".el")).flat_map(|line| {
            let line = if line.starts_with(".SH") { line.replacen(".SH", ".SS", 1) } else { line.to_owned() };
            format!("{line}\n").into_bytes()
        }));
    }
    let mut extra = Vec::new();
    man.render_extra_section(&mut extra)?;
    // As manual pages call it.
    page.extend(String::from_utf8_lossy(&extra).replacen(".SH EXTRA\nExit status:\n", ".SH \"EXIT STATUS\"\n", 1).bytes());
    page.extend(SEE_ALSO.bytes());
    Ok(page)
}
