//! The one thread that changes the pool: it takes what has come, does all of it, stores it in one transaction, and only
//! then answers. What could not be stored has not happened. Where several controllers share a pool it does so only as
//! long as this one leads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use orion_pool::pool::{Event, Pool, Settings};
use orion_pool::{Allocation, AllocationId, Ask, Time, Why};
use orion_transport::lease::MasterKey;
use tokio::sync::{broadcast, oneshot, watch};
use tracing::{error, info, warn};

use crate::claimed::Claimed;
use crate::lines::Lines;
use crate::store::{Campaign, Failed, Store};

/// How often time alone is looked at.
const TICK: Duration = Duration::from_millis(200);
/// Between two looks at who leads, and whether a store that could not be written can be.
const LOOK: Duration = Duration::from_millis(500);
/// Operations of one transaction. Each waits for all of them.
const BATCH_MAX: usize = 1024;
/// Events that somebody who watches may be behind.
const WATCH_MAX: usize = 4096;

/// The pool, as operations get it.
pub struct Desk {
    pub pool: Pool,
    pub now: Time,
    /// Of it the keys of leases are made.
    pub master: MasterKey,
    /// Nodes that this controller's clock was told to: by it they judge leases.
    pub told_time: BTreeSet<String>,
    /// Bytes that an allocation's vGPUs on a node use, as that node says. Not stored: it is said again soon.
    pub used: HashMap<AllocationId, BTreeMap<String, Vec<u64>>>,
    /// What their sessions do, by node and in its words. Not stored either.
    pub reports: HashMap<AllocationId, BTreeMap<String, String>>,
    waiters: HashMap<AllocationId, (Ask, oneshot::Sender<Waited>)>,
    /// Why nothing can be stored, since the last time that something was to be.
    pub trouble: Option<String>,
}

/// What becomes of one who waits.
pub enum Waited {
    Granted(Allocation),
    /// Why not, in words.
    InVain(String),
    /// The same as for who asks now.
    Refused(Refusal),
}

/// Why nothing is done with the pool now. Nothing of what was asked has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The store can be neither written nor read; in words.
    Store(String),
    /// Another controller leads; where it listens.
    Follows(String),
    /// None does, as far as is known; in words.
    NoLeader(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Store(why) => f.write_str(why),
            Refusal::Follows(leader) => {
                write!(f, "this controller does not lead the pool; the one at {leader} does, ask that")
            }
            Refusal::NoLeader(why) => write!(f, "no controller leads the pool at the moment: {why}; ask again"),
        }
    }
}

/// For those who watch.
#[derive(Debug, Clone)]
pub enum News {
    Event(Event),
    /// There is nothing more to see here.
    Over(Refusal),
}

impl Desk {
    /// Who waits for this allocation hears of it.
    pub fn await_grant(&mut self, id: AllocationId, ask: Ask) -> oneshot::Receiver<Waited> {
        let (tell, told) = oneshot::channel();
        self.waiters.insert(id, (ask, tell));
        told
    }

    /// What a node says of allocations that it has vGPUs of; of others it knows nothing.
    pub fn hear_usage(&mut self, node: &str, used: Vec<(AllocationId, Vec<u64>)>) {
        let pool = &self.pool;
        let of_reserve: BTreeSet<AllocationId> = pool.lent_by(node).map(|a| a.id).collect();
        let is_there = |id| pool.allocation(id).is_some_and(|a| a.is_on(node)) || of_reserve.contains(&id);
        let known = used.into_iter().filter(|(id, _)| is_there(*id));
        for (id, used) in known {
            self.used.entry(id).or_default().insert(node.to_owned(), used);
        }
    }

    /// Likewise, of sessions.
    pub fn hear_reports(&mut self, node: &str, reports: Vec<(AllocationId, String)>) {
        let pool = &self.pool;
        self.reports.retain(|id, of_nodes| {
            let Some(allocation) = pool.allocation(*id) else { return false };
            of_nodes.retain(|node, _| allocation.is_on(node));
            true
        });
        let is_there = |id| pool.allocation(id).is_some_and(|a| a.is_on(node));
        for (id, text) in reports.into_iter().filter(|(id, text)| is_there(*id) && !text.is_empty()) {
            self.reports.entry(id).or_default().insert(node.to_owned(), text);
        }
    }

