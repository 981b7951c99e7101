//! Where services are in etcd: `PREFIX/NAME/service`, or `PREFIX/NAME/members/INSTANCE` for each member of a group.

use crate::directory::{Kind, News, Record};
use crate::name::ServiceName;
use etcd_client::KeyValue;

/// The beginning of all keys of a name.
pub(super) fn of_name(prefix: &str, service: &ServiceName) -> String {
    format!("{prefix}{service}/")
}

/// The key of the only service of a name.
pub(super) fn of_service(prefix: &str, service: &ServiceName) -> String {
    format!("{prefix}{service}/service")
}

/// The key of a record.
//= wire.md R-DIR-11
pub(super) fn of_record(prefix: &str, record: &Record) -> String {
    match record.kind {
        Kind::Service => of_service(prefix, &record.service),
        Kind::Member => format!("{prefix}{}/members/{}", record.service, record.instance),
    }
}

/// The name to which a key belongs, if it is one.
pub(super) fn name_of(prefix: &str, key: &[u8]) -> Option<ServiceName> {
    let key = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?;
    ServiceName::new(key.split_once('/')?.0).ok()
}

/// Reads what was found under the keys of a name. Anybody with access to etcd may have written it.
pub(super) fn read(prefix: &str, service: &ServiceName, found: &[KeyValue]) -> News {
    let mut records = Vec::new();
    let mut reason = None;
    for pair in found {
        let key = String::from_utf8_lossy(pair.key());
        let text = std::str::from_utf8(pair.value()).map_err(|_| "it is not UTF-8".to_owned());
        match text.and_then(|text| Record::parse(text).map_err(|error| error.to_string())) {
            Ok(record) if of_record(prefix, &record) == key => records.push(record),
            Ok(_) => reason = Some(format!("{key} has a record of something else: delete it")),
            Err(wrong) => reason = Some(format!("{key}: {wrong}: delete it")),
        }
    }
    if let Some(one) = records.iter().position(|record| record.kind == Kind::Service) {
        records = vec![records.swap_remove(one)];
    }
    let service = service.clone();
    match (records.is_empty(), reason) {
        (false, _) => News::Found { service, records },
        (true, Some(reason)) => News::Failed { service, reason },
        (true, None) => News::Absent { service },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Instance;

    #[test]
    fn keys_lead_to_names_and_back() {
        let service = ServiceName::new("kv").unwrap();
        let uris = vec!["shm://x".to_owned()];
        let mut record =
            Record { service: service.clone(), instance: Instance(7), kind: Kind::Service, uris };
        assert_eq!(of_record("/p/", &record), "/p/kv/service");
        record.kind = Kind::Member;
        assert_eq!(of_record("/p/", &record), "/p/kv/members/0000000000000007");
        for key in ["/p/kv/service", "/p/kv/members/0000000000000007", "/p/kv/anything"] {
            assert_eq!(name_of("/p/", key.as_bytes()), Some(service.clone()));
        }
        for other in [&b"/q/kv/service"[..], b"/p/kv", b"/p/\xff/service", b"/p/k v/service"] {
            assert_eq!(name_of("/p/", other), None);
        }
    }
}
