//! How this process reaches its worker.
//!
//! The work is done by `orion_transport::carrier`; this module says where the server is and who we are.

// UNSAFETY: closes descriptors in a forked child, where nothing else may be touched.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use orion_ring::{Heap, Memory};
use orion_tls::is_loopback;
use orion_tls::trust::Trust;
use orion_transport::carrier::{self, Death, Listener};
use orion_transport::client::wanted::Wanted;
use orion_transport::client::{Caller, NoSession, Server, Tuning, log, original};
use orion_transport::environment;
use orion_transport::holes::Holes;
use orion_transport::kept::Identity;
use orion_transport::proof::Token;
use orion_transport::socket::objection_to_folder;
use orion_transport::thread::Uncancelled;
use orion_wire::Pages;
use orion_wire::address;
use orion_wire::hello::Welcome;
use orion_wire::left::Left;
use orion_wire::message::carrier::DEVICES_MAX;
use orion_wire::text::acts;
use orion_wire::view::{Offer, Program, Use, View};

use crate::lease::ask;
use crate::lease::beside;
use crate::lease::granted::{Granted, Part};
use crate::state::session::{SESSIONS_MAX, Session};

/// An oriond that is started again is there again, and the controller knows it, within a few seconds. A node that is
/// gone is out of the pool after ten.
const AGAIN_MAX: Duration = Duration::from_secs(15);
/// Between two times of asking the controller for other vGPUs: the first one, and the longest.
const AGAIN_PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];

/// What the environment says about the server and this program.
pub struct Settings {
    pub reach: Reach,
    pub caller: Caller,
    pub tuning: Tuning,
    pub verbose: bool,
}

/// Where the session is to be had.
pub enum Reach {
    Server(Server),
    /// Where the controller of a pool says.
    Pool(Box<Wanted>),
}

/// What the session is made of.
pub struct Attached {
    /// Where it is, for messages.
    pub server: String,
    pub welcome: Welcome,
    pub memory: Memory,
    pub heap: Heap,
    /// Whether the memory is the worker's own or a copy that the carrier keeps in step.
    pub pages: Pages,
    pub connection: Arc<dyn carrier::Carrier>,
}

/// Tells this library from NVIDIA's: whoever looks for a real driver passes over files that export it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol of the library, not a constant of the program")]
pub static orion_shim_marker: u8 = 1;

/// Attaches to a worker, or to one on each node of a pool that has given something. The error says what was being done,
/// with which value, and what to try.
pub fn attach(settings: &Settings, listeners: [Listener; SESSIONS_MAX]) -> Result<Vec<Attached>, NoSession> {
    match &settings.reach {
        Reach::Server(server) => {
            let [listener, ..] = listeners;
            let attached = carrier::attach(server, &settings.caller, settings.tuning, listener)?;
            log::has(format!("session {}", attached.welcome.session));
            Ok(vec![told(settings, attached, server)])
        }
        Reach::Pool(wanted) => patiently(wanted, || attach_to_pool(settings, wanted, listeners)),
    }
}

