//! CPU time, memory and core of a process.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::command;

/// The cores on which the processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// The measured proxy has core 0 for itself; client and upstream share core 1.
    Apart,
    /// The machine has one core, or no tool to choose one: all processes share all cores.
    Together,
}

impl Placement {
    /// Apart where the machine can do it.
    pub(super) fn choose() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores > 1 && command::answers(Command::new("taskset").arg("--version")) {
            Self::Apart
        } else {
            Self::Together
        }
    }

    /// Moves this process, which is the client and the upstream, to its core.
    pub(super) fn place_this_process(self) -> Result<(), Failure> {
        if self == Self::Together {
            return Ok(());
        }
        let id = std::process::id().to_string();
        command::output(Command::new("taskset").args(["-a", "-c", "-p", "1", &id])).map(drop)
    }

    /// The command that starts a proxy on the proxies' core.
    pub(super) fn proxy(self, program: &Path) -> Command {
        match self {
            Self::Apart => {
                let mut command = Command::new("taskset");
                command.args(["-c", "0"]).arg(program);
                command
            }
            Self::Together => Command::new(program),
        }
    }
}

/// User and system time of all threads of a process.
pub(crate) fn cpu_time(process: u32) -> Result<Duration, Failure> {
    let stat = read(process, "stat")?;
    ticks(&stat)
        // The kernel shows hundredths of a second to user space on every Linux we run on.
        .map(|ticks| Duration::from_millis(ticks * 10))
        .ok_or_else(|| format!("cannot read the processor time of process {process}"))
}

/// CPU time of a process and of all processes below it that still run.
pub(crate) fn cpu_time_of_tree(root: u32) -> Result<Duration, Failure> {
    let listed =
        std::fs::read_dir("/proc").map_err(|error| format!("cannot list /proc: {error}"))?;
    let processes: Vec<u32> =
        listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(&parent) = tree.get(at) {
        at += 1;
        // A process that has ended meanwhile has no parent any more.
        let is_child = |process: &&u32| {
            read(**process, "stat").is_ok_and(|stat| parent_of(&stat) == Some(parent))
        };
        tree.extend(processes.iter().filter(is_child));
    }
    let times = tree.into_iter().skip(1).filter_map(|process| cpu_time(process).ok());
    Ok(cpu_time(root)? + times.sum::<Duration>())
}

/// Resident memory of a process.
pub(crate) fn resident_bytes(process: u32) -> Result<u64, Failure> {
    let status = read(process, "status")?;
    resident(&status).ok_or_else(|| format!("cannot read the memory of process {process}"))
}

fn read(process: u32, file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(format!("/proc/{process}/{file}"))
        .map_err(|error| format!("process {process} has ended: {error}"))
}

/// The name in brackets may hold spaces, so fields are counted after it.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_user_and_system_together() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(ticks(stat), Some(200));
        assert_eq!(parent_of(stat), Some(1));
    }

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(resident("VmPeak:  9 kB\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
    }
}
