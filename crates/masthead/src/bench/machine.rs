//! What the figures were taken on.

use std::fs;

use super::report::number;

/// Open files that the largest scenario needs, doubled.
const FILES: u64 = 50_000;

/// Cores, processor, memory and kernel in one line.
pub(super) fn description() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let field = |file: &str, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let processor = field("/proc/cpuinfo", "model name");
    let memory = field("/proc/meminfo", "MemTotal");
    let memory: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, {processor}, {} GiB, Linux {}", memory >> 20, kernel.trim())
}

/// Resident memory of this process in bytes.
pub(super) fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Processor time and resident memory of a process, as the system counts them.
#[derive(Clone, Copy)]
pub(super) struct Usage {
    /// Seconds.
    pub(super) processor: f64,
    /// Bytes.
    pub(super) resident: u64,
}

/// What a process has used so far.
pub(super) fn usage(process: u32) -> Usage {
    let read =
        |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    let stat = read("stat");
    // The name, which may hold anything, ends with the last parenthesis; the state is next.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
    let statm = read("statm");
    let pages: u64 = statm.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    // The kernel counts in hundredths of a second for everybody.
    Usage { processor: number(ticks) / 100.0, resident: pages * 4096 }
}

/// Processor seconds of this process's threads that there are, to the nanosecond.
pub(super) fn processor() -> f64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let used = |thread: fs::DirEntry| -> u64 {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0)
    };
    number(threads.map(used).sum()) / 1e9
}

/// A file for each connection: as many as the system lets us have.
pub(super) fn raise_file_limit() {
    if rlimit::Resource::NOFILE.set(FILES, FILES).is_err() {
        // Without the right to more than the hard limit, that has to do.
        let _ = rlimit::increase_nofile_limit(FILES);
    }
}