/// What the controller knows of a node is a moment old: there its oriond may have ended meanwhile, or have been started
/// again. Then the program asks for others.
fn patiently<T>(wanted: &Wanted, once: impl Fn() -> Result<T, NoSession>) -> Result<T, NoSession> {
    let patience = wanted.wait_for_controller().min(AGAIN_MAX);
    let until = Instant::now() + patience;
    let ([mut pause, longest], mut has_said) = (AGAIN_PAUSES, false);
    loop {
        let no = match once() {
            // The node that it was given before is of no use now, and the pool has no room without it.
            Err(no) if no.may_pass || has_said && no.refused.is_none() => no,
            done => return done,
        };
        if Instant::now() >= until {
            return Err(no);
        }
        if !std::mem::replace(&mut has_said, true) {
            let seconds = patience.as_secs();
            crate::say!("{}; asking the controller again, for {seconds} s at most (ORION_WAIT)", no.text);
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(longest);
    }
}

fn attach_to_pool(
    settings: &Settings,
    wanted: &Wanted,
    listeners: [Listener; SESSIONS_MAX],
) -> Result<Vec<Attached>, NoSession> {
    let mut granted = granted(settings, wanted)?;
    let mut all: Vec<Attached> = Vec::new();
    for (part, listener) in granted.parts.iter().zip(listeners) {
        tell_idle_devices(&part.server, settings.verbose)?;
        let attached = leased(settings, wanted, part, granted.is_of_reserve()).map_err(NoSession::from);
        let attached = attached.and_then(|leased| carrier::attach(&part.server, &leased, settings.tuning, listener));
        match attached {
            Ok(attached) => all.push(told(settings, attached, &part.server)),
            Err(no) => {
                all.iter().for_each(|begun| begun.connection.close());
                return Err(given_back(wanted, &granted, part, no));
            }
        }
    }
    let devices = all.iter().map(|a| a.welcome.devices.len()).sum::<usize>();
    if devices > DEVICES_MAX {
        let text = format!("the pool gave {devices} vGPUs, and one program sees {DEVICES_MAX} at most");
        return Err(given_back(wanted, &granted, &granted.parts[0], text.into()));
    }
    log::has(format!("allocation ID {}", granted.allocation));
    granted.claim.has_begun();
    if let Err(e) = beside::leave(wanted, granted, settings.caller.pid, settings.caller.home) {
        crate::say!("making a memfd failed: {e}; nvidia-smi beside this program does not see its vGPUs");
    }
    Ok(all)
}

/// What a session is made of, which the user is told.
fn told(settings: &Settings, a: carrier::Attached, server: &Server) -> Attached {
    let device = a.welcome.devices.first().map_or("none", |d| d.name.as_str());
    let transport = server.transport();
    let security = a.security.words();
    let description = format!("transport {transport}{security}, device {device}, session {}", a.welcome.session);
    log::tell(settings.verbose, format_args!("{description}"));
    let (pages, server) = (a.carrier.pages(), server.to_string());
    if pages.are_separate() && Holes::of(&a.memory).is_none() {
        let why = "pinned memory that kernels use in place is compared whole: only Linux 6.4 and newer tell the pages \
                   of it that nobody has written to";
        log::tell(settings.verbose, format_args!("{why}"));
    }
    Attached { server, welcome: a.welcome, memory: a.memory, heap: a.heap, pages, connection: a.carrier }
}

/// The vGPUs that a session would have, by server, without one. In a pool they are those of the job that this process
/// is in, or those that would be given now; nothing is taken for it.
pub fn offers(settings: &Settings) -> Result<Vec<Offer>, NoSession> {
    let offers = |views: Vec<View>| views.into_iter().map(|view| view.offer).collect();
    match &settings.reach {
        Reach::Server(server) => Ok(vec![carrier::view_of(server, &settings.caller)?.offer]),
        Reach::Pool(wanted) => {
            let of_program = |left: Left| views(settings, wanted, &beside::parts(&left)?, left.is_of_reserve).ok();
            if let Some(views) = beside::find(wanted, settings.caller.home).into_iter().find_map(of_program) {
                return Ok(offers(views));
            }
            let of_would = || {
                let would = ask::look(wanted, &settings.caller.program)?;
                views(settings, wanted, &would.parts, would.is_of_reserve())
            };
            patiently(wanted, of_would).map(offers)
        }
    }
}

/// Which programs of this user have sessions, in a pool those of the job that this process is in.
pub fn programs(settings: &Settings) -> Result<Vec<Program>, NoSession> {
    match &settings.reach {
        Reach::Server(server) => Ok(carrier::view_of(server, &settings.caller)?.programs),
        Reach::Pool(wanted) => {
            let mut programs = Vec::new();
            for left in beside::find(wanted, settings.caller.home) {
                let Some(parts) = beside::parts(&left) else { continue };
                match views(settings, wanted, &parts, left.is_of_reserve) {
                    Ok(views) => programs.extend(program_of(left.pid, views)),
                    // Its server is another one by now, so its session is over.
                    Err(no) if no.refused.is_some() => {}
                    Err(no) => return Err(no),
                }
            }
            Ok(programs)
        }
    }
}

/// What each node says of what it has given.
fn views(settings: &Settings, wanted: &Wanted, parts: &[Part], is_of_reserve: bool) -> Result<Vec<View>, NoSession> {
    let view = |part: &Part| {
        let leased = leased(settings, wanted, part, is_of_reserve).map_err(NoSession::from)?;
        carrier::view_of(&part.server, &leased)
    };
    parts.iter().map(view).collect()
}

/// One program with vGPUs of several nodes counts one node's behind another's. Nothing if it has no session any more.
fn program_of(pid: u32, views: Vec<View>) -> Option<Program> {
    let mut program: Option<Program> = None;
    let mut before = 0;
    for View { offer, programs } in views {
        for Program { name, vgpus, .. } in programs {
            let whole = program.get_or_insert_with(|| Program { pid, name, vgpus: Vec::new() });
            whole.vgpus.extend(vgpus.into_iter().map(|vgpu| Use { device: vgpu.device + before, ..vgpu }));
        }
        before += offer.devices.len() as u32;
    }
    program
}

/// vGPUs of the pool.
fn granted(settings: &Settings, wanted: &Wanted) -> Result<Granted, NoSession> {
    let granted = ask::ask(wanted, &settings.caller.program)?;
    // In the original's words.
    let (allocation, group) = (&granted.allocation, &wanted.group);
    let of_reserve = if granted.is_of_reserve() { ", of the node's own reserve" } else { "" };
    for Part { server, places, .. } in &granted.parts {
        log::tell(
            settings.verbose,
            format_args!("Using Orion resource ({group}) {allocation} : {server}/{places}{of_reserve}"),
        );
    }
    if !wanted.idle.is_empty() {
        log::tell(settings.verbose, format_args!("client.conf: {} have no meaning here", wanted.idle.join(", ")));
    }
    Ok(granted)
}

/// Who shows the lease. The node's oriond is known by the certificate that the controller, or its agent, has named.
fn leased(settings: &Settings, wanted: &Wanted, part: &Part, is_of_reserve: bool) -> Result<Caller, String> {
    let Trust { certificate, key, insecure, always, .. } = wanted.trust.clone();
    let crosses_a_network = part.server.host().is_some_and(|address| always || !is_loopback(address));
    let fingerprint = part.certificate.filter(|_| crosses_a_network && !insecure);
    if crosses_a_network && !insecure && fingerprint.is_none() {
        let whoever = if is_of_reserve { "its agent" } else { "the controller" };
        return Err(format!(
            "{whoever} names no certificate of {}, so nobody can say who is there; is its orion-agent older, or set \
             ORION_INSECURE=1 to send everything in the clear",
            part.server
        ));
    }
    let trust = Trust { ca: None, certificate, key, fingerprint, insecure, always };
    // What is shown goes where it is encrypted.
    let trust = if fingerprint.is_some() { trust } else { Trust { certificate: None, key: None, ..trust } };
    Ok(Caller { lease: Some(part.lease.clone()), trust, ..settings.caller.clone() })
}

/// Nobody falls back to a server that was not given.
fn given_back(wanted: &Wanted, granted: &Granted, part: &Part, no: NoSession) -> NoSession {
    ask::give_back(wanted, granted);
    let (node, controllers) = (&part.node, wanted.controllers.join(","));
    let by = match granted.is_of_reserve() {
        true => format!("on node {node}, of its own reserve"),
        false => format!("on node {node}, which the controller at {controllers} gave"),
    };
    let text = format!("{} ({by})", no.text);
    NoSession { text, ..no }
}

/// `orion-run` says so when nothing in the program it ran has asked.
pub fn note_that_a_gpu_was_asked_for() {
    let Some(path) = environment::var_os("ORION_ASKED_FILE").filter(|path| !path.is_empty()) else { return };
    // Where it cannot be made (in a container that does not see the folder) orion-run's line says that this may be.
    let _ = std::fs::OpenOptions::new().append(true).create(true).open(path);
}

/// Whether the worker or the way to it is gone. May cost a system call, so it is for slow paths.
pub fn lost(s: &Session) -> bool {
    death(s).is_some()
}

/// How it was seen that the worker or the way to it is gone.
pub fn death(s: &Session) -> Option<&Death> {
    // Callers hold locks.
    let _whole = Uncancelled::hold();
    s.carrier.connection.death()
}

/// One more thread of this process waits for the worker, or one less.
pub fn is_awaited(s: &Session, more: bool) {
    s.carrier.connection.is_awaited(more);
}

/// Closes the child's copy of the main socket: it would keep the session alive after its owner has died. Bulk
/// connections need not be closed, the server ends them with the main one. For the `pthread_atfork` handler: nothing
/// but `fstat` and `close` is called.
pub fn forget_in_child(s: &Session) {
    let socket = s.carrier.socket.swap(-1, Ordering::Relaxed);
    // The program may have closed it, and have the number for something else.
    if socket >= 0 && Identity::of(socket) == s.carrier.identity {
        // SAFETY: in the child nobody uses this descriptor any more; the parent's is another.
        unsafe { libc::close(socket) };
    }
}

/// Which devices are named that no session has a use for.
fn tell_idle_devices(server: &Server, verbose: bool) -> Result<(), String> {
    let used = server.carrier.device;
    for name in address::CARRIERS.iter().filter_map(|carrier| carrier.device).filter(|name| Some(*name) != used) {
        if text(name)?.is_some() {
            log::tell(
                verbose,
                format_args!("{name} has no meaning here: the server is reached by a carrier without devices"),
            );
        }
    }
    Ok(())
}

impl Settings {
    /// Whether there may be a server, as far as that can be seen without asking it.
    pub fn may_be_there(&self) -> bool {
        match &self.reach {
            Reach::Server(server) => server.path().is_none_or(|path| path.exists()),
            Reach::Pool(_) => true,
        }
    }

    pub fn from_environment() -> Result<Settings, String> {
        let variable = |name: &str| environment::var(name).ok();
        original::refuse(variable)?;
        let verbose = text("ORION_VERBOSE")?.is_some_and(|v| v != "0");
        original::without_meaning(variable).iter().for_each(|line| log::tell(verbose, format_args!("{line}")));
        let named = text("ORION_SERVER")?;
        let reach = match (Wanted::from_environment(named.as_deref())?, named) {
            (Some(wanted), _) => Reach::Pool(Box::new(wanted)),
            (None, Some(address)) => Reach::Server(Server::parse(&address).map_err(|e| format!("ORION_SERVER: {e}"))?),
            (None, None) => Reach::Server(Server::local(default_socket()?)),
        };
        if let (Some(transport), Reach::Server(server)) = (text("ORION_TRANSPORT")?, &reach)
            && transport != server.transport()
        {
            let Some(wanted) = address::carrier(&transport) else {
                return Err(format!("ORION_TRANSPORT={transport} is none of {}", address::carrier_names()));
            };
            let example = wanted.example;
            return Err(format!(
                "ORION_TRANSPORT={transport} needs a server address such as {example}, but the server is {server}"
            ));
        }
        if let Reach::Server(server) = &reach {
            tell_idle_devices(server, verbose)?;
        }
        let mut tuning = Tuning::default();
        if let Some(lanes) = number("ORION_TCP_LANES")? {
            tuning.lanes = lanes as usize;
        }
        if let Some(spin_us) = number("ORION_SPIN_US")? {
            tuning.spin_us = spin_us;
        }
        let token = match &reach {
            Reach::Server(_) => Token::from_environment()?,
            Reach::Pool(_) => None,
        };
        let trust = Trust::of_this_process(environment::var)?;
        let caller = Caller { trust, ..Caller::new(program(), token) };
        Ok(Settings { reach, caller, tuning, verbose })
    }
}

fn text(name: &str) -> Result<Option<String>, String> {
    match environment::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name} is not valid UTF-8")),
    }
}

