//! Wiring: opens the source, mounts it, goes to the background, and ends when it is told to.
//!
//! A background mount is a second process of this program, started anew rather than forked, so that no thread or lock is lost
//! on the way. It reports on its standard output, which is a pipe, once the mount answers; the first process waits for that.

mod kernel;

use crate::cli::{Axes, Cli};
use crate::error::{Error, Kind, Result};
use crate::fuse;
use crate::source::{self, Opened};
use crate::store::object;
use crate::tree::{self, Tree};
use crate::vfs::{self, Vfs};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// What the second process writes when the mount answers.
const READY: &[u8] = b"mounted\n";

/// How long open files may keep a detached mount alive after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// Bounds of the default cache: an eighth of the memory, but neither next to nothing nor more than anyone expects.
const CACHE: (u64, u64) = (64 << 20, 8 << 30);

/// Runs the command.
///
/// # Errors
/// What a person must be told; the exit status follows from its kind.
pub fn run(cli: &Cli) -> Result<()> {
    log_to(cli)?;
    if let Some(mountpoint) = &cli.unmount {
        return kernel::unmount_command(mountpoint);
    }
    let (Some(source), Some(mountpoint)) = (&cli.source, &cli.mountpoint) else {
        return Err(Error::usage("a source and a mount point are needed"));
    };
    if !cli.foreground && !cli.daemon {
        if mountpoint.as_os_str() == "/dev/fd/0" {
            return Err(Error::usage("a mount by the standard input stays in the foreground: add -f"));
        }
        return background();
    }
    let object = object::Options {
        profile: cli.profile.clone(),
        region: cli.region.clone(),
        endpoint: cli.endpoint_url.clone(),
        unsigned: cli.no_sign_request,
        requester_pays: cli.request_payer,
        timeout: cli.timeout,
        refresh: cli.refresh,
        disk: cli.disk_cache.clone().map(|folder| (folder, cli.disk_cache_size)),
        documents: &[],
    };
    let source = source::open(source, &source::Options { follow_symlinks: cli.follow_symlinks, object })?;
    serve(cli, source, mountpoint)
}

/// Starts the second process, and waits until it is mounted or has failed.
fn background() -> Result<()> {
    let failed = |e: std::io::Error| Error::new(Kind::Bug, format!("cannot start the background process: {e}"));
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "chunkmount".into());
    let mut child = Command::new("/proc/self/exe")
        .arg0(name)
        .arg("--daemon")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut report = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut report).map_err(failed)?;
    }
    if report == READY {
        return Ok(());
    }
    let status = child.wait().map_err(failed)?;
    match status.code() {
        // It has told the reason itself.
        Some(code) => std::process::exit(code),
        None => Err(Error::new(Kind::Bug, format!("the background process ended before it was mounted: {status}"))),
    }
}

/// Mounts and serves until the mount ends.
fn serve(cli: &Cli, source: Opened, mountpoint: &Path) -> Result<()> {
    // From here on a signal is a message, so that none can leave half a mount behind.
    let (tell, events) = mpsc::channel();
    signals(&tell)?;
    let device = kernel::inherited(mountpoint)?;
    let mountpoint = match &device {
        // Where it is mounted, only who has mounted it knows.
        Some(_) => Mountpoint { path: mountpoint.to_owned(), made: false },
        None => {
            kernel::heal(mountpoint)?;
            Mountpoint::prepare(mountpoint)?
        }
    };
    let is_inherited = device.is_some();
    if let Some(path) = &source.path {
        refuse_overlap(path, &mountpoint.path)?;
    }
    // A mount over the folder would wait for itself.
    if let Some(folder) = cli.disk_cache.as_ref().and_then(|folder| folder.canonicalize().ok())
        && folder.starts_with(&mountpoint.path)
    {
        return Err(Error::usage("would hide the folder of --disk-cache").about(mountpoint.path.display()));
    }
    let options = tree::Options {
        only: cli.format.map(Into::into).or_else(|| source.format()),
        source_axes: cli.axes == Axes::Source,
        flavour: cli.zarr.map(Into::into),
        nczarr: cli.nczarr || source.nczarr(),
        noxarray: source.noxarray(),
        refresh: cli.refresh,
    };
    let vfs_options = vfs::Options {
        fill_missing: cli.fill_missing,
        refresh: cli.refresh,
        cache_size: cli.cache_size.unwrap_or_else(default_cache),
        name: source.name.clone(),
    };
    let size = source.path.as_ref().and_then(|p| std::fs::metadata(p).ok()).filter(|m| m.is_file()).map_or(0, |m| m.len());
    let lanes = source.store.lanes();
    let vfs = Vfs::new(Tree::new(source.store, options), vfs_options).map_err(|e| e.within(&source.name))?;
    let vfs = Arc::new(vfs);
    vfs.read_ahead(lanes);
    if vfs.root_format().is_none() {
        log::info!("{}: belongs to no format itself; what lies in it is looked at in turn", source.name);
    }
    let session = fuse::mount(vfs, &mountpoint.path, device, cli.allow_other, threads(cli), size)?;
    let tell_end = tell.clone();
    std::thread::spawn(move || {
        let ended = session.join().map_err(|_| Error::new(Kind::Bug, "the kernel session panicked"));
        let ended = ended.and_then(|r| r.map_err(|e| Error::new(Kind::Mount, format!("the kernel session ended: {e}"))));
        let _ = tell_end.send(Event::Ended(ended));
    });
    // The mount answers when this returns; the threads above serve it.
    let answered = if is_inherited { Ok(()) } else { kernel::answers(&mountpoint.path) };
    let answered = answered.map_err(|e| Error::new(Kind::Mount, e.to_string()).about(mountpoint.path.display()));
    let reported = answered.and_then(|()| if cli.daemon { detach_from_terminal() } else { Ok(()) });
    if let Err(e) = reported {
        if !is_inherited {
            kernel::detach(&mountpoint.path)?;
        }
        return Err(e);
    }
    log::info!("{}: mounted on {}", source.name, mountpoint.path.display());
    wait(&events, (!is_inherited).then_some(&mountpoint.path))
}

