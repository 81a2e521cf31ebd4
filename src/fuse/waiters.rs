//! Requests under way and who waits for them: one who is being killed is answered at once, by `EINTR`.
//!
//! The kernel lets nobody go who waits for a request that the daemon has taken, not for SIGKILL either: a reader of a store that says
//! nothing would be there until the deadline. The kernel tells of signals by `FUSE_INTERRUPT`, which fuser refuses by itself. So a
//! thread looks at `/proc` for those who have waited a while. Only who is past saving is answered: it ends before it sees what its
//! call returned, so that no program meets an error for a signal that it handles or ignores.
//!
//! Each request is listed once and is answered by whoever takes it out of the list: the thread here, or who serves it. What had been
//! done for the request is undone then by who served it. The kernel does not reuse the numbers of requests and refuses an answer to
//! one that has been answered.

use super::plus::{ANSWER, head};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How old a request is before it is looked at who waits for it: most are answered sooner.
const PATIENCE: Duration = Duration::from_millis(100);

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// At most one part in so many of a processor goes into looking.
const SHARE: u32 = 20;

/// SIGKILL, in the sets of signals that `/proc` shows.
const KILL: u64 = set(&[libc::SIGKILL]);

/// Signals that leave a core dump where a program neither handles nor ignores them.
const CORE: u64 = set(&[
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
]);

/// The requests that are under way.
#[derive(Default)]
pub struct Waiters {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// By the kernel's number.
    asked: HashMap<u64, Waiter>,
    /// Nobody is looked at, since nobody waits.
    is_idle: bool,
    is_over: bool,
}

#[derive(Clone, Copy)]
struct Waiter {
    /// The thread that has asked.
    thread: u32,
    since: Instant,
}

/// A request that is to be answered; when it is dropped, it has been.
pub struct Asked {
    list: Arc<Waiters>,
    unique: u64,
    /// Who has asked is known.
    is_listed: bool,
}

impl Asked {
    /// Whether it has been answered already.
    pub fn is_answered(&self) -> bool {
        self.is_listed && !self.list.state.lock().asked.contains_key(&self.unique)
    }

    /// Takes it upon the caller to answer it; false if it has been answered.
    pub fn claim(mut self) -> bool {
        let is_listed = std::mem::take(&mut self.is_listed);
        !is_listed || self.list.take(self.unique)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.is_listed {
            self.list.take(self.unique);
        }
    }
}

impl Waiters {
    /// Lists the request `unique` of `thread`, which is 0 where the daemon does not see it.
    pub fn ask(self: &Arc<Self>, unique: u64, thread: u32) -> Asked {
        let is_listed = thread != 0;
        if is_listed {
            let mut state = self.state.lock();
            state.asked.insert(unique, Waiter { thread, since: Instant::now() });
            let was_idle = std::mem::take(&mut state.is_idle);
            drop(state);
            if was_idle {
                self.wake.notify_all();
            }
        }
        Asked { list: self.clone(), unique, is_listed }
    }

    /// Takes a request out of the list, if it is there still.
    fn take(&self, unique: u64) -> bool {
        self.state.lock().asked.remove(&unique).is_some()
    }

    /// Answers by `answer` the requests whose thread ends as soon as it is answered, until [`Waiters::end`].
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch(self: &Arc<Self>, answer: impl Fn(u64) + Send + 'static) -> io::Result<()> {
        let list = self.clone();
        std::thread::Builder::new().name("waiters".into()).spawn(move || list.look(is_dying, answer)).map(drop)
    }

    /// Nobody is looked at any more.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.wake.notify_all();
    }

    fn look(&self, is_dying: impl Fn(u32) -> bool, answer: impl Fn(u64)) {
        let mut pause = PAUSE;
        let mut state = self.state.lock();
        loop {
            while state.asked.is_empty() && !state.is_over {
                state.is_idle = true;
                self.wake.wait(&mut state);
            }
            state.is_idle = false;
            if !state.is_over {
                self.wake.wait_for(&mut state, pause);
            }
            if state.is_over {
                return;
            }
            let late = state.asked.iter().filter(|(_, waiter)| waiter.since.elapsed() >= PATIENCE);
            let mut late: Vec<(u32, u64)> = late.map(|(unique, waiter)| (waiter.thread, *unique)).collect();
            if late.is_empty() {
                pause = PAUSE;
                continue;
            }
            parking_lot::MutexGuard::unlocked(&mut state, || {
                let start = Instant::now();
                // The kernel reads ahead for a thread by several requests.
                late.sort_unstable();
                let of_one = late.chunk_by(|(a, _), (b, _)| a == b);
                for (thread, unique) in of_one.filter(|all| all.first().is_some_and(|(thread, _)| is_dying(*thread))).flatten() {
                    if self.take(*unique) {
                        log::debug!("request {unique}: thread {thread} is being killed and is not kept waiting");
                        answer(*unique);
                    }
                }
                pause = PAUSE.max(start.elapsed() * SHARE);
            });
        }
    }
}

/// Answers the request `unique` by `EINTR`.
pub fn interrupt(device: impl AsFd, unique: u64) {
    let answer = head(ANSWER, -libc::EINTR, unique);
    // Who serves the request tries again; the mount may be gone by now.
    if let Err(e) = rustix::io::write(device, &answer) {
        log::debug!("request {unique}: {}", io::Error::from(e));
    }
}

