//! What a worker sees of the machine: its own network, host name, shared memory, and numbers of processes.
//!
//! ```text
//! several tenants    oriond ── worker (1)        namespaces of its own, made with it and gone with it
//! one tenant         oriond ─┬ holder (1)        one set for all; see holder.rs
//!                            ├ worker (2)
//!                            └ worker (3)
//! ```
//! In brackets: their numbers in the pid namespace. oriond and whoever looks from outside see others.

// UNSAFETY: system calls about namespaces and mounts of the calling thread.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use tracing::warn;

use super::holder::Holder;
use super::plan::Plan;
use super::separate::{done, own_mounts, separate};

/// The namespaces of workers, as the thread has them that starts all of them.
pub struct Namespaces {
    plan: Plan,
    /// The pid namespace that this thread is in; in which its children begin is another question.
    home: Option<File>,
    holder: Option<Holder>,
    prepared: Result<(), String>,
}

impl Namespaces {
    /// Workers of one tenant share this thread's, so it leaves the host's.
    pub fn new(plan: &Plan) -> Namespaces {
        let mut all = Namespaces { plan: plan.clone(), home: None, holder: None, prepared: Ok(()) };
        all.prepared = all.prepare().map_err(|e| format!("making namespaces failed: {e}"));
        all
    }

    fn prepare(&mut self) -> io::Result<()> {
        if self.plan.covered.is_some() {
            self.home = Some(File::open("/proc/self/ns/pid")?);
        }
        if !self.plan.seal.one_tenant {
            return Ok(());
        }
        // SAFETY: this thread does nothing that has to do with the host's network or mounts.
        unsafe {
            if self.plan.wants_mounts() {
                own_mounts()?;
            }
            if self.plan.namespaces {
                separate()?;
            }
        }
        Ok(())
    }

    /// Runs `start`, which makes a worker's process, so that it begins in the pid namespace that it should have.
    pub fn within<T>(&mut self, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.prepared.clone().map_err(io::Error::other)?;
        if self.home.is_none() {
            return start();
        }
        if self.plan.seal.one_tenant {
            self.have_holder()?;
            return start();
        }
        self.begin_anew()?;
        let started = start();
        // What fails here fails again, and is said, before the next one.
        let _ = self.go_home();
        started
    }

    /// The next child is the first process of a new namespace.
    fn begin_anew(&self) -> io::Result<()> {
        // The kernel makes a new one only out of the thread's own.
        self.go_home()?;
        // SAFETY: a plain call, which concerns this thread's children only.
        done(unsafe { libc::unshare(libc::CLONE_NEWPID) })
            .map_err(|e| io::Error::other(format!("making a pid namespace failed: {e}")))
    }

    fn go_home(&self) -> io::Result<()> {
        let home = self.home.as_ref().expect("whoever leaves it has opened it");
        // SAFETY: a descriptor of our own.
        done(unsafe { libc::setns(home.as_raw_fd(), libc::CLONE_NEWPID) })
            .map_err(|e| io::Error::other(format!("going back to oriond's pid namespace failed: {e}")))
    }

    fn have_holder(&mut self) -> io::Result<()> {
        if self.holder.as_ref().is_some_and(Holder::lives) {
            return Ok(());
        }
        if let Some(holder) = self.holder.take() {
            warn!(
                holder = holder.pid(),
                "the process that holds the workers' pid namespace has ended, and they with it; another is started"
            );
            // A thread cannot start another one while its children belong elsewhere.
            self.go_home()?;
            holder.reap()?;
            // SAFETY: a literal. It mounted this one, where only workers see it.
            done(unsafe { libc::umount2(c"/proc".as_ptr(), libc::MNT_DETACH) })?;
        }
        self.begin_anew()?;
        let started = Holder::start(&self.plan);
        self.holder = Some(started.map_err(|e| io::Error::other(format!("holding a pid namespace failed: {e}")))?);
        Ok(())
    }
}
