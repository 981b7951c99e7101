//! The thread of an etcd directory. It keeps a session with the cluster, and begins another one when that fails.

use super::session::{Claimed, Event, Session, Trouble};
use super::settings::Settings;
use crate::directory::limits::NAMES_MAX;
use crate::directory::mailbox::Mailbox;
use crate::directory::{Instance, News, Record};
use crate::limits::SERVICES_MAX;
use crate::name::ServiceName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep_until};

/// The first and the longest pause between attempts to connect. Pauses double.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The most events of a session that wait.
const EVENTS_MAX: usize = 64;

/// Why a claim was refused.
pub(super) enum Refusal {
    Taken(String),
    TooMany,
    Failed(String),
}

/// A command of the owner to the thread.
pub(super) enum Command {
    Claim(Record, SyncSender<Result<(), Refusal>>),
    Withdraw(ServiceName, Instance),
    Ask(ServiceName),
}

/// The state of the thread.
pub(super) struct Work {
    settings: Settings,
    mailbox: Arc<Mailbox>,
    /// Services of this process.
    claims: Vec<Record>,
    /// Names that were asked for, and the last report about each.
    asked: BTreeMap<ServiceName, Option<News>>,
    /// Why there is no session.
    fault: Option<String>,
}

impl Work {
    pub fn new(settings: Settings, mailbox: Arc<Mailbox>) -> Work {
        Work { settings, mailbox, claims: Vec::new(), asked: BTreeMap::new(), fault: None }
    }

    /// Works until the owner has dropped its end of the commands.
    pub async fn run(mut self, mut commands: Receiver<Command>) {
        let mut pause = AGAIN.0;
        loop {
            let (sender, mut events) = channel(EVENTS_MAX);
            let began = Instant::now();
            let failed = match Session::open(&self.settings, sender).await {
                Ok(session) => match self.session(session, &mut commands, &mut events).await {
                    Ok(()) => return,
                    Err(reason) => reason,
                },
                Err(trouble) => trouble.reason,
            };
            // If a session lasted, its failure does not continue a series of failures.
            if began.elapsed() > 2 * AGAIN.1 {
                pause = AGAIN.0;
            }
            self.fail(failed);
            if !self.rest(Instant::now() + pause, &mut commands).await {
                return;
            }
            pause = (pause * 2).min(AGAIN.1);
        }
    }

    /// Remembers why there is no session, and reports it for the names that were asked for.
    fn fail(&mut self, reason: String) {
        let servers = self.settings.servers.join(", ");
        let reason = format!("{servers}: {reason}; look whether etcd runs there and may be reached");
        self.fault = Some(reason.clone());
        for service in self.asked.keys().cloned().collect::<Vec<_>>() {
            self.report(News::Failed { service, reason: reason.clone() });
        }
    }

    /// Reports news that were not reported before.
    fn report(&mut self, news: News) {
        let (News::Found { service, .. } | News::Absent { service } | News::Failed { service, .. }) = &news
        else {
            return self.mailbox.push(news);
        };
        let Some(last) = self.asked.get_mut(service) else { return };
        if last.as_ref() != Some(&news) {
            *last = Some(news.clone());
            self.mailbox.push(news);
        }
    }

    /// Handles commands while there is no session. Returns false if the thread is to end.
    async fn rest(&mut self, until: Instant, commands: &mut Receiver<Command>) -> bool {
        loop {
            let command = tokio::select! {
                command = commands.recv() => command,
                () = sleep_until(until) => return true,
            };
            let fault = self.fault.clone().unwrap_or_default();
            match command {
                None => return false,
                Some(Command::Claim(_, done)) => {
                    let _nobody_waits = done.send(Err(Refusal::Failed(fault)));
                }
                // If it is still listed, its lease ends.
                Some(Command::Withdraw(service, instance)) => {
                    self.claims.retain(|claim| claim.service != service || claim.instance != instance);
                }
                Some(Command::Ask(service)) => {
                    self.ask(&service);
                    self.report(News::Failed { service, reason: fault });
                }
            }
        }
    }

