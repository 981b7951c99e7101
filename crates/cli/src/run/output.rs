//! What ranks write, in whole lines.

use std::io::{self, Read, Write};

/// Read at once. A longer line is written in parts, between which others' lines may come.
const CHUNK_BYTES: usize = 64 * 1024;

/// How lines of one rank are written.
pub struct Form {
    /// Written before each line.
    pub label: Option<String>,
    /// Whether a last line without its end gets one: others may write after it.
    pub completes_last: bool,
}

/// Copies lines from `from` to `to` until either ends. Each call of `write_all` has whole lines, so that those of several
/// writers do not mix.
pub fn copy_lines(mut from: impl Read, mut to: impl Write, form: &Form) -> io::Result<()> {
    let mut held = vec![0; CHUNK_BYTES];
    let mut held_bytes = 0;
    let mut text = Vec::new();
    let mut at_line_start = true;
    loop {
        let read_bytes = match from.read(&mut held[held_bytes..]) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        held_bytes += read_bytes;
        let is_end = read_bytes == 0;
        let whole_bytes = held[..held_bytes].iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
        let ready_bytes = match whole_bytes {
            Some(bytes) if !is_end => bytes,
            None if !is_end && held_bytes < held.len() => continue,
            _ => held_bytes,
        };
        text.clear();
        for line in held[..ready_bytes].split_inclusive(|&byte| byte == b'\n') {
            if at_line_start {
                text.extend_from_slice(form.label.as_deref().unwrap_or_default().as_bytes());
            }
            text.extend_from_slice(line);
            at_line_start = line.ends_with(b"\n");
        }
        if is_end && !at_line_start && form.completes_last {
            text.push(b'\n');
        }
        to.write_all(&text)?;
        to.flush()?;
        if is_end {
            return Ok(());
        }
        held.copy_within(ready_bytes..held_bytes, 0);
        held_bytes -= ready_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one part a call.
    struct Parts(Vec<Vec<u8>>);

    impl Read for Parts {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let part = self.0.remove(0);
            into[..part.len()].copy_from_slice(&part);
            Ok(part.len())
        }
    }

    /// Keeps each call's bytes apart.
    struct Calls(Vec<String>);

    impl Write for &mut Calls {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(String::from_utf8(bytes.to_vec()).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn copied(parts: &[&str], label: Option<&str>, completes_last: bool) -> Vec<String> {
        let parts = Parts(parts.iter().map(|part| part.as_bytes().to_vec()).collect());
        let mut calls = Calls(Vec::new());
        let form = Form { label: label.map(str::to_owned), completes_last };
        copy_lines(parts, &mut calls, &form).unwrap();
        calls.0
    }

    #[test]
    fn lines_come_whole() {
        assert_eq!(copied(&["a", "b\nc", "\nd\n"], None, true), ["ab\n", "c\nd\n"]);
        assert_eq!(copied(&["a\nb"], Some("7: "), true), ["7: a\n", "7: b\n"]);
        assert_eq!(copied(&["a\nb"], None, false), ["a\n", "b"]);
        assert_eq!(copied(&[], Some("7: "), true), [""; 0]);
    }

    #[test]
    fn longer_lines_get_one_label() {
        let long = "x".repeat(CHUNK_BYTES);
        let copied = copied(&[&long, "yz\n"], Some("7: "), true);
        assert_eq!(copied, [format!("7: {long}"), "yz\n".to_owned()]);
    }
}