/// Whether a thread ends as soon as it need not wait any more.
fn is_dying(thread: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| says_dying(&status))
}

/// The same, by its `/proc/TID/status`: it waits uninterruptibly, and a signal has come for which it ends. The kernel gives SIGKILL to each
/// thread of a process that ends by a signal, unless that leaves a core dump: then the signal itself is what is left to come.
fn says_dying(status: &str) -> bool {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
    let signals = |name| field(name).and_then(|set| u64::from_str_radix(set, 16).ok());
    let (Some(own), Some(shared)) = (signals("SigPnd:"), signals("ShdPnd:")) else { return false };
    let pending = own | shared;
    let kept = signals("SigBlk:")
        .zip(signals("SigIgn:"))
        .zip(signals("SigCgt:"))
        .map(|((blocked, ignored), caught)| blocked | ignored | caught);
    // A debugger may take a signal away.
    let leaves_core = field("TracerPid:") == Some("0") && kept.is_some_and(|kept| pending & CORE & !kept != 0);
    field("State:").is_some_and(|state| state.starts_with('D')) && (pending & KILL != 0 || leaves_core)
}

/// A set of signals as `/proc` shows it.
const fn set(signals: &[i32]) -> u64 {
    let (mut set, mut i) = (0, 0);
    while i < signals.len() {
        set |= 1 << (signals[i] - 1);
        i += 1;
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A list that is looked at; the thread 7 is dying. Those who were answered come through the channel.
    fn watched() -> (Arc<Waiters>, mpsc::Receiver<u64>, std::thread::JoinHandle<()>) {
        let list = Arc::new(Waiters::default());
        let (tell, answered) = mpsc::channel();
        let own = list.clone();
        let thread = std::thread::spawn(move || own.look(|thread| thread == 7, move |unique| tell.send(unique).unwrap()));
        (list, answered, thread)
    }

    #[test]
    fn who_is_dying_is_answered_once_and_nobody_else() {
        let (list, answered, thread) = watched();
        let (dying, living, unknown) = (list.ask(2, 7), list.ask(4, 8), list.ask(6, 0));
        assert_eq!(answered.recv_timeout(Duration::from_secs(20)).unwrap(), 2);
        assert!(dying.is_answered() && !living.is_answered() && !unknown.is_answered());
        assert!(!dying.claim() && living.claim() && unknown.claim());
        assert!(list.state.lock().asked.is_empty());
        // It wakes up again.
        std::thread::sleep(2 * PAUSE);
        let another = list.ask(8, 7);
        assert_eq!(answered.recv_timeout(Duration::from_secs(20)).unwrap(), 8);
        drop(another);
        list.end();
        thread.join().unwrap();
        assert!(answered.try_recv().is_err());
    }

    #[test]
    fn what_is_answered_in_time_is_not_looked_at() {
        let (list, answered, thread) = watched();
        for unique in 0..1000 {
            let asked = list.ask(unique, 7);
            assert!(unique % 2 == 0 || asked.claim());
        }
        std::thread::sleep(PATIENCE + 2 * PAUSE);
        list.end();
        thread.join().unwrap();
        assert!(answered.try_recv().is_err() && list.state.lock().asked.is_empty());
    }

    #[test]
    fn either_side_answers_and_never_both() {
        let list = Arc::new(Waiters::default());
        for unique in 0..2000 {
            let asked = list.ask(unique, 7);
            let other = list.clone();
            let taken = std::thread::spawn(move || other.take(unique));
            let claimed = asked.claim();
            assert!(claimed != taken.join().unwrap());
        }
    }

    #[test]
    fn a_thread_is_dying_if_it_waits_and_a_signal_ends_it() {
        let status = |state, own, shared, ignored, caught, tracer| {
            format!(
                "Name:\tcat\nState:\t{state}\nTracerPid:\t{tracer}\nSigQ:\t1/9\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n\
                 SigBlk:\t{:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n",
                0
            )
        };
        let (waits, int, quit) = ("D (disk sleep)", 1 << 1, 1 << 2);
        // After SIGINT, after SIGKILL, and while it runs on to its end.
        assert!(says_dying(&status(waits, 1 << 8, int, 0, 0, 0)) && says_dying(&status(waits, 0, 1 << 8, 0, 0, 0)));
        assert!(!says_dying(&status("R (running)", 1 << 8, 0, 0, 0, 0)));
        // Handled or ignored, it is pending until the thread wakes up.
        assert!(!says_dying(&status(waits, 0, int, 0, int, 0)) && !says_dying(&status(waits, 0, 0, int, 0, 0)));
        assert!(says_dying(&status(waits, 0, quit, 0, int, 0)));
        assert!(!says_dying(&status(waits, 0, quit, 0, quit, 0)) && !says_dying(&status(waits, 0, quit, quit, 0, 0)));
        assert!(!says_dying(&status(waits, 0, quit, 0, 0, 77)));
        assert!(!says_dying("") && !says_dying("State:\tD\nSigPnd:\tx\n"));
        assert!(!is_dying(std::process::id()) && !is_dying(u32::MAX));
    }
}
