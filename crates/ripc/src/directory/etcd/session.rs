//! One connection with the cluster: a lease that is kept alive, a watch, and requests. A failure of the lease or the watch ends
//! it, and the thread begins another one.

use super::keys;
use super::settings::Settings;
use crate::directory::limits::NAMES_MAX;
use crate::directory::{Kind, News, Record};
use crate::limits::MEMBERS_MAX;
use crate::name::ServiceName;
use etcd_client::{
    Client, Compare, CompareOp, Error, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse,
    WatchOptions, WatchRequestSender, WatchResponseStream,
};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long one answer of the cluster may take.
const ANSWER: Duration = Duration::from_secs(2);

/// A report of the tasks of a session.
pub(super) enum Event {
    /// Something changed under the keys of these names.
    Changed(BTreeSet<ServiceName>),
    /// The session can't be used any more.
    Failed(String),
}

/// A connection with the cluster.
pub(super) struct Session {
    client: Client,
    prefix: String,
    lease: i64,
    watch: Option<WatchRequestSender>,
    watched: BTreeSet<ServiceName>,
    events: Sender<Event>,
    /// Tasks that end with the session.
    tasks: JoinSet<()>,
}

/// The result of a claim.
pub(super) enum Claimed {
    Ours,
    /// Another process has the name; this describes it.
    Taken(String),
}

/// Why a request failed.
pub(super) struct Trouble {
    pub reason: String,
    /// Whether the session can't be used any more. If not, the cluster has refused only this request.
    pub is_broken: bool,
}

impl From<Trouble> for String {
    fn from(trouble: Trouble) -> String {
        trouble.reason
    }
}

/// Codes of gRPC for a refusal of one request: permission denied, too large for a message, out of range.
const REFUSED: [i32; 3] = [7, 8, 11];

/// Waits for an answer of the cluster.
async fn answer<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Trouble> {
    let (reason, is_broken) = match timeout(ANSWER, asked).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(Error::GRpcStatus(status))) => {
            (status.message().to_owned(), !REFUSED.contains(&i32::from(status.code())))
        }
        Ok(Err(error)) => (error.to_string(), true),
        Err(_) => (format!("no answer within {} ms", ANSWER.as_millis()), true),
    };
    Err(Trouble { reason, is_broken })
}

fn senseless() -> Trouble {
    Trouble { reason: "its answer makes no sense".to_owned(), is_broken: true }
}