enum Event {
    Signal,
    Ended(Result<()>),
}

/// Waits for the end of the mount; a signal detaches it first, and a second one ends everything at once. Without a mount point,
/// who has mounted it detaches it.
fn wait(events: &mpsc::Receiver<Event>, mountpoint: Option<&PathBuf>) -> Result<()> {
    let gone = || Error::new(Kind::Bug, "the signal thread is gone");
    match events.recv().map_err(|_| gone())? {
        Event::Ended(result) => return result,
        Event::Signal => match mountpoint {
            Some(mountpoint) => kernel::detach(mountpoint)?,
            None => return Ok(()),
        },
    }
    // Detached, the mount lives on for those who hold files open; they get an error when this process ends.
    match events.recv_timeout(GRACE) {
        Ok(Event::Ended(result)) => result,
        Ok(Event::Signal) | Err(RecvTimeoutError::Timeout) => Ok(()),
        Err(RecvTimeoutError::Disconnected) => Err(gone()),
    }
}

fn signals(tell: &mpsc::Sender<Event>) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let tell = tell.clone();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if tell.send(Event::Signal).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Tells the first process that the mount answers, and lets go of its terminal and directory.
fn detach_from_terminal() -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(READY).and_then(|()| out.flush())?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(&null).map_err(std::io::Error::from)?;
    // Fails only for a process that leads a group already.
    let _ = rustix::process::setsid();
    Ok(std::env::set_current_dir("/")?)
}

/// A mount point that is removed again if it was made here.
struct Mountpoint {
    path: PathBuf,
    made: bool,
}

impl Mountpoint {
    fn prepare(path: &Path) -> Result<Self> {
        let about = |e: std::io::Error| Error::new(Kind::Mount, format!("no place to mount on: {e}")).about(path.display());
        let made = match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => false,
            Ok(_) => return Err(Error::usage("is not a directory").about(path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir(path).map_err(about)?;
                true
            }
            Err(e) => return Err(about(e)),
        };
        let mut mountpoint = Self { path: path.to_owned(), made };
        mountpoint.path = path.canonicalize().map_err(about)?;
        Ok(mountpoint)
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        if self.made
            && let Err(e) = std::fs::remove_dir(&self.path)
        {
            log::warn!("{}: the mount point stays: {e}", self.path.display());
        }
    }
}

/// A mount inside its own source would wait for itself, and one above it would hide it.
fn refuse_overlap(source: &Path, mountpoint: &Path) -> Result<()> {
    let source = source.canonicalize().map_err(|e| Error::from(e).about(source.display()))?;
    if mountpoint.starts_with(&source) {
        return Err(Error::usage(format!("lies inside the source {}", source.display())).about(mountpoint.display()));
    }
    if source.starts_with(mountpoint) {
        return Err(Error::usage(format!("would hide the source {}", source.display())).about(mountpoint.display()));
    }
    Ok(())
}

fn threads(cli: &Cli) -> usize {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    cli.threads.map_or(processors + 2, usize::from)
}

/// An eighth of the memory that this process may use.
fn default_cache() -> u64 {
    let number = |text: String| text.trim().parse::<u64>().ok();
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let kibibytes =
            text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
        Some(kibibytes << 10)
    });
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(number);
    let memory = total.into_iter().chain(group).min().unwrap_or(4 << 30);
    (memory / 8).clamp(CACHE.0, CACHE.1)
}

/// Sends the log to the terminal, or to a file.
fn log_to(cli: &Cli) -> Result<()> {
    let level = match cli.verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Debug,
    };
    let mut builder = env_logger::Builder::new();
    // What libraries log is not written for those who mount, and may hold what nobody should read.
    builder.filter_level(log::LevelFilter::Error).filter_module("chunkmount", level).format(|out, record| {
        let time = humantime(std::time::SystemTime::now());
        writeln!(out, "{time} {} {}", record.level().as_str().to_lowercase(), record.args())
    });
    if let Some(path) = &cli.log_file {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|e| Error::usage(format!("the log cannot be written there: {e}")).about(path.display()))?;
        builder.target(env_logger::Target::Pipe(Box::new(file)));
    }
    builder.try_init().map_err(|e| Error::new(Kind::Bug, e.to_string()))
}

/// Coordinated universal time to the second.
fn humantime(time: std::time::SystemTime) -> String {
    let seconds = time.duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days, by the era of 400 years that starts on a first of March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}
