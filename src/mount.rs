//! Wiring: opens the source, mounts it, goes to the background, and ends when it is told to.
//!
//! A background mount is a second process of this program, started anew rather than forked, so that no thread or lock is lost
//! on the way. It reports on its standard output, which is a pipe, once the mount answers; the first process waits for that.

mod kernel;
mod memory;

use crate::cli::{Axes, Cli, View};
use crate::error::{Error, Kind, Result};
use crate::fuse;
use crate::logs;
use crate::source::{self, Opened};
use crate::store::{dir, object};
use crate::tree::{self, Tree};
use crate::vfs::{self, Vfs};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What the second process writes when the mount answers.
const READY: &[u8] = b"mounted\n";

/// How long open files may keep a detached mount alive after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// What a person must be told; the exit status follows from its kind.
pub fn run(cli: &Cli) -> Result<()> {
    logs::start(&cli.logs)?;
    if let Some(mountpoint) = &cli.unmount {
        return kernel::unmount_command(mountpoint);
    }
    let (Some(source), Some(mountpoint)) = (&cli.source, &cli.mountpoint) else {
        return Err(Error::usage("a source and a mount point are needed"));
    };
    if !cli.foreground && !cli.daemon && !cli.fake {
        if mountpoint.as_os_str() == "/dev/fd/0" {
            return Err(Error::usage("a mount by the standard input stays in the foreground: add -f"));
        }
        return background(cli);
    }
    let source = open(source, &cli.view)?;
    if cli.fake {
        return Ok(());
    }
    serve(cli, source, mountpoint)
}

/// Opens the source that a person has named.
///
/// # Errors
/// As [`source::open`].
pub fn open(source: &OsStr, view: &View) -> Result<Opened> {
    let typed = &view.object;
    let object = object::Options {
        profile: typed.profile.clone(),
        region: typed.region.clone(),
        endpoint: typed.endpoint_url.clone(),
        unsigned: typed.no_sign_request,
        requester_pays: typed.request_payer,
        timeout: typed.timeout,
        refresh: view.refresh,
        disk: typed.disk_cache.clone().map(|folder| (folder, typed.disk_cache_size)),
        documents: &[],
    };
    source::open(source, &source::Options { follow_symlinks: view.follow_symlinks, object })
}

/// The tree of a source as it is shown, mounted or not, with a cache of so many bytes.
///
/// # Errors
/// As [`Vfs::new`].
pub fn shown(source: &Opened, view: &View, cache_size: u64) -> Result<Vfs> {
    let options = tree::Options {
        wanted: view.format.map_or_else(|| source.formats(), Into::into),
        source_axes: view.axes == Axes::Source,
        flavour: view.zarr.map(Into::into),
        nczarr: view.nczarr || source.nczarr(),
        noxarray: source.noxarray(),
        refresh: view.refresh,
    };
    let vfs_options = vfs::Options {
        fill_missing: view.fill_missing,
        refresh: view.refresh,
        retry: vfs::RETRY,
        cache_size,
        name: source.name.clone(),
    };
    Vfs::new(Tree::new(source.store.clone(), options), vfs_options).map_err(|e| e.within(&source.name))
}