impl Session {
    /// Connects, and gets a lease.
    pub async fn open(settings: &Settings, events: Sender<Event>) -> Result<Session, Trouble> {
        let connect = Client::connect(&settings.servers[..], Some(settings.options.clone()));
        let mut client = answer(connect).await?;
        let lease = answer(client.lease_grant(settings.ttl_s, None)).await?.id();
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_alive(client.clone(), lease, settings.ttl_s, events.clone()));
        let (prefix, watched) = (settings.prefix.clone(), BTreeSet::new());
        Ok(Session { client, prefix, lease, watch: None, watched, events, tasks })
    }

    /// Enters a record, if nobody else has the name. A record of this process that is there already gets this session's lease.
    pub async fn claim(&mut self, record: &Record) -> Result<Claimed, Trouble> {
        let (key, text) = (keys::of_record(&self.prefix, record), record.to_string());
        let all = keys::of_name(&self.prefix, &record.service);
        let options = Some(PutOptions::new().with_lease(self.lease));
        let put = TxnOp::put(key.clone(), text.clone(), options);
        // A key that does not exist was created in revision 0. For a prefix, that holds if no key exists.
        let (free, who) = match record.kind {
            Kind::Service => (
                vec![Compare::create_revision(all.clone(), CompareOp::Equal, 0).with_prefix()],
                TxnOp::get(all, Some(GetOptions::new().with_prefix().with_limit(1))),
            ),
            Kind::Member => {
                let one = keys::of_service(&self.prefix, &record.service);
                let free = [&one, &key].map(|key| Compare::create_revision(key.clone(), CompareOp::Equal, 0));
                (free.to_vec(), TxnOp::get(one, None))
            }
        };
        let ours = Compare::value(key, CompareOp::Equal, text);
        let again = Txn::new().when(vec![ours]).and_then(vec![put.clone()]).or_else(vec![who]);
        let claim = Txn::new().when(free).and_then(vec![put]).or_else(vec![TxnOp::txn(again)]);
        let done = answer(self.client.txn(claim)).await?;
        if done.succeeded() {
            return Ok(Claimed::Ours);
        }
        let Some(TxnOpResponse::Txn(again)) = done.op_responses().into_iter().next() else {
            return Err(senseless());
        };
        if again.succeeded() {
            return Ok(Claimed::Ours);
        }
        let Some(TxnOpResponse::Get(who)) = again.op_responses().into_iter().next() else {
            return Err(senseless());
        };
        let by =
            who.kvs().first().map(|pair| String::from_utf8_lossy(pair.value()).chars().take(600).collect());
        Ok(Claimed::Taken(by.unwrap_or_else(|| "somebody".to_owned())))
    }

    /// Whether a record of this process is there, with this session's lease.
    pub async fn has(&mut self, record: &Record) -> Result<bool, Trouble> {
        let key = keys::of_record(&self.prefix, record);
        let found = answer(self.client.get(key, None)).await?;
        let is_ours =
            |pair: &KeyValue| pair.lease() == self.lease && pair.value() == record.to_string().as_bytes();
        Ok(found.kvs().first().is_some_and(is_ours))
    }

    /// Removes a record of this process.
    pub async fn withdraw(&mut self, record: &Record) -> Result<(), Trouble> {
        let (key, text) = (keys::of_record(&self.prefix, record), record.to_string());
        let ours = Compare::value(key.clone(), CompareOp::Equal, text);
        let delete = Txn::new().when(vec![ours]).and_then(vec![TxnOp::delete(key, None)]);
        answer(self.client.txn(delete)).await.map(drop)
    }

    /// Removes all records of this process.
    pub async fn withdraw_all(&mut self) {
        let _expires_otherwise = answer(self.client.lease_revoke(self.lease)).await;
    }

    /// Looks for a name, and watches it from then on.
    pub async fn find(&mut self, service: &ServiceName) -> Result<News, Trouble> {
        let all = keys::of_name(&self.prefix, service);
        let options = GetOptions::new().with_prefix().with_limit(MEMBERS_MAX as i64);
        let found = match answer(self.client.get(all.clone(), Some(options))).await {
            Ok(found) => found,
            Err(Trouble { reason, is_broken: false }) => {
                return Ok(News::Failed { service: service.clone(), reason: format!("{all}: {reason}") });
            }
            Err(trouble) => return Err(trouble),
        };
        if self.watched.len() < NAMES_MAX && !self.watched.contains(service) {
            let revision = found.header().map_or(0, |header| header.revision() + 1);
            self.watch(all, WatchOptions::new().with_prefix().with_start_revision(revision)).await?;
            self.watched.insert(service.clone());
        }
        Ok(keys::read(&self.prefix, service, found.kvs()))
    }

    async fn watch(&mut self, key: String, options: WatchOptions) -> Result<(), Trouble> {
        if let Some(watch) = &mut self.watch {
            return answer(watch.watch(key, Some(options))).await;
        }
        let (watch, stream) = answer(self.client.watch(key, Some(options))).await?.split();
        self.watch = Some(watch);
        self.tasks.spawn(follow(stream, self.prefix.clone(), self.events.clone()));
        Ok(())
    }
}

/// Keeps a lease alive, until that fails.
async fn keep_alive(mut client: Client, lease: i64, ttl_s: i64, events: Sender<Event>) {
    let pause = Duration::from_millis(ttl_s.unsigned_abs() * 1_000 / 4);
    let reason = match answer(client.lease_keep_alive(lease)).await {
        Err(trouble) => trouble.reason,
        Ok((mut keeper, mut stream)) => loop {
            sleep(pause).await;
            if let Err(trouble) = answer(keeper.keep_alive()).await {
                break trouble.reason;
            }
            match answer(stream.message()).await {
                Ok(Some(kept)) if kept.ttl() > 0 => {}
                Ok(Some(_)) => break "the lease has expired".to_owned(),
                Ok(None) => break "the server has ended the stream".to_owned(),
                Err(trouble) => break trouble.reason,
            }
        },
    };
    let _session_ended = events.send(Event::Failed(reason)).await;
}

/// Reports changes, until that fails.
async fn follow(mut stream: WatchResponseStream, prefix: String, events: Sender<Event>) {
    let reason = loop {
        match stream.message().await {
            Ok(Some(response)) if response.canceled() => {
                break format!("the watch was ended: {}", response.cancel_reason());
            }
            Ok(Some(response)) => {
                let changed: BTreeSet<ServiceName> = response
                    .events()
                    .iter()
                    .filter_map(|event| event.kv())
                    .filter_map(|pair| keys::name_of(&prefix, pair.key()))
                    .collect();
                if !changed.is_empty() && events.send(Event::Changed(changed)).await.is_err() {
                    return;
                }
            }
            Ok(None) => break "the server has ended the watch".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    let _session_ended = events.send(Event::Failed(reason)).await;
}
