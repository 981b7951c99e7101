//! The C header against the Rust definitions, and both against the numbers of the interface's description: a program
//! built for CCI 2.x relies on them.

mod common;

use cci_capi::job::types::*;
use cci_capi::messenger::types::*;
use cci_capi::types::*;
use common::Linked;
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::process::Command;
use std::{fs, iter};

/// What `tests/c/layout.c` is to print for an item, what this page says, and what Rust has.
type Item = (String, i64, i64);

macro_rules! value {
    ($name:ident = $c:expr) => {
        (concat!("value ", stringify!($name)).to_owned(), $c, i64::from($name))
    };
}

macro_rules! object {
    ($name:ident: $size:expr $(, $($field:ident).+ @ $offset:expr)*) => {
        iter::once((concat!("sizeof ", stringify!($name)).to_owned(), $size, size_of::<$name>() as i64)).chain([
            $((
                format!("offsetof {} {}", stringify!($name), stringify!($($field).+).replace("r#", "").replace(' ', "")),
                $offset,
                offset_of!($name, $($field).+) as i64,
            )),*
        ])
    };
}

fn values() -> Vec<Item> {
    vec![
        value!(CCI_ABI_VERSION = 2),
        value!(CCI_CONN_REQ_LEN = 1024),
        value!(CCI_SUCCESS = 0),
        value!(CCI_ERROR = 1),
        value!(CCI_ERR_DISCONNECTED = 2),
        value!(CCI_ERR_RNR = 3),
        value!(CCI_ERR_DEVICE_DEAD = 4),
        value!(CCI_ERR_RMA_HANDLE = 5),
        value!(CCI_ERR_RMA_OP = 6),
        value!(CCI_ERR_NOT_IMPLEMENTED = 7),
        value!(CCI_ERR_NOT_FOUND = 8),
        value!(CCI_EINVAL = 22),
        value!(CCI_ETIMEDOUT = 110),
        value!(CCI_ENOMEM = 12),
        value!(CCI_ENODEV = 19),
        value!(CCI_ENETDOWN = 100),
        value!(CCI_EBUSY = 16),
        value!(CCI_ERANGE = 34),
        value!(CCI_EAGAIN = 11),
        value!(CCI_ENOBUFS = 105),
        value!(CCI_EMSGSIZE = 90),
        value!(CCI_ENOMSG = 42),
        value!(CCI_EADDRNOTAVAIL = 99),
        value!(CCI_ECONNREFUSED = 111),
        value!(CCI_PLAIN_PEERS_DEFAULT = 0),
        value!(CCI_PLAIN_PEERS_REFUSED = 1),
        value!(CCI_PLAIN_PEERS_SERVED = 2),
        value!(CCI_CONN_ATTR_RO = 0),
        value!(CCI_CONN_ATTR_RU = 1),
        value!(CCI_CONN_ATTR_UU = 2),
        value!(CCI_CONN_ATTR_UU_MC_TX = 3),
        value!(CCI_CONN_ATTR_UU_MC_RX = 4),
        value!(CCI_EVENT_NONE = 0),
        value!(CCI_EVENT_SEND = 1),
        value!(CCI_EVENT_RECV = 2),
        value!(CCI_EVENT_CONNECT = 3),
        value!(CCI_EVENT_CONNECT_REQUEST = 4),
        value!(CCI_EVENT_ACCEPT = 5),
        value!(CCI_EVENT_KEEPALIVE_TIMEDOUT = 6),
        value!(CCI_EVENT_ENDPOINT_DEVICE_FAILED = 7),
        value!(CCI_EVENT_EXT_DISCONNECTED = 1000),
        value!(CCI_EXT_DISCONNECT_CLOSED = 0),
        value!(CCI_EXT_DISCONNECT_DIED = 1),
        value!(CCI_EXT_DISCONNECT_TIMEDOUT = 2),
        value!(CCI_EXT_DISCONNECT_REFUSED = 3),
        value!(CCI_FLAG_BLOCKING = 1),
        value!(CCI_FLAG_NO_COPY = 2),
        value!(CCI_FLAG_SILENT = 8),
        value!(CCI_FLAG_READ = 16),
        value!(CCI_FLAG_WRITE = 32),
        value!(CCI_FLAG_FENCE = 64),
        value!(CCI_FLAG_ATOMIC = 0x1_0000),
        value!(CCI_ATOMIC_FETCH_ADD = 0),
        value!(CCI_ATOMIC_SWAP = 1),
        value!(CCI_ATOMIC_COMPARE_SWAP = 2),
        value!(CCI_ATOMIC_ADD = 3),
        value!(CCI_ATOMIC_AND = 4),
        value!(CCI_ATOMIC_OR = 5),
        value!(CCI_ATOMIC_XOR = 6),
        value!(CCI_OPT_ENDPT_SEND_TIMEOUT = 0),
        value!(CCI_OPT_ENDPT_RECV_BUF_COUNT = 1),
        value!(CCI_OPT_ENDPT_SEND_BUF_COUNT = 2),
        value!(CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT = 3),
        value!(CCI_OPT_ENDPT_URI = 4),
        value!(CCI_OPT_ENDPT_RMA_ALIGN = 5),
        value!(CCI_OPT_CONN_SEND_TIMEOUT = 6),
        value!(CCI_OPT_CONN_KEEPALIVE_TIMEOUT = 7),
        value!(CCI_OPT_EXT_ENDPT_MEMORY_CAP = 1000),
        value!(CCI_OPT_EXT_ENDPT_MEMORY_USED = 1001),
        value!(CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS = 1002),
        value!(CCI_OPT_EXT_CONN_LOANS = 1003),
        value!(CCI_INIT_SINGLE_THREADED = 1),
        value!(CCI_CAP_THREAD_SAFE = 1),
        value!(CCI_EXT_CANCELLED = 125),
        value!(CCI_EXT_REFUSED = 1000),
        value!(CCI_EXT_REPLY_ERROR = 1001),
        value!(CCI_EXT_DROPPED = 1002),
        value!(CCI_EXT_REPLY_LOST = 1003),
        value!(CCI_MESSENGER_SENT = 1),
        value!(CCI_MESSENGER_MESSAGE = 2),
        value!(CCI_MESSENGER_OFFER = 3),
        value!(CCI_MESSENGER_RECEIVED = 4),
        value!(CCI_MESSENGER_REQUEST = 5),
        value!(CCI_MESSENGER_REQUEST_CANCELLED = 6),
        value!(CCI_MESSENGER_REPLY = 7),
        value!(CCI_MESSENGER_CONNECT = 8),
        value!(CCI_MESSENGER_CONNECT_REQUEST = 9),
        value!(CCI_MESSENGER_ACCEPT = 10),
        value!(CCI_MESSENGER_KEEPALIVE_TIMEDOUT = 11),
        value!(CCI_MESSENGER_DISCONNECTED = 12),
        value!(CCI_MESSENGER_DEVICE_FAILED = 13),
        value!(CCI_JOB_VALUE_BYTES_MAX = 4096),
        value!(CCI_JOB_KEY_BYTES_MAX = 64),
        value!(CCI_JOB_REASON_BYTES_MAX = 512),
        value!(CCI_JOB_RUNNING = 0),
        value!(CCI_JOB_LEFT = 1),
        value!(CCI_JOB_EXITED = 2),
        value!(CCI_JOB_KILLED = 3),
        value!(CCI_JOB_LOST = 4),
    ]
}