/// Starts the second process, and waits until it is mounted or has failed.
fn background(cli: &Cli) -> Result<()> {
    let failed = |e: std::io::Error| Error::new(Kind::Bug, format!("cannot start the background process: {e}"));
    // Its name is the plain one: the arguments of a helper of mount(8) are translated by now.
    let mut child = Command::new("/proc/self/exe")
        .arg0("chunkmount")
        .arg("--daemon")
        .args(&cli.arguments)
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
            heal(&events, &tell, mountpoint)?;
            Mountpoint::prepare(mountpoint)?
        }
    };
    raise_descriptors();
    let is_inherited = device.is_some();
    if let Some(path) = &source.path {
        refuse_overlap(path, &mountpoint.path)?;
    }
    // A mount over the folder would wait for itself.
    if let Some(folder) = cli.view.object.disk_cache.as_ref().and_then(|folder| folder.canonicalize().ok())
        && folder.starts_with(&mountpoint.path)
    {
        return Err(Error::usage("would hide the folder of --disk-cache").about(mountpoint.path.display()));
    }
    let size = source.path.as_ref().and_then(|p| std::fs::metadata(p).ok()).filter(|m| m.is_file()).map_or(0, |m| m.len());
    let lanes = source.store.lanes();
    let vfs = Arc::new(shown(&source, &cli.view, cli.view.cache_size.unwrap_or_else(memory::default_cache))?);
    vfs.read_ahead(lanes);
    if vfs.root_format().is_none() {
        log::info!("{}: belongs to no format itself; what lies in it is looked at in turn", source.name);
    }
    let user = fuse::User { uid: cli.uid, gid: cli.gid };
    let turn = if is_inherited { None } else { kernel::turn(&mountpoint.path) };
    if !is_inherited {
        // Another may have been quicker.
        heal(&events, &tell, &mountpoint.path)?;
    }
    let mut own = None;
    // Before anybody is answered: what leads into the mount is never looked up.
    let mounted = || {
        own = (!is_inherited).then(|| kernel::Own::at(&mountpoint.path));
        if let Some(device) = own.as_ref().and_then(kernel::Own::device) {
            dir::stay_out(device, kernel::where_is);
        }
    };
    let session = fuse::mount(vfs.clone(), &mountpoint.path, device, cli.allow_other, threads(cli), size, user, mounted);
    let session = session.inspect_err(|_| {
        // fusermount3 may have ended after it had mounted and before it could hand the mount over, as it does by the Ctrl-C that ends this.
        if !is_inherited && let Err(e) = kernel::heal(&mountpoint.path, answers_soon) {
            log::warn!("{e}");
        }
    })?;
    drop(turn);
    let tell_end = tell.clone();
    let served = thread(move || {
        let ended = session.join().map_err(|_| Error::new(Kind::Bug, "the kernel session panicked"));
        let ended = ended.and_then(|r| r.map_err(|e| Error::new(Kind::Mount, format!("the kernel session ended: {e}"))));
        let _ = tell_end.send(Event::Ended(ended));
    });
    let answered = served.and_then(|()| if is_inherited { Ok(None) } else { answers(&events, &tell, &mountpoint.path) });
    // A signal that came first is heard below.
    let answered = answered.and_then(|answer| answer.unwrap_or(Ok(())).map_err(|e| Error::new(Kind::Mount, e.to_string())));
    let answered = answered.map_err(|e| e.about(mountpoint.path.display()));
    let detached = || detach_from_terminal().map_err(|e| e.about(mountpoint.path.display()));
    let reported = answered.and_then(|()| if cli.daemon { detached() } else { Ok(()) });
    if let Err(e) = reported {
        if let Some(own) = own {
            own.detach()?;
        }
        return Err(e);
    }
    // Whoever has started this as a service is told as well; there may be nobody.
    if let Err(e) = notify("READY=1") {
        log::warn!("NOTIFY_SOCKET: the service manager cannot be told that the mount answers: {e}");
    }
    log::info!("{}: mounted on {}", source.name, mountpoint.path.display());
    wait(&events, own.as_ref(), &vfs)
}

/// Removes a dead mount, as [`kernel::heal`] does, unless a signal comes before what is mounted there has answered.
///
/// # Errors
/// As [`kernel::heal`], and [`Kind::Mount`] after a signal.
fn heal(events: &mpsc::Receiver<Event>, tell: &mpsc::Sender<Event>, mountpoint: &Path) -> Result<()> {
    let ended = || Error::new(Kind::Mount, "a chunkmount is mounted there already; a signal came before it had answered");
    kernel::heal(mountpoint, |path| answers(events, tell, path)?.ok_or_else(|| ended().about(mountpoint.display())))
}

/// Waits until a mount answers. Of our own, the threads do that were started for it: who asks waits for ever where none could be, as he
/// does where the daemon of another hangs. So a signal ends the wait, without an answer. Signals that come meanwhile are told again.
///
/// # Errors
/// [`Kind::Mount`] with the reason of its end.
fn answers(events: &mpsc::Receiver<Event>, tell: &mpsc::Sender<Event>, mountpoint: &Path) -> Result<Option<std::io::Result<()>>> {
    let (asking, path) = (tell.clone(), mountpoint.to_owned());
    thread(move || {
        let _ = asking.send(Event::Answered(kernel::answers(&path)));
    })?;
    let mut others = Vec::new();
    let answered = loop {
        match events.recv().map_err(|_| Error::new(Kind::Bug, "the signal thread is gone"))? {
            Event::Answered(answer) => break Ok(Some(answer)),
            Event::Signal => {
                others.push(Event::Signal);
                break Ok(None);
            }
            Event::Ended(result) => break result.and(Err(Error::new(Kind::Mount, "was unmounted at once"))),
            Event::Statistics => others.push(Event::Statistics),
        }
    };
    others.into_iter().try_for_each(|event| tell.send(event)).map_err(|_| Error::new(Kind::Bug, "nobody hears of signals"))?;
    answered
}

/// Asks a mount, for no longer than a dead one takes to say so, whatever signals come.
///
/// # Errors
/// [`Kind::Mount`] where it does not answer.
fn answers_soon(mountpoint: &Path) -> Result<std::io::Result<()>> {
    let ((tell, answer), path) = (mpsc::channel(), mountpoint.to_owned());
    thread(move || {
        let _ = tell.send(kernel::answers(&path));
    })?;
    answer.recv_timeout(GRACE).map_err(|_| Error::new(Kind::Mount, "does not answer").about(mountpoint.display()))
}

/// Starts a thread.
///
/// # Errors
/// [`Kind::Mount`] where no more may be started.
fn thread(job: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().spawn(job).map(drop);
    started
        .map_err(|e| Error::new(Kind::Mount, format!("no thread can be started: {e} (a limit of processes, as by ulimit -u?)")))
}

