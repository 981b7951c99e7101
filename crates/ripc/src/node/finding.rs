//! How partners are found: questions to the directory, and connections to the places that it gives (RIPC-029 to RIPC-031).

use super::base::Base;
use super::partners::Search;
use crate::directory::{Directory, Instance, Kind, News, Record};
use crate::error::ReachError;
use crate::handles::{Partner, Service};
use crate::limits::{ASK_AGAIN_NS_MAX, ASK_AGAIN_NS_MIN, CONNECT_NS, MEMBERS_MAX};
use crate::name::ServiceName;
use crate::policy::Policy;
use crate::wire::Hello;
use cci::{Attribute, ConnectFailure, Connection};
use rustc_hash::FxHashMap;
use slotmap::Key;
use std::time::Duration;

/// News that are taken from a directory at a time.
const NEWS_PER_LOOK: usize = 64;

/// The known members of a group.
#[derive(Default)]
struct Group {
    members: Vec<Record>,
    asked_ns: Option<u64>,
}

pub struct Finding {
    pub directory: Box<dyn Directory>,
    timeout_ns: u64,
    searching: Vec<Partner>,
    /// When the latest search began.
    began_ns: u64,
    groups: FxHashMap<ServiceName, Group>,
    /// Whether news of the directory wake the node.
    is_woken: bool,
}

/// The result of a search.
pub enum Found {
    /// A partner is connected.
    Connected(Partner),
    /// A partner was not found for as long as messages wait.
    Unreached(Partner, ReachError),
    /// According to the directory, a partner is elsewhere than at the end of this connection.
    Elsewhere(Connection),
    /// A service's name belongs to another process.
    Lost(Service, String),
}

impl Finding {
    pub fn new(directory: Box<dyn Directory>, timeout: Duration) -> Finding {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let (searching, groups) = (Vec::new(), FxHashMap::default());
        Finding { directory, timeout_ns, searching, began_ns: 0, groups, is_woken: false }
    }

    /// Makes news of the directory wake the node, if the directory has a descriptor.
    pub fn wake(&mut self, base: &mut Base) {
        let descriptor = self.directory.descriptor();
        // If it can't be watched, the directory is polled from time to time.
        self.is_woken = descriptor.is_some_and(|descriptor| base.endpoint.wake_on(descriptor).is_ok());
    }

    /// Whether news of the directory wake the node. The node must take them whenever it makes progress, or it would not sleep.
    pub fn is_woken(&self) -> bool {
        self.is_woken
    }

    /// Whether no partner is being looked for.
    pub fn is_idle(&self) -> bool {
        self.searching.is_empty()
    }

    /// When the latest search began.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// Begins to look for a partner, unless a search is under way or it is connected. `avoid` is an instance where it is no
    /// longer. The instance of its last connection, which has ended, is avoided as well: the directory may still name it, and
    /// nobody may answer there.
    pub fn search(&mut self, base: &mut Base, partner: Partner, avoid: Option<Instance>, now_ns: u64) {
        let Some(state) = base.partners.get_mut(partner) else { return };
        if state.connection().is_some() {
            return;
        }
        // A search that has found the partner, and was not continued since, is over: the connection has ended meanwhile.
        let has_found = |search: &Search| search.dialling.is_none() && search.ask_at_ns.is_none();
        match &mut state.search {
            Some(search) if !has_found(search) => search.avoid = avoid.or(search.avoid),
            search => {
                let begun = Search {
                    since_ns: now_ns,
                    ask_at_ns: Some(now_ns),
                    pause_ns: ASK_AGAIN_NS_MIN,
                    reach_error: None,
                    avoid: avoid.or(state.instance),
                    dialling: None,
                };
                if search.replace(begun).is_none() {
                    self.searching.push(partner);
                }
                self.began_ns = now_ns;
            }
        }
    }

