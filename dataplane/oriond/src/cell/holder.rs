//! The first process of the pid namespace that all workers of one tenant share. Handles for other processes (`cuIpc…`)
//! hold the number of the process that made them, by which the driver knows its own: so no two workers of one tenant
//! may have the same.
//!
//! It does nothing. It lives as long as oriond does, and reaps what a driver's helpers leave. If it ends, the kernel
//! ends all processes of the namespace.

// UNSAFETY: what a process does between fork and exec, and a few calls about the whole process.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::enter::{Entry, enter, has_closed};
use super::first::hide;
use super::memory::Group;
use super::plan::Plan;
use super::users::User;

pub struct Holder {
    process: Child,
    /// Closed at the other end once it ends, which is before the kernel ends the first worker.
    life: UnixStream,
    /// Not the workers', who could trace it otherwise.
    _user: Option<User>,
    /// Without a limit. In oriond's own it would keep that busy until oriond has ended.
    _group: Option<Group>,
}

impl Holder {
    /// In the pid namespace in which the calling thread's children begin, as the first one there. It mounts /proc for
    /// all of them.
    pub fn start(plan: &Plan) -> io::Result<Holder> {
        let user = plan.users.as_ref().map(|users| users.take()).transpose()?;
        let group = plan.groups.as_ref().map(|groups| groups.make()).transpose()?;
        let door = group.as_ref().map(Group::door).transpose()?;
        let (life, theirs) = UnixStream::pair()?;
        let entry = Entry {
            user: user.as_ref().map(|u| u.id),
            // Its starter's, as all workers.
            mounts: false,
            namespaces: false,
            covered: plan.covered.clone(),
            group: door.as_ref().map(AsRawFd::as_raw_fd),
            control: theirs.as_raw_fd(),
            ours: life.as_raw_fd(),
        };
        let mut command = Command::new("/proc/self/exe");
        command.arg0("oriond-holder").arg("hold").args(["--life-fd", &entry.control.to_string()]).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        // SAFETY: only async-signal-safe system calls between fork and exec.
        unsafe { command.pre_exec(move || enter(&entry)) };
        Ok(Holder { process: command.spawn()?, life, _user: user, _group: group })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn lives(&self) -> bool {
        !has_closed(self.life.as_raw_fd())
    }

    /// It has ended, or is about to: the kernel keeps it until the workers that end with it are reaped.
    pub fn reap(mut self) -> io::Result<()> {
        let wait = move || drop(self.process.wait());
        std::thread::Builder::new().name("reaper".into()).spawn(wait).map(drop)
    }
}

/// What it does: waits for oriond's end.
pub fn hold(life: i32) -> Result<(), String> {
    hide()?;
    // SAFETY: a literal, a plain call, and a descriptor that oriond passes for us to own.
    let mut life = unsafe {
        libc::prctl(libc::PR_SET_NAME, c"oriond-holder".as_ptr());
        // Whose children are ignored need not be waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        UnixStream::from(OwnedFd::from_raw_fd(life))
    };
    // oriond never writes.
    while matches!(life.read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::Interrupted) {}
    Ok(())
}
