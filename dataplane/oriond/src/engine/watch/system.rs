//! What the system says of a worker's threads, and of where a program is.

use std::fs;

use orion_telemetry::report::Cores;

/// Threads of one worker that are looked at.
const THREADS_MAX: usize = 1024;

/// The container of a program on this machine, as far as its control group has it in its name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub container: Option<String>,
    pub pod: Option<String>,
}

pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "localhost".into(), |name| name.trim().to_owned())
}

/// `None` of a worker that has ended.
pub fn cores(pid: i32) -> Option<Cores> {
    let mut cores = Cores::default();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().take(THREADS_MAX) {
        // One that has ended meanwhile counts no more.
        let Some((run, queued)) = fs::read_to_string(thread.path().join("schedstat")).ok().and_then(|t| times(&t))
        else {
            continue;
        };
        // The first thread of a worker executes.
        if thread.file_name().to_str() == Some(pid.to_string().as_str()) {
            (cores.executor_run_ns, cores.executor_queued_ns) = (run, queued);
        }
        cores.run_ns += run;
        cores.queued_ns += queued;
        cores.threads += 1;
    }
    Some(cores)
}

/// On a core, and wanting one.
fn times(schedstat: &str) -> Option<(u64, u64)> {
    let mut numbers = schedstat.split_whitespace().map(|word| word.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

pub fn place(pid: i32) -> Place {
    if pid <= 0 {
        return Place::default();
    }
    fs::read_to_string(format!("/proc/{pid}/cgroup")).map_or_else(|_| Place::default(), |text| place_of(&text))
}

fn place_of(cgroup: &str) -> Place {
    let mut place = Place::default();
    for part in cgroup.lines().flat_map(|line| line.split(['/', ':'])) {
        let name = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".slice")).unwrap_or(part);
        let id = name.rsplit('-').next().unwrap_or(name);
        if id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
            place.container = Some(id[..12].to_owned());
        }
        // kubepods-burstable-pod1234_5678.slice of systemd, and pod1234-5678 without it.
        let pod = name.strip_prefix("pod").or_else(|| name.split_once("-pod").map(|(_, uid)| uid));
        if let Some(uid) = pod.filter(|uid| uid.len() >= 32 && uid.bytes().all(is_of_uid)) {
            place.pod = Some(uid.replace('_', "-"));
        }
    }
    place
}

fn is_of_uid(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_tells_container_and_pod() {
        let id = "a".repeat(64);
        let pod = "11111111_2222_3333_4444_555555555555";
        for (text, container, has_pod) in [
            (format!("0::/system.slice/docker-{id}.scope\n"), true, false),
            (format!("0::/docker/{id}\n"), true, false),
            (format!("0::/kubepods.slice/kubepods-pod{pod}.slice/cri-containerd-{id}.scope\n"), true, true),
            (format!("3:cpu:/kubepods/burstable/pod{}/{id}\n", pod.replace('_', "-")), true, true),
            ("0::/user.slice/user-1000.slice/session-2.scope\n".to_owned(), false, false),
            ("0::/system.slice/podman-restart.service\n".to_owned(), false, false),
        ] {
            let place = place_of(&text);
            assert_eq!(place.container.as_deref(), container.then_some("aaaaaaaaaaaa"), "{text}");
            assert_eq!(place.pod, has_pod.then(|| pod.replace('_', "-")), "{text}");
        }
        assert_eq!(place(0), Place::default());
    }

    #[test]
    fn this_process_had_a_core() {
        let pid = std::process::id() as i32;
        let cores = cores(pid).expect("it runs");
        assert!(cores.threads >= 1 && cores.run_ns >= cores.executor_run_ns, "{cores:?}");
        assert_eq!(times("17 4 2\n"), Some((17, 4)));
        assert_eq!(times("what"), None);
    }
}
