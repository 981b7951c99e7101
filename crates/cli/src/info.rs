//! `cci info`: what there is, what it can do, and what it lacks.

use crate::args::InfoArgs;
use crate::devices;
use crate::failure::Outcome;
use crate::text;
use cci::{Context, Device, TransportKind, Unavailable};
use cci_measure::table::{Column, Table, pairs};
use serde_json::{Value, json};
use std::fmt::Write;

/// Descriptors that a server with many shared-memory peers should be allowed: three or so for each.
const DESCRIPTORS_WANTED: u64 = 4096;

const DEVICES: [Column; 12] = [
    Column::words("device", 0),
    Column::words("transport", 0),
    Column::words("up", 0),
    Column::words("default", 0),
    Column::words("address", 0),
    Column::words("connections", 0),
    Column::words("remote memory", 0),
    Column::words("encryption", 0),
    Column::figures("priority", 0),
    Column::figures("MTU", 0),
    Column::figures("longest message", 0),
    Column::figures("rate", 0),
];

/// Runs the subcommand.
pub fn run(args: &InfoArgs) -> Outcome {
    let context = devices::context()?;
    if args.json { text::emit_json(&as_json(&context)) } else { text::emit(as_text(&context).as_bytes()) }
}

fn as_text(context: &Context) -> String {
    let mut out = String::new();
    let config = config_file().map_or_else(|| "found".to_owned(), |path| format!("from {path}"));
    let _ = writeln!(out, "cci {}, devices {config}\n", env!("CARGO_PKG_VERSION"));
    let mut table = Table::new(DEVICES);
    for device in context.devices() {
        table.row([
            device.name().to_owned(),
            device.transport().to_string(),
            yes_no(device.is_up()),
            if is_default(context, device) { "default".to_owned() } else { String::new() },
            address(device),
            kinds(device).join(", "),
            rma_paths(device).iter().map(|path| path.name).collect::<Vec<_>>().join(", "),
            encryption(device).to_owned(),
            device.priority().to_string(),
            if device.mtu_bytes() == 0 { "-".to_owned() } else { format!("{} B", device.mtu_bytes()) },
            text::bytes(device.max_send_size().into()),
            rate(device),
        ]);
    }
    out.push_str(&table.text(0));
    let _ = writeln!(out, "\nremote memory (read, write, atomics; on RO and RU)");
    let all = Path::ALL.iter().filter(|path| {
        context.devices().iter().any(|device| rma_paths(device).iter().any(|own| own.name == path.name))
    });
    out.push_str(&pairs(all.map(|path| (path.name, path.what.to_owned()))));
    let _ = writeln!(out, "\nencryption");
    out.push_str(&encryption_lines(context));
    lacking(context, &mut out);
    if !context.notes().is_empty() {
        let _ = writeln!(out, "\nin the configuration file");
    }
    for note in context.notes() {
        let _ = writeln!(out, "  {note}");
    }
    let _ = writeln!(out, "\nlimits of an endpoint, unless another value is given");
    out.push_str(&pairs(library_limits()));
    let _ = writeln!(out, "\nlimits of this machine");
    out.push_str(&pairs(machine_limits()));
    out
}

/// A path by which remote memory is reached. `cci ping --explain` shows which one a connection takes.
#[derive(Copy, Clone)]
struct Path {
    name: &'static str,
    what: &'static str,
}

impl Path {
    const MAPPED: Path = Path { name: "mapped", what: "the library's memory, mapped by both: plain copies" };
    const PULLED: Path = Path {
        name: "pulled",
        what: "other memory: copied once, by process_vm_readv, where a probe of the peer shows that it works and wins",
    };
    const RING: Path = Path { name: "ring", what: "through the ring that messages take" };
    const DATAGRAMS: Path =
        Path { name: "datagrams", what: "in datagrams, which are put in their place as they come" };
    const STREAM: Path =
        Path { name: "stream", what: "over a second stream, read from it straight into its place" };
    const ALL: [Path; 5] = [Path::MAPPED, Path::PULLED, Path::RING, Path::DATAGRAMS, Path::STREAM];
}

fn rma_paths(device: &Device) -> Vec<Path> {
    match device.transport() {
        TransportKind::Shm => vec![Path::MAPPED, Path::PULLED, Path::RING],
        TransportKind::Udp | TransportKind::Eth => vec![Path::DATAGRAMS],
        TransportKind::Tcp => vec![Path::STREAM],
        // Those of the path that a connection takes: without a network there is one.
        TransportKind::Any if device.ip().is_none() => vec![Path::MAPPED, Path::PULLED, Path::RING],
        TransportKind::Any => Path::ALL.to_vec(),
    }
}

/// Whether what leaves this host is encrypted.
fn encryption(device: &Device) -> &'static str {
    match (device.security(), device.transport()) {
        (_, TransportKind::Shm) => "n/a",
        (Some(_), _) => "on",
        (None, _) => "off",
    }
}