    /// Whoever waits and has gone is in nobody's way any more.
    fn forget_who_left(&mut self) {
        let gone: BTreeSet<AllocationId> =
            self.waiters.iter().filter(|(_, (_, tell))| tell.is_closed()).map(|(id, _)| *id).collect();
        if !gone.is_empty() {
            self.waiters.retain(|id, _| !gone.contains(id));
            self.pool.wait_no_more(self.now, &gone);
        }
    }
}

type Reply = Box<dyn FnOnce(Result<(), Refusal>) + Send>;
/// Answers for itself if it is refused.
type Operation = Box<dyn FnOnce(Result<&mut Desk, &Refusal>) -> Option<Reply> + Send>;

enum Message {
    Do(Operation),
    /// Another controller may lead from now on.
    End(oneshot::Sender<()>),
}

/// How the rest of the program reaches the desk.
#[derive(Clone)]
pub struct Counter {
    messages: Sender<Message>,
    news: broadcast::Sender<News>,
    /// What connections to this controller claim.
    pub claimed: Claimed,
    /// Whether this controller leads, and can change the pool.
    pub leads: watch::Receiver<bool>,
}

/// Starts the thread. It ends the process if the desk should fall over: a pool without one hands out nothing.
pub fn open(settings: Settings, store: Box<dyn Store>) -> Result<Counter, String> {
    let (messages, inbox) = channel();
    let (news, _) = broadcast::channel(WATCH_MAX);
    let (tell_leads, leads) = watch::channel(false);
    let claimed = Claimed::default();
    let mut serving = Serving {
        desk: None,
        store,
        settings,
        clock: Instant::now(),
        inbox,
        news: news.clone(),
        claimed: claimed.clone(),
        leads: tell_leads,
        standing: Standing::Follows(Refusal::NoLeader("this one has just been started".to_owned())),
        looked: None,
        unheard: Vec::new(),
        lines: Lines::default(),
        ending: None,
    };
    if let Err(Refusal::Store(why)) = serving.ready()? {
        return Err(why);
    }
    serving.tell_who_leads();
    std::thread::Builder::new()
        .name("desk".into())
        .spawn(move || match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| serving.run())) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                error!(why, "ending");
                eprintln!("orion-controller: {why}");
                std::process::exit(1);
            }
            Err(_) => {
                error!("the pool contradicts itself; ending, so that it is read from the store again");
                std::process::exit(70);
            }
        })
        .map_err(|e| format!("starting a thread failed: {e}"))?;
    Ok(Counter { messages, news, claimed, leads })
}

impl Counter {
    /// Does something with the pool, and answers when it is stored; or says why it could not be, and then it has not
    /// happened.
    pub async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (tell, told) = oneshot::channel();
        let operation: Operation = Box::new(move |desk| match desk {
            Ok(desk) => {
                let answer = work(desk);
                Some(Box::new(move |stored| drop(tell.send(stored.map(|()| answer)))))
            }
            Err(refusal) => {
                drop(tell.send(Err(refusal.clone())));
                None
            }
        });
        let ended = || Refusal::NoLeader("this controller is ending".to_owned());
        self.messages.send(Message::Do(operation)).map_err(|_| ended())?;
        told.await.map_err(|_| ended())?
    }

    /// Has another controller lead, if there is one. Nothing is answered after that.
    pub async fn end(&self) {
        let (tell, told) = oneshot::channel();
        if self.messages.send(Message::End(tell)).is_ok() {
            let _ = told.await;
        }
    }

    pub fn watch(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }
}

enum Standing {
    Leads,
    /// What is in memory is not what is stored, and nothing may be done with it.
    IsStale,
    Follows(Refusal),
}