fn objects() -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    items.extend(object!(cci_status_t: 4));
    items.extend(object!(cci_os_handle_t: 4));
    items.extend(object!(cci_conn_attribute_t: 4));
    items.extend(object!(cci_event_type_t: 4));
    items.extend(object!(cci_opt_name_t: 4));
    items.extend(object!(cci_device_t: 72, name @ 0, transport @ 8, up @ 16, info @ 24, conf_argv @ 32, max_send_size @ 40, rate @ 48, pci @ 56, pci.domain @ 56, pci.bus @ 60, pci.dev @ 64, pci.func @ 68));
    items.extend(object!(cci_endpoint_t: 8, device @ 0));
    items
        .extend(object!(cci_connection_t: 32, max_send_size @ 0, endpoint @ 8, attribute @ 16, context @ 24));
    items.extend(object!(cci_alignment_t: 24, rma_write_local_addr @ 0, rma_write_remote_addr @ 4, rma_write_length @ 8, rma_read_local_addr @ 12, rma_read_remote_addr @ 16, rma_read_length @ 20));
    items.extend(object!(cci_rma_handle_t: 32, stuff @ 0));
    items.extend(object!(cci_atomic_op_t: 4));
    items.extend(object!(cci_rma_segment_t: 24, handle @ 0, offset @ 8, length @ 16));
    items.extend(object!(cci_endpoint_options_t: 48, size @ 0, recv_buf_count @ 4, send_buf_count @ 8, send_timeout_us @ 12, keepalive_timeout_us @ 16, rma_op_count @ 20, memory_cap_bytes @ 24, progress_thread @ 32, reserved @ 36, security @ 40));
    items.extend(object!(cci_security_t: 64, size @ 0, plain_peers @ 4, psk_file @ 8, certificate @ 16, private_key @ 24, authorities @ 32, allow_connect @ 40, allow_rma_read @ 48, allow_rma_write @ 56));
    items.extend(object!(cci_event_t: 24, r#type @ 0, send @ 0, recv @ 0, connect @ 0, request @ 0, accept @ 0, keepalive @ 0, dev_failed @ 0, ext_disconnected @ 0));
    items.extend(object!(cci_event_send_t: 24, r#type @ 0, status @ 4, connection @ 8, context @ 16));
    items.extend(object!(cci_event_recv_t: 24, r#type @ 0, len @ 4, ptr @ 8, connection @ 16));
    items.extend(object!(cci_event_connect_t: 24, r#type @ 0, status @ 4, context @ 8, connection @ 16));
    items.extend(
        object!(cci_event_connect_request_t: 24, r#type @ 0, data_len @ 4, data_ptr @ 8, attribute @ 16),
    );
    items.extend(object!(cci_event_accept_t: 24, r#type @ 0, status @ 4, context @ 8, connection @ 16));
    items.extend(object!(cci_event_keepalive_timedout_t: 16, r#type @ 0, connection @ 8));
    items.extend(object!(cci_event_endpoint_device_failed_t: 16, r#type @ 0, endpoint @ 8));
    items.extend(object!(cci_event_ext_disconnected_t: 16, r#type @ 0, reason @ 4, connection @ 8));
    items.extend(object!(cci_messenger_event_type_t: 4));
    items.extend(object!(cci_messenger_event_t: 56, r#type @ 0, status @ 4, connection @ 8, context @ 16, ptr @ 24, len @ 32, id @ 40, code @ 48, not_sent @ 52));
    items.extend(object!(cci_messenger_limits_t: 40, size @ 0, reserved @ 4, whole_bytes_max @ 8, message_bytes_max @ 16, lent_bytes_max @ 24, staged_bytes_max @ 32));
    items.extend(object!(cci_messenger_progress_t: 16, moved_bytes @ 0, total_bytes @ 8));
    items.extend(object!(cci_job_t: 20, rank @ 0, size @ 4, local_rank @ 8, local_size @ 12, host @ 16));
    items.extend(object!(cci_job_status_t: 8, r#type @ 0, code @ 4));
    items.extend(object!(cci_job_value_t: 16, ptr @ 0, len @ 8));
    items
}

#[test]
fn header_and_rust_agree_on_every_number() {
    let program = common::compile("layout", Linked::Shared);
    let printed = common::run(&program, &[]);
    let printed: BTreeSet<String> = printed.lines().map(str::to_owned).collect();
    let items: Vec<Item> = values().into_iter().chain(objects()).collect();
    for (name, c, rust) in &items {
        assert_eq!(c, rust, "{name}: the interface says the first, Rust has the second");
    }
    let expected: BTreeSet<String> = items.iter().map(|(name, c, _)| format!("{name} {c}")).collect();
    let differences: Vec<_> = expected.symmetric_difference(&printed).collect();
    assert!(differences.is_empty(), "in one of the two only: {differences:#?}");
    assert!(expected.len() > 120, "the whole interface: {}", expected.len());
}

#[test]
fn functions_have_the_expected_types() {
    for linked in [Linked::Shared, Linked::Static] {
        common::run(&common::compile("signatures", linked), &[]);
    }
}

/// C89 to C++20: any program may include it, first and alone.
#[test]
fn header_compiles_everywhere() {
    for header in ["cci.h", "cci_messenger.h", "cci_job.h"] {
        compiles_everywhere(header);
    }
}

fn compiles_everywhere(header: &str) {
    let source = format!(
        "#include <{header}>\nint main(void) {{ return cci_event_type_str(CCI_EVENT_RECV) == 0; }}\n"
    );
    for (compiler, language, standards) in
        [("cc", "c", ["c89", "c99", "c11", "c17"]), ("c++", "c++", ["c++98", "c++11", "c++17", "c++20"])]
    {
        let file = common::scratch().join(format!("alone.{language}"));
        fs::write(&file, &source).expect("a file");
        for standard in standards {
            let mut command = Command::new(compiler);
            command.args(["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language]);
            command
                .arg(format!("-std={standard}"))
                .arg("-I")
                .arg(common::package_folder().join("include"))
                .arg(&file);
            common::succeed(&mut command);
        }
    }
}

/// The names that the header declares as functions.
fn declared() -> BTreeSet<String> {
    let read =
        |name| fs::read_to_string(common::package_folder().join("include").join(name)).expect("a header");
    let header = ["cci.h", "cci_messenger.h", "cci_job.h", "ccs.h", "acp.h", "ripc.h"].map(read).concat();
    let mut code = String::new();
    let mut rest = header.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").expect("comments end").1;
    }
    code.push_str(rest);
    // Macros may look like functions.
    let code = code.replace("\\\n", " ");
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    // A declaration: a name right before a parenthesis, outside of braces.
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices('(') {
        let start = code[..at]
            .rfind(|char: char| !(char.is_ascii_alphanumeric() || char == '_'))
            .map_or(0, |at| at + 1);
        if ["cci_", "CCS_", "acp_", "ripc_"].iter().any(|prefix| code[start..at].starts_with(prefix)) {
            names.insert(code[start..at].to_owned());
        }
    }
    // Those that are inline.
    assert!(names.remove("cci_event_type_str") && names.remove("CCS_nargs_"));
    names
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let library = common::libraries().join("libcci.so.2");
    let mut nm = Command::new("nm");
    let output = common::succeed(nm.args(["-D", "--defined-only", "--format=posix"]).arg(&library));
    let text = String::from_utf8(output.stdout).expect("names are ASCII");
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert_eq!(exported, declared());
    assert!(exported.len() >= 34, "{exported:?}");
}

/// `published/acp.txt` has the names of the functions of ACP 3, as its paper and its header have them.
#[test]
fn acp_h_declares_every_published_function() {
    let path = common::package_folder().join("tests/published/acp.txt");
    let text = fs::read_to_string(path).expect("the names are under git");
    let published: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    assert_eq!((text.lines().count(), published.len()), (206, 206), "each once");
    let declared = declared();
    let missing: Vec<&String> = published.difference(&declared).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_library_has_its_soname() {
    let library = common::libraries().join("libcci.so.2");
    let output = common::succeed(Command::new("readelf").arg("-d").arg(library));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Library soname: [libcci.so.2]"), "{text}");
}