/// With what it is encrypted, or how to switch that on.
fn encryption_lines(context: &Context) -> String {
    let on: Vec<(&str, String)> =
        context.devices().iter().filter_map(|device| Some((device.name(), device.security()?))).collect();
    if on.is_empty() {
        "  off; `security = psk` or `security = certificates` in a configuration file (CCI_CONFIG) turns it on for \
         a device\n  of udp, tcp, eth or any. Shared memory does not leave this host\n"
            .to_owned()
    } else {
        pairs(on)
    }
}

/// The kinds of connection that can be made.
fn kinds(device: &Device) -> Vec<&'static str> {
    use cci::Attribute::*;
    let all = [ReliableOrdered, ReliableUnordered, Unreliable, MulticastSend, MulticastReceive];
    let has_groups = device.transport() == TransportKind::Udp;
    let offered = all.into_iter().filter(|kind| has_groups || !kind.is_multicast());
    offered.map(|kind| kind.short_name()).collect()
}

/// Where it is.
fn address(device: &Device) -> String {
    match (device.ip(), device.interface(), device.transport()) {
        (Some(ip), _, _) => ip.to_string(),
        (None, Some(interface), _) => interface.to_owned(),
        (None, None, TransportKind::Shm) => "this host".to_owned(),
        (None, None, _) => "-".to_owned(),
    }
}

fn lacking(context: &Context, out: &mut String) {
    let machine = machine_lacks();
    let devices = context
        .devices()
        .iter()
        .flat_map(|device| device.unavailable().iter().map(|missing| (device.name(), missing)));
    let all: Vec<(&str, &Unavailable)> =
        devices.chain(machine.iter().map(|missing| ("this machine", missing))).collect();
    if all.is_empty() {
        let _ = writeln!(out, "\nnothing is unavailable");
        return;
    }
    let _ = writeln!(out, "\nunavailable");
    for (whose, missing) in all {
        let _ = writeln!(out, "  {whose}: {}", missing.what);
        let _ = writeln!(out, "    why:    {}", missing.reason);
        let _ = writeln!(out, "    remedy: {}", missing.remedy);
    }
}

fn library_limits() -> Vec<(&'static str, String)> {
    use cci::limits::*;
    vec![
        ("longest message", text::bytes(MESSAGE_BYTES_MAX.into())),
        ("payload of a connection request", text::bytes(REQUEST_BYTES_MAX as u64)),
        ("receive buffers", format!("{RECV_BUFFERS_DEFAULT} (up to {RECV_BUFFERS_MAX})")),
        ("sends in progress", format!("{SENDS_DEFAULT} (up to {SENDS_MAX})")),
        (
            "remote memory operations in progress",
            format!("{RMA_OPERATIONS_DEFAULT} (up to {RMA_OPERATIONS_MAX})"),
        ),
        ("segments of a gathered operation, at most", RMA_SEGMENTS_MAX.to_string()),
        ("memory, all kinds together", text::bytes(MEMORY_BYTES_DEFAULT)),
        ("send timeout", text::duration(SEND_TIMEOUT_NS_DEFAULT as f64)),
        ("connections, at most", CONNECTIONS_MAX.to_string()),
    ]
}

fn machine_limits() -> Vec<(&'static str, String)> {
    let limits = cci_sys::limits::read();
    let count = |value: Option<u64>| value.map_or_else(|| "no limit".to_owned(), |value| value.to_string());
    let unknown = |value: Option<u64>| value.map_or_else(|| "unknown".to_owned(), text::bytes);
    vec![
        ("cores this process may use", cci_sys::cpu::available().to_string()),
        ("memory available", unknown(cci_sys::limits::memory_available_bytes())),
        (
            "descriptors",
            format!("{} (can be raised to {})", count(limits.descriptors), count(limits.descriptors_hard)),
        ),
        ("size of a file", limits.file_bytes.map_or_else(|| "no limit".to_owned(), text::bytes)),
        ("locked memory", limits.locked_bytes.map_or_else(|| "no limit".to_owned(), text::bytes)),
        ("socket receive buffer (net.core.rmem_max)", unknown(limits.socket_recv_bytes)),
        ("socket send buffer (net.core.wmem_max)", unknown(limits.socket_send_bytes)),
    ]
}

