//! `syscall.resource.usage` (BI-26): the load of the host, as the kernel reports it. A value that
//! cannot be read is omitted.

use std::path::Path;

use ghost_domain::{Activity, Refusal};
use serde_json::{Value, json};

use super::common::{Nothing, without_nulls};
use crate::context::CallContext;
use crate::effect::Output;

pub(super) async fn usage(call: &CallContext, _: Nothing) -> Result<Output, Refusal> {
    let tasks = tokio::runtime::Handle::try_current().ok().map(|handle| handle.metrics().num_alive_tasks());
    let activities = call.services.control.activities();
    let awake = activities.values().filter(|activity| **activity != Activity::Asleep).count();
    let data_dir = call.services.data_dir().map(Path::to_owned);
    let (cpu, memory, disk, rss) = call
        .services
        .workspace
        .offload(move || Ok((cpu(), memory(), data_dir.as_deref().and_then(disk), rss())))
        .await?;
    let runtime = without_nulls(json!({ "tasks": tasks, "actors": awake, "rss_bytes": rss }));
    let content = without_nulls(json!({ "cpu": cpu, "memory": memory, "disk": disk, "runtime": runtime }));
    Ok(content.into())
}

fn cpu() -> Value {
    let count = std::thread::available_parallelism().ok().map(usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load: Vec<f64> = load.iter().flat_map(|text| text.split_whitespace().take(3)).flat_map(str::parse).collect();
    let load = (load.len() == 3).then_some(load);
    without_nulls(json!({ "count": count, "load_1_5_15_minutes": load }))
}

fn memory() -> Option<Value> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(without_nulls(json!({
        "total_bytes": kilobytes(&text, "MemTotal:"), "available_bytes": kilobytes(&text, "MemAvailable:"),
    })))
}

fn rss() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The value of a line of `/proc/meminfo`, for example `MemTotal:  8000 kB`, in bytes.
fn kilobytes(text: &str, label: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

fn disk(data_dir: &Path) -> Option<Value> {
    let facts = rustix::fs::statvfs(data_dir).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    Some(json!({ "total_bytes": bytes(facts.f_blocks), "available_bytes": bytes(facts.f_bavail) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: BI-26, CONF-24
    #[test]
    fn kernel_values_are_parsed() {
        assert_eq!(kilobytes("A: 1 kB\nMemTotal:   8 kB\n", "MemTotal:"), Some(8_192));
        assert_eq!(kilobytes("MemTotal: x", "MemTotal:"), None);
        assert_eq!(kilobytes(&format!("MemTotal: {} kB", u64::MAX), "MemTotal:"), None);
    }
}