    /// Asks, dials and gives up, as is due. `is_wanted` says whether somebody waits for a partner longer than messages do.
    pub fn progress(
        &mut self,
        base: &mut Base,
        now_ns: u64,
        is_wanted: impl Fn(&Base, Partner) -> bool,
        found: &mut Vec<Found>,
    ) {
        let mut index = 0;
        while let Some(&partner) = self.searching.get(index) {
            if self.go_on(base, partner, now_ns, &is_wanted, found) {
                index += 1;
            } else {
                self.searching.swap_remove(index);
            }
        }
        for _ in 0..NEWS_PER_LOOK {
            let Some(news) = self.directory.poll() else { break };
            self.on_news(base, news, now_ns, found);
        }
    }

    /// Continues a search. Returns whether it goes on.
    fn go_on(
        &mut self,
        base: &mut Base,
        partner: Partner,
        now_ns: u64,
        is_wanted: impl Fn(&Base, Partner) -> bool,
        found: &mut Vec<Found>,
    ) -> bool {
        let wanted = is_wanted(base, partner);
        let Some(state) = base.partners.get_mut(partner) else { return false };
        if state.connection().is_some() {
            state.search = None;
            return false;
        }
        let Some(search) = &mut state.search else { return false };
        let waited = Duration::from_nanos(now_ns.saturating_sub(search.since_ns));
        if waited.as_nanos() >= self.timeout_ns.into() && (!wanted || !state.waiting.is_empty()) {
            let service = state.name.clone();
            let unknown = || ReachError::Unknown { service, directory: self.directory.describe(), waited };
            let error = search.reach_error.clone().unwrap_or_else(unknown);
            found.push(Found::Unreached(partner, error.after(waited)));
            if wanted {
                return true;
            }
            state.search = None;
            return false;
        }
        if search.ask_at_ns.is_some_and(|at_ns| now_ns >= at_ns) && search.dialling.is_none() {
            // It is asked again if no answer comes.
            search.ask_at_ns = Some(now_ns + ASK_AGAIN_NS_MAX);
            match state.pinned.clone() {
                Some(record) => self.dial(base, partner, &record, now_ns),
                None => self.directory.ask(&state.name),
            }
        }
        true
    }

    fn on_news(&mut self, base: &mut Base, news: News, now_ns: u64, found: &mut Vec<Found>) {
        match news {
            News::Found { service, records } => {
                if let Some(group) = self.groups.get_mut(&service) {
                    let members = records.iter().filter(|record| record.kind == Kind::Member);
                    group.members = members.take(MEMBERS_MAX).cloned().collect();
                }
                let record = records.iter().find(|record| record.kind == Kind::Service).or(records.first());
                if let Some(record) = record {
                    self.found(base, &service, record, now_ns);
                    let others = base.partners.elsewhere(&service, record.instance);
                    found.extend(others.map(Found::Elsewhere));
                }
            }
            News::Absent { service } => {
                if let Some(group) = self.groups.get_mut(&service) {
                    group.members.clear();
                }
                let directory = self.directory.describe();
                let waited = Duration::ZERO;
                self.again(base, &service, now_ns, || ReachError::Unknown {
                    service: service.clone(),
                    directory: directory.clone(),
                    waited,
                });
            }
            News::Failed { service, reason } => {
                let directory = self.directory.describe();
                self.again(base, &service, now_ns, || ReachError::Directory {
                    service: service.clone(),
                    directory: directory.clone(),
                    reason: reason.clone(),
                });
            }
            News::Lost { service, to } => {
                if let Some(service) = base.services.by_name(&service) {
                    found.push(Found::Lost(service, to));
                }
            }
        }
    }

    /// Handles the directory's answer where a service is.
    fn found(&mut self, base: &mut Base, service: &ServiceName, record: &Record, now_ns: u64) {
        for index in 0..self.searching.len() {
            let partner = self.searching[index];
            let Some(state) = base.partners.get_mut(partner) else { continue };
            if state.name != *service || state.pinned.is_some() {
                continue;
            }
            let Some(search) = state.search.as_mut().filter(|search| search.dialling.is_none()) else {
                continue;
            };
            if search.avoid == Some(record.instance) && search.pause_ns < ASK_AGAIN_NS_MAX {
                // The partner was left a moment ago. The directory may not know that yet. If it gives the same place later, it is
                // right.
                later(search, now_ns);
                continue;
            }
            self.dial(base, partner, record, now_ns);
        }
    }

