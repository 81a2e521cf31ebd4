//! How much memory this process may use, as the machine and its control groups tell.

use std::path::Path;

/// Bounds of the default cache: an eighth of the memory, but neither next to nothing nor more than anyone expects.
const CACHE: (u64, u64) = (64 << 20, 8 << 30);

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// An eighth of the memory that this process may use.
pub fn default_cache() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let memory = total(&text).into_iter().chain(limit(&own, Path::new(GROUPS))).min().unwrap_or(4 << 30);
    (memory / 8).clamp(CACHE.0, CACHE.1)
}

/// The memory of the machine, by the text of `/proc/meminfo`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The least limit of a group of either version, by the text of `/proc/self/cgroup`, or of one above it: each counts what is in those below.
/// (The units of systemd and the jobs of a cluster are some groups down.) In a container the names may be those of the host, and its own
/// group the one at the top; what is not there limits nothing.
fn limit(own: &str, groups: &Path) -> Option<u64> {
    let of_group = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, name) = (fields.next()?, fields.next()?, fields.next()?);
        let (top, file) = match controllers {
            "" => (groups.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (groups.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let above = Path::new(name.trim_start_matches('/')).ancestors();
        above.filter_map(|group| std::fs::read_to_string(top.join(group).join(file)).ok()?.trim().parse::<u64>().ok()).min()
    };
    own.lines().filter_map(of_group).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_the_groups_around_it_counts() {
        let room = tempfile::tempdir().unwrap();
        let groups = room.path();
        let write = |name: &str, text: &str| {
            let path = groups.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        // cgroups(7), and "Memory Interface Files" of the kernel's cgroup-v2.rst: `max` is no limit.
        write("system.slice/memory.max", "max\n");
        write("system.slice/job/memory.max", "1000\n");
        write("system.slice/job/step/memory.max", "2000\n");
        assert_eq!(limit("0::/system.slice/job/step/task\n", groups), Some(1000));
        assert_eq!(limit("0::/system.slice\n", groups), None);
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/a:b/memory.limit_in_bytes", "500\n");
        let both = "5:cpu,cpuacct:/system.slice\n4:memory:/a:b\n0::/system.slice/job/step\n";
        assert_eq!(limit(both, groups), Some(500));
        // A container that sees its own group at the top, by the name that the host has for it.
        assert_eq!(limit("4:memory:/docker/0123\n", groups), Some(9_223_372_036_854_771_712));
        write("memory.max", "3000\n");
        assert_eq!(limit("0::/\n", groups), Some(3000));
        assert_eq!(limit("nothing\n", groups), None);
        assert_eq!(total("MemTotal:       24683400 kB\nMemFree: 1 kB\n"), Some(24_683_400 << 10));
    }
}
