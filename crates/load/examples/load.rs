//! Runs one scenario from the command line, for those who work on a broker's hot path and do not
//! want to rebuild the Python module: `cargo run --release -p quantumqtt-load --example load`.

#![allow(clippy::print_stdout, clippy::print_stderr)] // it talks to a person

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use quantumqtt_load::{Histogram, QoS, Report, Scenario, Spec, Version, run};

const USAGE: &str = "\
usage: load SCENARIO [FLAG VALUE]...
  SCENARIO        conn pub sub pairs fanin fanout idle latency
  --host HOST     127.0.0.1        --port PORT       1883
  -V 3|4|5        4                -q QOS            0
  -c COUNT        publishers, or all clients where there is one kind (10)
  --subs COUNT    subscribers of fanin (1) and fanout (50; -c is 1 there)
  -n COUNT        messages per publisher, 0: until --duration
  --duration S    3 when -n is not given
  -F WINDOW       under way per publisher; 1000 at QoS 0, 100 above, 0: no bound
  -s BYTES        64               --rate PER_S      open loop
  --topics N      1 per publisher  --single-writes   each PUBLISH in its own write
  --persistent    subscribers keep their sessions
  --threads N     1                --broker-pid PID  report its CPU";

fn main() -> ExitCode {
    let spec = match parse(std::env::args().skip(1)) {
        Ok(spec) => spec,
        Err(words) => {
            eprintln!("{words}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&spec, |_| ControlFlow::Continue(())) {
        Ok(report) => {
            show(&report);
            let clean = report.violations().is_empty() && report.faults.is_empty();
            if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Spec, String> {
    let scenario = match arguments.next().as_deref() {
        Some("conn") => Scenario::Connect,
        Some("pub") => Scenario::Publish,
        Some("sub") => Scenario::Subscribe,
        Some("pairs") => Scenario::Pairs,
        Some("fanin") => Scenario::FanIn,
        Some("fanout") => Scenario::FanOut,
        Some("idle") => Scenario::Idle,
        Some("latency") => Scenario::Latency,
        other => return Err(format!("no scenario {other:?}")),
    };
    let mut spec = Spec { scenario, ..Spec::default() };
    let (mut count, mut subscribers, mut window) = (None, None, None);
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--single-writes" => spec.one_message_per_write = true,
            "--persistent" => spec.clean = false,
            "--host" => spec.host = value()?,
            "--port" => spec.port = number(&value()?)?,
            "-V" => spec.version = version(&value()?)?,
            "-q" => spec.qos = QoS::from_bits(number(&value()?)?).ok_or("QoS is 0, 1 or 2")?,
            "-c" => count = Some(number(&value()?)?),
            "--subs" => subscribers = Some(number(&value()?)?),
            "-n" => spec.messages = number(&value()?)?,
            "--duration" => spec.duration = Duration::from_secs_f64(number(&value()?)?),
            "-F" => window = Some(number(&value()?)?),
            "-s" => spec.payload_bytes = number(&value()?)?,
            "--rate" => spec.rate = Some(number(&value()?)?),
            "--topics" => spec.topics = number(&value()?)?,
            "--threads" => spec.threads = number(&value()?)?,
            "--broker-pid" => spec.broker_pid = Some(number(&value()?)?),
            _ => return Err(format!("no flag {flag}")),
        }
    }
    let fans_out = scenario == Scenario::FanOut;
    spec.publishers = count.unwrap_or(if fans_out { 1 } else { 10 });
    spec.subscribers = match scenario {
        Scenario::Pairs | Scenario::Latency => spec.publishers,
        Scenario::FanIn => subscribers.unwrap_or(1),
        Scenario::FanOut => subscribers.unwrap_or(50),
        Scenario::Subscribe => std::mem::take(&mut spec.publishers),
        _ => 0,
    };
    spec.window = window.unwrap_or(if spec.qos == QoS::AtMostOnce { 1000 } else { 100 });
    if scenario == Scenario::Latency && spec.rate.is_none() {
        spec.rate = Some(5000.0);
    }
    if spec.messages == 0 && spec.duration.is_zero() && scenario != Scenario::Connect {
        spec.duration = Duration::from_secs(3);
    }
    Ok(spec)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number that fits here"))
}

fn version(text: &str) -> Result<Version, String> {
    match text {
        "3" => Ok(Version::V31),
        "4" => Ok(Version::V311),
        "5" => Ok(Version::V5),
        _ => Err(format!("no version {text}")),
    }
}

fn show(report: &Report) {
    println!(
        "{:.3} s  {:.0}/s  sent {}  acknowledged {}  received {} of {}",
        report.seconds,
        report.units_per_second(),
        report.sent,
        report.acknowledged,
        report.received,
        report.expected,
    );
    println!(
        "lost {}  duplicated {}  out of order {}  foreign {}  written off {}",
        report.lost, report.duplicated, report.out_of_order, report.foreign, report.written_off,
    );
    if let (Some(cost), Some(broker)) = (report.broker_us_per_unit(), &report.broker) {
        let used = &broker.measuring;
        println!(
            "broker {cost:.3} us/message  cpu {:.2} s (user {:.2}, system {:.2})  \
             switches {}+{}  memory {} KiB",
            used.cpu_seconds(),
            used.user_seconds,
            used.system_seconds,
            used.voluntary_switches,
            used.involuntary_switches,
            used.anonymous_bytes / 1024,
        );
    }
    if let Some(bytes) = report.broker_bytes_per_connection() {
        println!("broker {bytes:.0} bytes per connection");
    }
    println!("generator cpu {:.2} s", report.generator.cpu_seconds());
    show_latency("latency", &report.latency);
    show_latency("acknowledge", &report.acknowledge_latency);
    show_latency("connect", &report.connect_latency);
    for (name, count) in report.violations().iter().chain(&report.faults) {
        println!("FAULT {name} {count}");
    }
    if let Some(words) = &report.first_fault {
        println!("first: {words}");
    }
}

#[allow(clippy::cast_precision_loss)] // for reading
fn show_latency(name: &str, histogram: &Histogram) {
    if histogram.count() > 0 {
        let at = |share| histogram.percentile(share) as f64 / 1e3;
        println!(
            "{name} us: p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1}",
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            at(1.0),
        );
    }
}