    /// Starts to connect.
    fn dial(&mut self, base: &mut Base, partner: Partner, record: &Record, now_ns: u64) {
        let Some(state) = base.partners.get_mut(partner) else { return };
        let Some(service) = base.services.get(state.service) else { return };
        let hello = Hello {
            instance: service.instance,
            is_listed: service.listing == super::services::Listing::Service,
            from: service.name.clone(),
            to: state.name.clone(),
        };
        let (attribute, timeout) = (Attribute::ReliableOrdered, Some(Duration::from_nanos(CONNECT_NS)));
        let context = partner.data().as_ffi();
        let mut reason = String::new();
        for uri in &record.uris {
            match base.endpoint.connect(uri, &hello.to_bytes(), attribute, context, timeout) {
                Ok(()) => {
                    if let Some(search) = &mut state.search {
                        search.dialling = Some((record.instance, uri.clone()));
                        search.ask_at_ns = None;
                    }
                    return;
                }
                Err(error) => reason = error.to_string(),
            }
        }
        let uri = record.uris.first().cloned().unwrap_or_default();
        let (service, waited) = (state.name.clone(), Duration::ZERO);
        if let Some(search) = &mut state.search {
            search.reach_error = Some(ReachError::NotThere { service, uri, reason, waited });
            later(search, now_ns);
        }
    }

    /// Asks for a service again later.
    fn again(
        &mut self,
        base: &mut Base,
        service: &ServiceName,
        now_ns: u64,
        reach_error: impl Fn() -> ReachError,
    ) {
        for &partner in &self.searching {
            let Some(state) = base.partners.get_mut(partner) else { continue };
            if state.name == *service
                && state.pinned.is_none()
                && let Some(search) = state.search.as_mut().filter(|search| search.dialling.is_none())
            {
                search.reach_error = Some(reach_error());
                later(search, now_ns);
            }
        }
    }

    /// Handles the end of an attempt to connect.
    pub fn dialled(
        &mut self,
        base: &mut Base,
        policy: &Policy,
        partner: Partner,
        result: Result<Connection, ConnectFailure>,
        now_ns: u64,
    ) -> Option<Found> {
        let Some(state) = base.partners.get_mut(partner) else {
            if let Ok(connection) = result {
                base.endpoint.disconnect(connection);
            }
            return None;
        };
        let search = state.search.as_mut();
        let (instance, uri) =
            search.and_then(|search| search.dialling.take()).unwrap_or((Instance(0), String::new()));
        let name = state.name.clone();
        let reach_error = match result {
            Ok(connection) => {
                let identity = base.endpoint.peer_identity(connection);
                if policy.may_register(&name, identity) {
                    base.partners.connected(partner, connection, instance, true);
                    return Some(Found::Connected(partner));
                }
                let identity =
                    identity.map_or_else(|| "somebody without an identity".to_owned(), ToString::to_string);
                base.endpoint.disconnect(connection);
                ReachError::WrongIdentity { service: name, identity }
            }
            Err(failure) => {
                let reason = match failure {
                    ConnectFailure::Refused => {
                        "whoever is there is not this service, or does not admit you".to_owned()
                    }
                    failure => failure.to_string(),
                };
                ReachError::NotThere { service: name, uri, reason, waited: Duration::ZERO }
            }
        };
        if let Some(search) = base.partners.get_mut(partner).and_then(|state| state.search.as_mut()) {
            search.reach_error = Some(reach_error);
            later(search, now_ns);
        }
        None
    }

    /// The known members of a group. They are asked for again if the last time was some time ago.
    pub fn members(&mut self, name: &ServiceName, now_ns: u64) -> &[Record] {
        let group = self.groups.entry(name.clone()).or_default();
        if group.asked_ns.is_none_or(|asked_ns| now_ns.saturating_sub(asked_ns) >= ASK_AGAIN_NS_MAX) {
            group.asked_ns = Some(now_ns);
            self.directory.ask(name);
            for _ in 0..NEWS_PER_LOOK {
                let Some(news) = self.directory.poll() else { break };
                self.on_members(news);
            }
        }
        self.groups.get(name).map_or(&[], |group| &group.members)
    }

