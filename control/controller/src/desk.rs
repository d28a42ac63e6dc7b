//! The one thread that changes the pool: it takes what has come, does all of it, stores it in one transaction, and only
//! then answers. What could not be stored has not happened.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use orion_pool::pool::{Event, Pool, Settings};
use orion_pool::{Allocation, AllocationId, Ask, Time, Why};
use tokio::sync::{broadcast, oneshot};
use tracing::{error, info, warn};

use crate::store::Store;

/// How often time alone is looked at.
const TICK: Duration = Duration::from_millis(200);
/// Operations of one transaction. Each waits for all of them.
const BATCH_MAX: usize = 1024;
/// Events that somebody who watches may be behind.
const WATCH_MAX: usize = 4096;

/// The pool, as operations get it.
pub struct Desk {
    pub pool: Pool,
    pub now: Time,
    waiters: HashMap<AllocationId, (Ask, oneshot::Sender<Waited>)>,
    /// Why nothing can be stored, since the last time that something was to be.
    pub trouble: Option<String>,
}

/// What becomes of one who waits.
pub enum Waited {
    Granted(Allocation),
    /// Why not, in words.
    InVain(String),
}

impl Desk {
    /// Who waits for this allocation hears of it.
    pub fn await_grant(&mut self, id: AllocationId, ask: Ask) -> oneshot::Receiver<Waited> {
        let (tell, told) = oneshot::channel();
        self.waiters.insert(id, (ask, tell));
        told
    }

    /// Whoever waits and has gone is in nobody's way any more.
    fn forget_who_left(&mut self) {
        let gone: Vec<AllocationId> =
            self.waiters.iter().filter(|(_, (_, tell))| tell.is_closed()).map(|(id, _)| *id).collect();
        for id in gone {
            self.waiters.remove(&id);
            self.pool.release(self.now, id, Why::Released);
        }
    }
}

type Reply = Box<dyn FnOnce(Result<(), String>) + Send>;
type Operation = Box<dyn FnOnce(&mut Desk) -> Reply + Send>;

/// How the rest of the program reaches the desk.
#[derive(Clone)]
pub struct Counter {
    operations: Sender<Operation>,
    events: broadcast::Sender<Event>,
}

/// Starts the thread. It ends the process if the desk should fall over: a pool without one hands out nothing.
pub fn open(settings: Settings, mut store: Store) -> Result<Counter, String> {
    let clock = Instant::now();
    let pool = store.read(settings.clone(), 0)?;
    info!(nodes = pool.nodes().count(), allocations = pool.allocations().count(), "the store is read");
    let (operations, inbox) = channel();
    let (events, _) = broadcast::channel(WATCH_MAX);
    let desk = Desk { pool, now: 0, waiters: HashMap::new(), trouble: None };
    let serving =
        Serving { desk, store, settings, clock, inbox, events: events.clone(), is_stale: false, unheard: Vec::new() };
    std::thread::Builder::new()
        .name("desk".into())
        .spawn(move || {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| serving.run()));
            if ended.is_err() {
                error!("the pool contradicts itself; ending, so that it is read from the store again");
                std::process::exit(70);
            }
        })
        .map_err(|e| format!("starting a thread failed: {e}"))?;
    Ok(Counter { operations, events })
}

impl Counter {
    /// Does something with the pool, and answers when it is stored; or says why it could not be, and then it has not
    /// happened.
    pub async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (tell, told) = oneshot::channel();
        let operation: Operation = Box::new(move |desk| {
            let answer = work(desk);
            Box::new(move |stored| drop(tell.send(stored.map(|()| answer))))
        });
        let closed = || "the store can be neither written nor read; the controller's log says why".to_owned();
        self.operations.send(operation).map_err(|_| closed())?;
        told.await.map_err(|_| closed())?
    }

    pub fn watch(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }
}

struct Serving {
    desk: Desk,
    store: Store,
    settings: Settings,
    clock: Instant,
    inbox: Receiver<Operation>,
    events: broadcast::Sender<Event>,
    /// What is in memory is not what is stored, and nothing may be done with it.
    is_stale: bool,
    /// Granted to clients that had gone.
    unheard: Vec<AllocationId>,
}

impl Serving {
    fn run(mut self) {
        let mut ticked = Instant::now();
        loop {
            let mut replies: Vec<Reply> = Vec::new();
            let first = match self.inbox.recv_timeout(TICK.saturating_sub(ticked.elapsed())) {
                Ok(operation) => Some(operation),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.desk.now = self.clock.elapsed().as_millis() as Time;
            if self.freshen().is_err() {
                // With the operations goes what would have answered: the callers hear that.
                drop(first);
                self.inbox.try_iter().for_each(drop);
                continue;
            }
            for id in std::mem::take(&mut self.unheard) {
                self.desk.pool.release(self.desk.now, id, Why::NotConfirmed);
            }
            for operation in first.into_iter().chain(self.inbox.try_iter().take(BATCH_MAX)) {
                replies.push(operation(&mut self.desk));
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.desk.forget_who_left();
                self.desk.pool.tick(self.desk.now);
            }
            let stored = self.store.write(&self.desk.pool.take_changes());
            match &stored {
                Ok(()) => self.publish(),
                Err(why) => self.take_back(why),
            }
            replies.into_iter().for_each(|reply| reply(stored.clone()));
        }
    }

    /// What has happened is told: to who waits, to the log, to who watches.
    fn publish(&mut self) {
        if let Some(why) = self.desk.trouble.take() {
            info!(was = why, "the store can be written again");
        }
        for event in self.desk.pool.take_events() {
            log(&event, &self.desk.pool);
            let waited = match event {
                Event::Granted { id } => self.desk.waiters.remove(&id).and_then(|(_, tell)| {
                    let granted = self.desk.pool.allocation(id)?.clone();
                    Some((tell, Waited::Granted(granted)))
                }),
                Event::GaveUp { id } => (self.desk.waiters.remove(&id))
                    .map(|(ask, tell)| (tell, Waited::InVain(self.desk.pool.why_not(&ask)))),
                _ => None,
            };
            if let Some((tell, waited)) = waited
                && let Err(Waited::Granted(a)) = tell.send(waited)
            {
                self.unheard.push(a.id);
            }
            // Without anybody who watches there is nobody to tell.
            let _ = self.events.send(event);
        }
    }

    /// Nothing of it has happened: the pool is what the store says.
    fn take_back(&mut self, why: &str) {
        if self.desk.trouble.as_deref() != Some(why) {
            error!(why, "nothing can be changed until the store can be written");
        }
        self.desk.trouble = Some(why.to_owned());
        self.desk.pool.take_events();
        for (_, (_, tell)) in self.desk.waiters.drain() {
            let _ = tell.send(Waited::InVain(why.to_owned()));
        }
        self.is_stale = true;
        if let Err(e) = self.freshen() {
            warn!(why = e, "and it cannot be read either");
        }
    }

    /// Takes the pool from the store again, if what is in memory is not that.
    fn freshen(&mut self) -> Result<(), String> {
        if self.is_stale {
            self.desk.pool = self.store.read(self.settings.clone(), self.desk.now)?;
            self.is_stale = false;
        }
        Ok(())
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
    }
}
