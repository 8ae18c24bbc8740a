//! S10 and I8: sizes within their bounds, and stalled readers that the others hardly notice.

use super::case::{Case, is_event};
use super::clock::holding;
use super::{Findings, Rule};
use crate::limits::{LATENCY_MS_FLOOR, LATENCY_SAMPLES_MIN, STALL_SLOWDOWN_MAX};

pub(super) fn check(case: &Case<'_>, findings: &mut Findings) {
    for (line, gauge) in &case.gauges {
        if gauge.value > gauge.cap {
            let rule = if gauge.sid.is_some() { Rule::S10 } else { Rule::I8 };
            let subject = gauge.sid.as_ref().or(gauge.iid.as_ref()).unwrap_or(&gauge.name);
            let text = format!("{} is {}, its cap {}", gauge.name, gauge.value, gauge.cap);
            findings.add(rule, *line, subject, text);
        }
    }
    if !case.clock.stalls.is_empty() {
        latency(case, findings);
    }
}

/// Deliveries while others stall, against those of calm times.
fn latency(case: &Case<'_>, findings: &mut Findings) {
    let mut calm = Vec::new();
    let mut stalled = Vec::new();
    let mut line = 0;
    for stream in case.streams.values().filter(|stream| !stream.open.injected) {
        let (log, names) = (case.log(stream.epoch), stream.names());
        for (at, frame) in stream.frames.iter().filter(|(_, frame)| is_event(frame)) {
            let Some(commit) = log.commit(frame.rv).filter(|it| it.t >= stream.open.t0) else {
                continue;
            };
            let took = frame.t.saturating_sub(commit.t);
            if case.clock.calm(commit.t) {
                calm.push(took);
            } else if !case.clock.faulty(commit.t, &names)
                && case.clock.stalls.values().any(|windows| holding(windows, commit.t))
            {
                stalled.push(took);
                line = *at;
            }
        }
    }
    let (Some(calm), Some(stalled)) = (percentile_99(calm), percentile_99(stalled)) else { return };
    let bound = calm.max(LATENCY_MS_FLOOR) * STALL_SLOWDOWN_MAX;
    if stalled > bound {
        let text = format!("p99 {stalled} ms while readers stall, {calm} ms in calm times");
        findings.add(Rule::S10, line, "streams", text);
    }
}

fn percentile_99(mut samples: Vec<u64>) -> Option<u64> {
    if samples.len() < LATENCY_SAMPLES_MIN {
        return None;
    }
    samples.sort_unstable();
    samples.get((samples.len() * 99).div_ceil(100) - 1).copied()
}