fn number(name: &str) -> Result<Option<u64>, String> {
    text(name)?.map(|v| v.parse().map_err(|_| format!("{name}={v} is not a number"))).transpose()
}

pub fn program() -> String {
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    String::from_utf8_lossy(&name).chars().filter(|c| !acts(*c)).collect()
}

/// The first place where a socket is, in the order in which oriond chooses one; the last place if none is. Nobody named
/// it, so whoever else could have put something there is not taken for the server.
fn default_socket() -> Result<PathBuf, String> {
    // SAFETY: getuid cannot fail.
    let uid = unsafe { libc::getuid() };
    let runtime = environment::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty());
    let places = [
        runtime.map(|d| PathBuf::from(d).join("orion/oriond.sock")),
        Some("/run/orion/oriond.sock".into()),
        // Of who has started the program, where that is somebody else.
        environment::is_believed().then(|| format!("/tmp/orion-{uid}/oriond.sock").into()),
    ];
    let mut last = PathBuf::new();
    for place in places.into_iter().flatten() {
        if place.exists() {
            let folder = place.parent().expect("each of them lies in a folder");
            return match objection_to_folder(folder) {
                Ok(None) => Ok(place),
                Ok(Some(why)) => Err(format!(
                    "there is {}, but its folder is not to be trusted: {why}; set ORION_SERVER to the server you mean",
                    place.display()
                )),
                Err(e) => {
                    Err(format!("opening {} failed: {e}; set ORION_SERVER to the server you mean", folder.display()))
                }
            };
        }
        last = place;
    }
    Ok(last)
}