struct Serving {
    /// There from the first time on that this controller leads.
    desk: Option<Desk>,
    store: Box<dyn Store>,
    settings: Settings,
    clock: Instant,
    inbox: Receiver<Message>,
    news: broadcast::Sender<News>,
    claimed: Claimed,
    leads: watch::Sender<bool>,
    standing: Standing,
    /// When it was asked last who leads, or whether the store can be written.
    looked: Option<Instant>,
    /// Granted to clients that had gone.
    unheard: Vec<AllocationId>,
    lines: Lines,
    /// Who has said that this is the end.
    ending: Option<oneshot::Sender<()>>,
}

impl Serving {
    fn run(mut self) -> Result<(), String> {
        let mut ticked = Instant::now();
        loop {
            let first = match self.inbox.recv_timeout(TICK.saturating_sub(ticked.elapsed())) {
                Ok(Message::Do(operation)) => Some(operation),
                Ok(Message::End(tell)) => {
                    self.ending = Some(tell);
                    None
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            if let Some(tell) = self.ending.take() {
                self.store.resign();
                let _ = tell.send(());
                return Ok(());
            }
            let ticks = ticked.elapsed() >= TICK;
            if ticks {
                ticked = Instant::now();
            }
            match self.ready()? {
                Ok(()) => self.batch(first, ticks),
                Err(refusal) => drop(first.and_then(|operation| operation(Err(&refusal)))),
            }
            self.tell_who_leads();
        }
    }

    fn tell_who_leads(&self) {
        let leads = matches!(self.standing, Standing::Leads);
        self.leads.send_if_modified(|told| std::mem::replace(told, leads) != leads);
    }

    /// All that has come, in one transaction.
    fn batch(&mut self, first: Option<Operation>, ticks: bool) {
        let desk = self.desk.as_mut().expect("who leads has a pool");
        desk.now = self.clock.elapsed().as_millis() as Time;
        for id in std::mem::take(&mut self.unheard) {
            desk.pool.release(desk.now, id, Why::NotConfirmed);
        }
        let mut replies: Vec<Reply> = Vec::new();
        let mut next = first;
        while let Some(operation) = next.take() {
            replies.extend(operation(Ok(&mut *desk)));
            next = match (replies.len() < BATCH_MAX).then(|| self.inbox.try_recv()) {
                Some(Ok(Message::Do(operation))) => Some(operation),
                Some(Ok(Message::End(tell))) => {
                    self.ending = Some(tell);
                    None
                }
                _ => None,
            };
        }
        if ticks {
            desk.forget_who_left();
            desk.pool.tick(desk.now);
        }
        let changes = desk.pool.take_changes();
        let stored = match changes.is_empty() && replies.is_empty() {
            true => Ok(()),
            false => self.store.write(&changes),
        };
        let told = match stored {
            Ok(()) => {
                self.publish(!changes.is_empty());
                Ok(())
            }
            Err(failed) => Err(self.take_back(failed)),
        };
        replies.into_iter().for_each(|reply| reply(told.clone()));
    }

    /// Whether something can be done with the pool: it is read again if it has to be, and who leads is asked if it is
    /// time. The error is for good.
    fn ready(&mut self) -> Result<Result<(), Refusal>, String> {
        if !matches!(self.standing, Standing::Follows(_)) && self.store.is_deposed() {
            self.take_back(Failed::Deposed(None));
        }
        let is_time = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        match &self.standing {
            Standing::Leads if is_time => Ok(self.probe()),
            Standing::Leads => Ok(Ok(())),
            Standing::IsStale => self.read(),
            Standing::Follows(refusal) if !is_time => Ok(Err(refusal.clone())),
            Standing::Follows(_) => {
                self.looked = Some(Instant::now());
                self.campaign()
            }
        }
    }

    fn campaign(&mut self) -> Result<Result<(), Refusal>, String> {
        // Who could not sign what the others sign does not lead.
        let campaign = match self.store.master_key() {
            Ok(master) => self.store.campaign().map(|campaign| (campaign, master)),
            Err(Failed::ForGood(why)) => return Err(why),
            Err(Failed::Store(why)) => Err(why),
            Err(Failed::Deposed(_)) => Err("another controller was faster".to_owned()),
        };
        let refusal = match campaign {
            Ok((Campaign::Leads, master)) => {
                let pool = Pool::new(self.settings.clone());
                let (told_time, waiters) = (BTreeSet::new(), HashMap::new());
                self.desk = Some(Desk {
                    pool,
                    now: 0,
                    master,
                    told_time,
                    used: HashMap::new(),
                    reports: HashMap::new(),
                    waiters,
                    trouble: None,
                });
                return self.read();
            }
            Ok((Campaign::Another(leader), _)) => Refusal::Follows(leader),
            Err(why) => Refusal::NoLeader(why),
        };
        self.follow(refusal.clone());
        Ok(Err(refusal))
    }

    /// Each time that it is something else, one line.
    fn follow(&mut self, refusal: Refusal) {
        match (&self.standing, &refusal) {
            (Standing::Follows(before), now) if before == now => {}
            (_, Refusal::Follows(leader)) => info!("the controller at {leader} leads the pool; this one follows"),
            (_, why) => warn!("{why}"),
        }
        self.standing = Standing::Follows(refusal);
    }

    fn read(&mut self) -> Result<Result<(), Refusal>, String> {
        let now = self.clock.elapsed().as_millis() as Time;
        let settings = self.settings.clone();
        let kept = match self.store.read() {
            Ok(kept) => kept,
            Err(Failed::ForGood(why)) => return Err(why),
            Err(failed) => {
                let refusal = self.refusal(failed);
                return Ok(Err(refusal));
            }
        };
        let desk = self.desk.as_mut().expect("who reads it leads");
        desk.pool = match kept.restore(settings, now) {
            Ok(pool) => pool,
            Err(why) => {
                self.standing = Standing::IsStale;
                return Ok(Err(Refusal::Store(format!("reading the store failed: {why}"))));
            }
        };
        desk.now = now;
        desk.pool.miss_clients(now, |id| self.claimed.has(id));
        // Ends of which nobody was told, as they could not be stored; what there is of reserves is said again.
        desk.used.retain(|id, _| desk.pool.allocation(*id).is_some());
        if !matches!(self.standing, Standing::IsStale) {
            let (nodes, allocations) = (desk.pool.nodes().count(), desk.pool.allocations().count());
            info!(nodes, allocations, "the store is read; this controller leads the pool");
        }
        self.standing = Standing::Leads;
        Ok(Ok(()))
    }

    /// A store that could not be written is tried, so that somebody hears when it can be.
    fn probe(&mut self) -> Result<(), Refusal> {
        self.looked = Some(Instant::now());
        let Some(was) = self.desk.as_ref().and_then(|desk| desk.trouble.clone()) else { return Ok(()) };
        self.store.probe().map_err(|failed| self.take_back(failed))?;
        info!(was, "the store can be written again");
        self.desk.as_mut().expect("who leads has a pool").trouble = None;
        Ok(())
    }

    /// What has happened is told: to who waits, to the log, to who watches.
    fn publish(&mut self, has_written: bool) {
        let desk = self.desk.as_mut().expect("who leads has a pool");
        if let Some(why) = desk.trouble.take_if(|_| has_written) {
            info!(was = why, "the store can be written again");
        }
        for event in desk.pool.take_events() {
            let tenant = match &event {
                Event::Waits { id } => desk.waiters.get(id).map(|(ask, _)| ask.tenant.as_str()),
                Event::Granted { id } => desk.pool.allocation(*id).map(|a| a.ask.tenant.as_str()),
                _ => None,
            };
            if let Some(unsaid) = self.lines.says(&event, tenant) {
                if unsaid > 0 {
                    warn!(unsaid, "lines of asks were left out, for there were too many; `orionctl watch` shows all");
                }
                log(&event, &desk.pool);
            }
            if let Event::Over { id, .. } | Event::BackAtNode { id, .. } = &event {
                desk.used.remove(id);
            }
            let waited = match event {
                Event::Granted { id } => desk.waiters.remove(&id).and_then(|(_, tell)| {
                    let granted = desk.pool.allocation(id)?.clone();
                    Some((tell, Waited::Granted(granted)))
                }),
                Event::GaveUp { id } => {
                    (desk.waiters.remove(&id)).map(|(ask, tell)| (tell, Waited::InVain(desk.pool.why_in_vain(&ask))))
                }
                _ => None,
            };
            if let Some((tell, waited)) = waited
                && let Err(Waited::Granted(a)) = tell.send(waited)
            {
                self.unheard.push(a.id);
            }
            // Without anybody who watches there is nobody to tell.
            let _ = self.news.send(News::Event(event));
        }
    }

    /// Nothing of it has happened: the pool is what the store says, or another controller's.
    fn take_back(&mut self, failed: Failed) -> Refusal {
        let refusal = self.refusal(failed);
        if let Some(desk) = &mut self.desk {
            desk.pool.take_events();
            for (_, (_, tell)) in desk.waiters.drain() {
                let _ = tell.send(Waited::Refused(refusal.clone()));
            }
        }
        if matches!(self.standing, Standing::IsStale)
            && let Ok(Err(Refusal::Store(why))) = self.read()
        {
            warn!(why, "and it cannot be read either");
        }
        refusal
    }

    /// How this controller stands after that.
    fn refusal(&mut self, failed: Failed) -> Refusal {
        match failed {
            Failed::Store(why) | Failed::ForGood(why) => {
                if let Some(desk) = &mut self.desk {
                    if desk.trouble.as_deref() != Some(&why) {
                        error!(why, "nothing can be changed until the store can be written");
                    }
                    desk.trouble = Some(why.clone());
                }
                self.standing = Standing::IsStale;
                Refusal::Store(why)
            }
            Failed::Deposed(leader) => {
                let refusal = match leader {
                    Some(leader) => Refusal::Follows(leader),
                    None => Refusal::NoLeader("this one has led until now".to_owned()),
                };
                warn!("this controller steps down: it has not been heard of in time, or its key was removed");
                self.unheard.clear();
                self.lines = Lines::default();
                self.looked = None;
                self.follow(refusal.clone());
                let _ = self.news.send(News::Over(refusal.clone()));
                refusal
            }
        }
    }
}

/// One line each, in the original's words where it had any.
fn log(event: &Event, pool: &Pool) {
    match event {
        Event::NodeJoined { node } => info!("Adding new host for NVidia GPU : {node}"),
        Event::GpuAdded { node, uuid, name } => info!("Adding new NVidia GPU to host {node} ({uuid}; {name})"),
        Event::GpuGone { node, uuid } => warn!("GPU {uuid} of host {node} is not there any more"),
        Event::NodeLost { node } => warn!("host {node} is not heard of; it gets nothing new"),
        Event::NodeBack { node } => info!("host {node} is back"),
        Event::NodeForgotten { node } => info!("host {node} is forgotten"),
        Event::Drains { node, is_draining: true } => info!("host {node} gets nothing new from now on"),
        Event::Drains { node, is_draining: false } => info!("host {node} is taken back"),
        Event::Granted { id } => {
            let Some(a) = pool.allocation(*id) else { return };
            let places: Vec<String> = a.places.iter().map(|p| format!("{}/{}/{}", p.node, p.number, p.slot)).collect();
            info!(tenant = a.ask.tenant, client = a.ask.client, "Return formated resource : {id},{}", places.join(","));
        }
        Event::Confirmed { id } => info!("Confirm allocation {id}"),
        Event::Over { id, why } => info!("allocation {id} is over: {why:?}"),
        Event::Waits { id } => info!("{id} waits for room"),
        Event::GaveUp { id } => info!("{id} waits no more"),
        Event::LentByNode { node, id } => {
            let of = pool.lent_by_nodes().find(|a| a.id == *id).map(|a| (&a.ask.tenant, &a.ask.client));
            info!("host {node} has lent {id} of its own reserve, to {of:?}");
        }
        Event::BackAtNode { node, id } => info!("{id} is back in the reserve of host {node}"),
    }
}