    /// Remembers that a name was asked for, so that everything found about it is reported.
    fn ask(&mut self, service: &ServiceName) {
        if self.asked.len() >= NAMES_MAX && !self.asked.contains_key(service) {
            self.asked.clear();
        }
        self.asked.insert(service.clone(), None);
    }

    /// Works over a session, until it fails (an error) or the owner ends.
    async fn session(
        &mut self,
        mut session: Session,
        commands: &mut Receiver<Command>,
        events: &mut Receiver<Event>,
    ) -> Result<(), String> {
        self.fault = None;
        let mut names: Vec<ServiceName> = self.claims.iter().map(|claim| claim.service.clone()).collect();
        self.claim_again(&mut session, &names).await?;
        names.extend(self.asked.keys().cloned());
        for service in &names {
            self.find(&mut session, service).await?;
        }
        loop {
            let command = tokio::select! {
                command = commands.recv() => command,
                event = events.recv() => match event {
                    Some(Event::Changed(changed)) => {
                        let changed: Vec<ServiceName> = changed.into_iter().collect();
                        self.claim_again(&mut session, &changed).await?;
                        for service in &changed {
                            self.find(&mut session, service).await?;
                        }
                        continue;
                    }
                    Some(Event::Failed(reason)) => return Err(reason),
                    None => return Err("its tasks have ended".to_owned()),
                },
            };
            match command {
                None => {
                    session.withdraw_all().await;
                    return Ok(());
                }
                Some(Command::Claim(record, done)) => {
                    let (claimed, broken) = match self.claim(&mut session, &record).await {
                        Ok(claimed) => (claimed, None),
                        Err(Trouble { reason, is_broken }) => {
                            (Err(Refusal::Failed(reason.clone())), is_broken.then_some(reason))
                        }
                    };
                    let _nobody_waits = done.send(claimed);
                    if let Some(reason) = broken {
                        return Err(reason);
                    }
                }
                Some(Command::Withdraw(service, instance)) => {
                    let is_it = |claim: &Record| claim.service == service && claim.instance == instance;
                    if let Some(index) = self.claims.iter().position(is_it) {
                        let claim = self.claims.swap_remove(index);
                        session.withdraw(&claim).await?;
                    }
                }
                Some(Command::Ask(service)) => {
                    self.ask(&service);
                    self.find(&mut session, &service).await?;
                }
            }
        }
    }

    async fn claim(
        &mut self,
        session: &mut Session,
        record: &Record,
    ) -> Result<Result<(), Refusal>, Trouble> {
        if self.claims.len() >= SERVICES_MAX {
            return Ok(Err(Refusal::TooMany));
        }
        if let Claimed::Taken(by) = session.claim(record).await? {
            return Ok(Err(Refusal::Taken(by)));
        }
        self.claims.push(record.clone());
        // The name is watched, so that a removal is seen. If this fails, the name still belongs to this process.
        if let Ok(news) = session.find(&record.service).await {
            self.report(news);
        }
        Ok(Ok(()))
    }

    /// Enters this process's services of these names again, if necessary. Names that another process has meanwhile are lost.
    async fn claim_again(&mut self, session: &mut Session, names: &[ServiceName]) -> Result<(), String> {
        let ours: Vec<Record> =
            self.claims.iter().filter(|claim| names.contains(&claim.service)).cloned().collect();
        for claim in ours {
            if session.has(&claim).await? {
                continue;
            }
            if let Claimed::Taken(to) = session.claim(&claim).await? {
                self.claims.retain(|other| other != &claim);
                self.report(News::Lost { service: claim.service, to });
            }
        }
        Ok(())
    }

    async fn find(&mut self, session: &mut Session, service: &ServiceName) -> Result<(), String> {
        let news = session.find(service).await?;
        self.report(news);
        Ok(())
    }
}