/// What holds for every device of the machine.
fn machine_lacks() -> Vec<Unavailable> {
    let mut lacks = Vec::new();
    lacks.extend(devices::network_lack());
    let mut lack = |what: &str, reason: String, remedy: String| {
        lacks.push(Unavailable { what: what.to_owned(), reason, remedy });
    };
    let limits = cci_sys::limits::read();
    if let Some(bytes) = limits.file_bytes.filter(|&bytes| bytes < cci::limits::MEMORY_BYTES_DEFAULT) {
        lack(
            "shared memory with many or large buffers",
            format!("files, which shared memory counts as, may have {} at most", text::bytes(bytes)),
            "ulimit -f unlimited".to_owned(),
        );
    }
    if let Some(soft) = limits.descriptors.filter(|&soft| soft < DESCRIPTORS_WANTED) {
        let raise_to =
            limits.descriptors_hard.map_or(DESCRIPTORS_WANTED, |hard| hard.min(DESCRIPTORS_WANTED));
        let remedy = if raise_to > soft {
            format!("ulimit -n {raise_to}")
        } else {
            "raise the hard limit: nofile in /etc/security/limits.conf, or LimitNOFILE= of the service"
                .to_owned()
        };
        lack(
            "many shared-memory peers",
            format!("a process may hold {soft} descriptors, and each peer takes three or so"),
            remedy,
        );
    }
    if let Some(scope) = yama_scope().filter(|&scope| scope > 0) {
        lack(
            "copying other memory at once between shared-memory peers (pulled)",
            format!("kernel.yama.ptrace_scope is {scope}: only descendants and root may be read"),
            "sysctl kernel.yama.ptrace_scope=0; or memory of the library's, which needs no permission"
                .to_owned(),
        );
    }
    if cci_sys::cpu::available() < 2 {
        lack(
            "spinning for low latency",
            "this process may use one core: two processes take turns on it".to_owned(),
            "give it a second core (taskset, the cpuset or the quota of its cgroup)".to_owned(),
        );
    }
    lacks
}

/// Who may read whose memory; None where the kernel has no such limit.
fn yama_scope() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

fn as_json(context: &Context) -> Value {
    use cci::limits::*;
    let limits = cci_sys::limits::read();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "config_file": config_file(),
        "devices": context.devices().iter().map(|device| device_json(context, device)).collect::<Vec<_>>(),
        "notes": context.notes().iter().map(|note| {
            json!({ "section": note.section, "line": note.line, "text": note.text })
        }).collect::<Vec<_>>(),
        "limits": {
            "message_bytes_max": MESSAGE_BYTES_MAX,
            "request_bytes_max": REQUEST_BYTES_MAX,
            "recv_buffers_default": RECV_BUFFERS_DEFAULT,
            "recv_buffers_max": RECV_BUFFERS_MAX,
            "sends_default": SENDS_DEFAULT,
            "sends_max": SENDS_MAX,
            "rma_operations_default": RMA_OPERATIONS_DEFAULT,
            "rma_operations_max": RMA_OPERATIONS_MAX,
            "rma_segments_max": RMA_SEGMENTS_MAX,
            "memory_bytes_default": MEMORY_BYTES_DEFAULT,
            "send_timeout_ns_default": SEND_TIMEOUT_NS_DEFAULT,
            "connections_max": CONNECTIONS_MAX,
        },
        "machine": {
            "cores": cci_sys::cpu::available(),
            "memory_available_bytes": cci_sys::limits::memory_available_bytes(),
            "descriptors": limits.descriptors,
            "descriptors_hard": limits.descriptors_hard,
            "file_bytes": limits.file_bytes,
            "locked_bytes": limits.locked_bytes,
            "socket_recv_bytes": limits.socket_recv_bytes,
            "socket_send_bytes": limits.socket_send_bytes,
            "unavailable": machine_lacks().iter().map(lack_json).collect::<Vec<_>>(),
        },
    })
}

fn device_json(context: &Context, device: &Device) -> Value {
    json!({
        "name": device.name(),
        "transport": device.transport().name(),
        "info": device.info(),
        "up": device.is_up(),
        "default": is_default(context, device),
        "priority": device.priority(),
        "max_send_size_bytes": device.max_send_size(),
        "mtu_bytes": (device.mtu_bytes() > 0).then(|| device.mtu_bytes()),
        "rate_bits_per_s": (device.rate_bits_per_s() > 0).then(|| device.rate_bits_per_s()),
        "address": device.ip().map(|ip| ip.to_string()),
        "interface": device.interface(),
        "pci": device.pci().map(|at| format!("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.dev, at.func)),
        "connections": kinds(device),
        "remote_memory": rma_paths(device).iter().map(|path| path.name).collect::<Vec<_>>(),
        "encryption": device.security(),
        "configuration": device.conf_argv(),
        "unavailable": device.unavailable().iter().map(lack_json).collect::<Vec<_>>(),
    })
}

fn lack_json(missing: &Unavailable) -> Value {
    json!({ "what": missing.what, "reason": missing.reason, "remedy": missing.remedy })
}

fn is_default(context: &Context, device: &Device) -> bool {
    context.default_device().name() == device.name()
}

fn config_file() -> Option<String> {
    let path = std::env::var_os("CCI_CONFIG").filter(|path| !path.is_empty())?;
    Some(path.to_string_lossy().into_owned())
}

fn rate(device: &Device) -> String {
    match device.rate_bits_per_s() {
        0 => "-".to_owned(),
        bits => format!("{}bit/s", text::si(bits as f64)),
    }
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}