enum Event {
    Signal,
    /// SIGUSR1.
    Statistics,
    /// What a mount answered at first.
    Answered(std::io::Result<()>),
    Ended(Result<()>),
}

/// Waits for the end of the mount; a signal detaches it first, and a second one ends everything at once. A mount that is not our own
/// is detached by who has mounted it.
fn wait(events: &mpsc::Receiver<Event>, own: Option<&kernel::Own>, vfs: &Vfs) -> Result<()> {
    loop {
        match events.recv().map_err(|_| Error::new(Kind::Bug, "the signal thread is gone"))? {
            Event::Ended(Err(e)) => {
                // It may be there still, with nobody who serves it.
                log::warn!("the mount ends: {e}");
                own.map_or(Ok(()), kernel::Own::detach)?;
                return Err(e);
            }
            Event::Ended(Ok(())) => return Ok(()),
            Event::Answered(_) => {}
            Event::Signal => match own {
                Some(own) => break own.detach()?,
                None => return Ok(()),
            },
            Event::Statistics => logs::statistics(&vfs.statistics()),
        }
    }
    let _ = notify("STOPPING=1");
    linger(events)
}

/// Waits for the end of a mount that was told to end. Detached, it lives on for those who hold files open; they get an error when this
/// process ends.
fn linger(events: &mpsc::Receiver<Event>) -> Result<()> {
    let begun = Instant::now();
    loop {
        match events.recv_timeout(GRACE.saturating_sub(begun.elapsed())) {
            // It was asked for, however the kernel tells it: a request under way may be told that the connection was aborted.
            Ok(Event::Ended(result)) => {
                result.unwrap_or_else(|e| log::debug!("{e}"));
                return Ok(());
            }
            // The signal came before the first answer.
            Ok(Event::Answered(_)) => {}
            Ok(Event::Signal | Event::Statistics) | Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::new(Kind::Bug, "the signal thread is gone")),
        }
    }
}

fn signals(tell: &mpsc::Sender<Event>) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
    // Decoded blocks and the log are files: where they may not be as long as that (`ulimit -f`), it is an error of the one write, and
    // not the end of the mount.
    let mut numbers = vec![SIGINT, SIGTERM, SIGUSR1, SIGXFSZ];
    // nohup(1) has it ignored, so that what it starts outlives its terminal.
    if !ignores(SIGHUP) {
        numbers.push(SIGHUP);
    }
    let mut signals = signal_hook::iterator::Signals::new(numbers)?;
    let tell = tell.clone();
    thread(move || {
        for signal in signals.forever() {
            let event = match signal {
                SIGXFSZ => continue,
                SIGUSR1 => Event::Statistics,
                _ => Event::Signal,
            };
            if tell.send(event).is_err() {
                return;
            }
        }
    })
}

/// Whether this process was started with a signal ignored.
fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set >> (signal - 1) & 1 == 1)
}

/// Tells the service manager that has started this process something, as sd_notify(3) has it; does nothing where there is none.
fn notify(state: &str) -> std::io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// Tells the first process that the mount answers, and lets go of its terminal and directory.
fn detach_from_terminal() -> Result<()> {
    let mut out = std::io::stdout();
    let told = out.write_all(READY).and_then(|()| out.flush());
    told.map_err(|e| Error::new(Kind::Mount, format!("is unmounted, as who has started this is gone: {e}")))?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from)?;
    // Nobody reads the terminal from now on.
    logs::background();
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
                match std::fs::create_dir(path) {
                    Ok(()) => true,
                    // Another that begins at the same time has made it.
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
                    Err(e) => return Err(about(e)),
                }
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

/// As many descriptors as may be had: the limit that a shell or a service manager gives at first is for programs that cannot have more.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        log::debug!("no more open files than before: {e}");
    }
}

fn threads(cli: &Cli) -> usize {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    cli.threads.map_or(processors + 2, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_was_asked_for_is_no_failure() {
        let (tell, events) = mpsc::channel();
        tell.send(Event::Ended(Err(Error::new(Kind::Mount, "the kernel session ended: connection aborted")))).unwrap();
        assert!(linger(&events).is_ok());
        drop(tell);
        assert!(linger(&events).is_err());
    }

    #[test]
    fn an_answer_after_the_end_was_asked_for_ends_nothing() {
        let (tell, events) = mpsc::channel();
        tell.send(Event::Answered(Ok(()))).unwrap();
        drop(tell);
        assert!(linger(&events).is_err());
    }

    #[test]
    fn a_signal_ends_the_wait_for_an_answer_and_is_told_again() {
        let (tell, events) = mpsc::channel();
        tell.send(Event::Statistics).unwrap();
        tell.send(Event::Signal).unwrap();
        assert!(answers(&events, &tell, Path::new("/proc")).unwrap().is_none());
        let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).filter(|e| !matches!(e, Event::Answered(_))).collect();
        assert!(matches!(told[..], [Event::Statistics, Event::Signal]));
        assert!(answers(&events, &tell, Path::new("/proc")).unwrap().unwrap().is_ok());
    }
}
