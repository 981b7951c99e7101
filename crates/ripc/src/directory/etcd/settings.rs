//! The settings in the text of an etcd directory.

use crate::directory::text::Text;
use crate::error::DirectoryError;
use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use std::time::Duration;

/// The most servers of one cluster that a text may name.
const SERVERS_MAX: usize = 16;
/// How long dead services stay listed by default, seconds.
const TTL_S: i64 = 5;
const KEYS: &[&str] = &["prefix", "user", "password-file", "ca", "certificate", "key", "ttl"];
/// How long connecting to one server may take.
const CONNECT: Duration = Duration::from_secs(2);
/// A server that sends nothing is asked for a sign of life. It would refuse to be asked more often than every 5 s.
const PING: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

/// Where the cluster is, and how to communicate with it.
#[derive(Clone)]
pub(super) struct Settings {
    /// The servers of the text, with the scheme in front.
    pub servers: Vec<String>,
    /// The beginning of all keys. It ends with `/`.
    pub prefix: String,
    /// How long dead services stay listed, seconds.
    pub ttl_s: i64,
    pub options: ConnectOptions,
}

impl Settings {
    /// Parses a text, and reads the files that it names.
    pub fn parse(whole: &str) -> Result<Settings, DirectoryError> {
        let rest = whole.strip_prefix("etcd://").unwrap_or_default();
        let text = Text::parse(whole, rest, KEYS)?;
        let file = |key: &str| -> Result<Option<String>, DirectoryError> {
            let Some(path) = text.one(key)? else { return Ok(None) };
            let read = std::fs::read_to_string(path);
            read.map(Some).map_err(|error| text.wrong(&format!("{key}={path}: {error}")))
        };
        let mut options = ConnectOptions::new().with_connect_timeout(CONNECT).with_keep_alive(PING.0, PING.1);
        options = options.with_require_leader(true).with_auto_token_refresh(true);
        match (text.one("user")?, file("password-file")?) {
            (None, None) => {}
            (Some(user), Some(password)) => {
                options = options.with_user(user, password.trim_end_matches(['\r', '\n']))
            }
            _ => return Err(text.wrong("user and password-file belong together: write both or none")),
        }
        let authorities = file("ca")?;
        let identity = match (file("certificate")?, file("key")?) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(Identity::from_pem(certificate, key)),
            _ => return Err(text.wrong("certificate and key belong together: write both or none")),
        };
        let scheme = match (authorities, identity) {
            (None, None) => "http",
            (None, Some(_)) => {
                return Err(text.wrong("certificate without ca: add ca=FILE, by which the servers are known"));
            }
            (Some(authorities), identity) => {
                let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(authorities));
                if let Some(identity) = identity {
                    tls = tls.identity(identity);
                }
                options = options.with_tls(tls);
                "https"
            }
        };
        let ttl_s = match text.one("ttl")? {
            None => TTL_S,
            Some(ttl) => match ttl.parse() {
                Ok(ttl @ 2..=600) => ttl,
                _ => return Err(text.wrong("ttl must be a number of seconds from 2 to 600")),
            },
        };
        let prefix = text.one("prefix")?.unwrap_or("/cci/services").trim_end_matches('/');
        let servers: Vec<String> =
            text.place.split(',').map(|server| format!("{scheme}://{server}")).collect();
        let is_server = |server: &&str| {
            server
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
                && server.bytes().all(|byte| byte.is_ascii_graphic() && !b"/@#\\".contains(&byte))
        };
        if !text.place.split(',').all(|server| is_server(&server)) {
            return Err(text.wrong("write etcd://HOST:PORT, or etcd://HOST:PORT,HOST:PORT"));
        }
        if servers.len() > SERVERS_MAX {
            return Err(text.wrong("more than 16 servers"));
        }
        Ok(Settings { servers, prefix: format!("{prefix}/"), ttl_s, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_checked() {
        for (text, word) in [
            ("etcd:127.0.0.1:2379", "etcd://HOST:PORT"),
            ("etcd://", "etcd://HOST:PORT"),
            ("etcd://host", "etcd://HOST:PORT"),
            ("etcd://host:1,", "etcd://HOST:PORT"),
            ("etcd://u@host:1", "etcd://HOST:PORT"),
            ("etcd://host:1/x", "etcd://HOST:PORT"),
            ("etcd://host:1?user=me", "belong together"),
            (
                "etcd://host:1?user=me&password-file=/nowhere/at/all",
                "password-file=/nowhere/at/all: No such file",
            ),
            ("etcd://host:1?ca=/nowhere/at/all", "ca=/nowhere/at/all"),
            ("etcd://host:1?certificate=/dev/null", "belong together"),
            ("etcd://host:1?certificate=/dev/null&key=/dev/null", "without ca"),
            ("etcd://host:1?ttl=1", "2 to 600"),
            ("etcd://host:1?tls=1", "password-file"),
        ] {
            let error = Settings::parse(text).err().expect(text);
            assert!(error.reason.contains(word), "{error}");
        }
        let settings = Settings::parse("etcd://a:1,[::1]:2?prefix=/x/").unwrap();
        assert_eq!(settings.servers, ["http://a:1", "http://[::1]:2"]);
        assert_eq!(settings.prefix, "/x/");
        let sealed = Settings::parse("etcd://a:1?ca=/dev/null").unwrap();
        assert_eq!(sealed.servers, ["https://a:1"]);
    }
}
