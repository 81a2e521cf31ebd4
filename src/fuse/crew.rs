//! Threads for requests that wait for a network: as many as there are requests, up to a bound, and none when all is quiet.
//!
//! The threads that take requests from the kernel are few. If each waited for its own store request, a few silent connections
//! would stop the whole mount, and many readers would be served one after the other. Jobs begin in the order they came in.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a thread without work waits for some.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    /// When there was last a job for which nobody was idle.
    needed: Option<Instant>,
}

/// See the module.
#[derive(Clone)]
pub struct Crew {
    shared: Arc<(Mutex<State>, Condvar)>,
    most: usize,
}

impl Crew {
    /// A crew of at most `most` threads.
    pub fn new(most: usize) -> Self {
        Self { shared: Arc::default(), most }
    }

    /// Runs `job` on a thread of the crew, or here if there is none and none can be started.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let (state, wake) = &*self.shared;
        let mut state = state.lock();
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() > state.idle {
            state.needed = Some(Instant::now());
        }
        if state.jobs.len() > state.idle && state.threads < self.most {
            let crew = self.clone();
            let started = std::thread::Builder::new().name("request".into()).spawn(move || crew.work());
            match started {
                Ok(_) => state.threads += 1,
                // Somebody will come to it.
                Err(_) if state.threads > 0 => {}
                Err(_) => {
                    let job = state.jobs.pop_back();
                    drop(state);
                    if let Some(job) = job {
                        job();
                    }
                    return;
                }
            }
        }
        drop(state);
        wake.notify_one();
    }

    fn work(&self) {
        let (state, wake) = &*self.shared;
        let mut state = state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                parking_lot::MutexGuard::unlocked(&mut state, || {
                    // A job guards itself; one that panics all the same must not take the count of threads with it.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                });
                continue;
            }
            // Who idles is woken in turn: a job now and then would keep all of them.
            if state.idle > 0 && state.needed.is_none_or(|needed| needed.elapsed() >= IDLE) {
                state.threads -= 1;
                return;
            }
            state.idle += 1;
            let late = wake.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if late && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc;

    #[test]
    fn jobs_that_wait_do_not_hold_up_others() {
        let crew = Crew::new(64);
        let all = Arc::new(Barrier::new(64));
        let (done, count) = mpsc::channel();
        for _ in 0..64 {
            let (all, done) = (all.clone(), done.clone());
            crew.run(move || {
                all.wait();
                done.send(()).unwrap();
            });
        }
        for _ in 0..64 {
            count.recv_timeout(Duration::from_secs(20)).unwrap();
        }
    }

    #[test]
    fn a_job_now_and_then_keeps_one_thread() {
        let crew = Crew::new(8);
        let all = Arc::new(Barrier::new(8));
        (0..8).for_each(|_| {
            let all = all.clone();
            crew.run(move || {
                all.wait();
            });
        });
        let state = || crew.shared.0.lock();
        while state().idle < 8 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // As if some time ago, though less than it takes who is never woken.
        state().needed = None;
        let (done, count) = mpsc::channel();
        for _ in 0..7 {
            let (before, done) = (state().threads, done.clone());
            crew.run(move || done.send(()).unwrap());
            count.recv_timeout(Duration::from_secs(20)).unwrap();
            while state().threads == before {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(state().threads, 1);
        crew.run(move || done.send(()).unwrap());
        count.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(state().threads, 1);
    }

    #[test]
    fn no_more_than_the_bound_and_none_is_lost() {
        let crew = Crew::new(2);
        let (done, count) = mpsc::channel();
        for i in 0..100 {
            let done = done.clone();
            crew.run(move || {
                assert!(i != 50, "one that panics");
                done.send(()).unwrap();
            });
        }
        for _ in 0..99 {
            count.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        assert!(crew.shared.0.lock().threads <= 2);
    }
}