    /// Handles news while only members are of interest. News of other names are asked for again.
    fn on_members(&mut self, news: News) {
        if let News::Found { service, records } = news
            && let Some(group) = self.groups.get_mut(&service)
        {
            group.members =
                records.into_iter().filter(|record| record.kind == Kind::Member).take(MEMBERS_MAX).collect();
        }
    }

    /// When something is due next.
    pub fn next_due_ns(&self, base: &Base) -> u64 {
        let searches =
            self.searching.iter().filter_map(|&partner| base.partners.get(partner)?.search.as_ref());
        searches.filter_map(|search| search.ask_at_ns).min().unwrap_or(u64::MAX)
    }
}

fn later(search: &mut Search, now_ns: u64) {
    search.ask_at_ns = Some(now_ns + search.pause_ns);
    search.pause_ns = (search.pause_ns * 2).min(ASK_AGAIN_NS_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory;
    use crate::node::lending::Lending;
    use crate::node::services::Listing;
    use cci::{Context, Endpoint, Options};

    #[test]
    fn who_was_found_and_is_gone_before_anybody_looked_is_asked_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let directory = directory::open(&format!("host:{}", folder.path().display())).unwrap();
        let context = Context::from_text("[shm]\ntransport = shm\n", "test".as_ref()).unwrap();
        let endpoint = Endpoint::create(context.default_device(), Options::default()).unwrap();
        let mut base = Base::new(endpoint, Lending::new(0));
        let mut finding = Finding::new(directory, Duration::from_secs(10));
        let me = base.services.insert(ServiceName::number(1), Instance(1), Listing::Unlisted);
        let partner = base.partners.named(me, &ServiceName::number(2), None).unwrap();
        finding.search(&mut base, partner, None, 5);
        assert_eq!(finding.next_due_ns(&base), 5);
        // The state after it was dialled, and the connection has opened and ended.
        let search = base.partners.get_mut(partner).and_then(|state| state.search.as_mut()).unwrap();
        search.ask_at_ns = None;
        finding.search(&mut base, partner, Some(Instance(2)), 9);
        assert_eq!(finding.next_due_ns(&base), 9);
        let search = base.partners.get(partner).and_then(|state| state.search.as_ref()).unwrap();
        assert_eq!((search.since_ns, search.avoid), (9, Some(Instance(2))));
        // While it is being dialled, the search waits for the end of that.
        let search = base.partners.get_mut(partner).and_then(|state| state.search.as_mut()).unwrap();
        (search.ask_at_ns, search.dialling) = (None, Some((Instance(2), String::new())));
        finding.search(&mut base, partner, None, 11);
        assert_eq!(finding.next_due_ns(&base), u64::MAX);
        assert_eq!(finding.searching, [partner]);
    }

    #[test]
    fn where_a_connection_has_ended_is_not_dialled_again_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let directory = directory::open(&format!("host:{}", folder.path().display())).unwrap();
        let context = Context::from_text("[shm]\ntransport = shm\n", "test".as_ref()).unwrap();
        let endpoint = Endpoint::create(context.default_device(), Options::default()).unwrap();
        let mut base = Base::new(endpoint, Lending::new(0));
        let mut finding = Finding::new(directory, Duration::from_secs(10));
        let me = base.services.insert(ServiceName::number(1), Instance(1), Listing::Unlisted);
        let name = ServiceName::number(2);
        let partner = base.partners.named(me, &name, None).unwrap();
        // It had a connection. Nothing waited for it when that ended.
        base.partners.get_mut(partner).unwrap().instance = Some(Instance(2));
        finding.search(&mut base, partner, None, 5);
        // The directory first does not know of that, and then knows the next instance.
        let record = |instance| Record {
            kind: Kind::Service,
            service: name.clone(),
            instance: Instance(instance),
            uris: vec!["shm://nobody".to_owned()],
        };
        let is_dialled =
            |base: &Base| base.partners.get(partner).unwrap().search.as_ref().unwrap().dialling.is_some();
        finding.found(&mut base, &name, &record(2), 6);
        assert!(!is_dialled(&base));
        finding.found(&mut base, &name, &record(3), 7);
        assert!(is_dialled(&base));
    }
}
