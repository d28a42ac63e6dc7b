//! A worker's way from its start to its client: warm up, seal, greet.

// UNSAFETY: loads the driver and calls it through C function pointers.

use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_ring::memory::{Layout, Which};
use orion_ring::{Memory, Producer};
use orion_telemetry::events::of_session;
use orion_telemetry::{OwnPage, Recorder};
use orion_wire::agent::Gpu;
use orion_wire::hello::{Device, PcieLink, Start, Welcome};
use orion_wire::lease::{Vgpu as Leased, gpu_name};
use orion_wire::message::carrier::DEVICES_MAX;
use orion_wire::view::{ATTRIBUTES, Offer};

use crate::attach::{Assign, Attachment, Control, Registered, lent, recv_control, send_control, share};
use crate::lines;
use crate::meter::Meter;
use crate::seat::{Bell, Page, now_ns};
use crate::worker::calls::generated;
use crate::worker::drift::Drift;
use crate::worker::driver::preemption::Preemption;
use crate::worker::driver::{cupti, load as driver, log as driver_log};
use crate::worker::out::{arrivals, output, replies};
use crate::worker::session::{Parts, Session};
use crate::worker::state::accounts::Accounts;
use crate::worker::state::gate::Gate;
use crate::worker::state::ledger::Ledger;
use crate::worker::state::vgpus::{Vgpu, on, spread};
use crate::worker::{budget, executor};

/// What `oriond worker` is told on its command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// `soft`, or the path of a real `libcuda.so.1`.
    pub driver: String,
    /// Most host memory (pinned buffers and payloads) that the session may use. Pages cost once touched.
    pub heap_bytes: u64,
    /// Part of the heap registered with the driver ahead of time.
    pub staging_bytes: u64,
    /// Host memory beyond the heap that may be taken for what a session makes.
    pub host_memory_bytes: u64,
    /// Path of `libcupti.so.13`; without one it is looked for.
    pub cupti: Option<String>,
    pub seal: crate::cell::Seal,
    /// Device memory that each vGPU may have.
    pub memory_limit: Option<u64>,
    /// vGPUs that the session has; without a number one for each GPU.
    pub vgpus: Option<usize>,
    /// Whether kernels may be taken off the GPU before they have ended.
    pub preempts: bool,
}

impl Options {
    fn profiler(&self) -> cupti::Source {
        match driver::is_software(&self.driver) {
            true => cupti::Source::Software,
            false => cupti::Source::Library(self.cupti.clone()),
        }
    }
}

/// Everything that can be done before a client is known.
struct Warm {
    driver: &'static Driver,
    devices: Vec<CUdevice>,
    /// The same, for the agent of a pool.
    gpus: Vec<Gpu>,
    offer: Offer,
    vgpus: Vec<Vgpu>,
    primary: HashMap<usize, CUcontext>,
    memory: Memory,
    /// The staging part at an address of our own, registered with the driver.
    staging: u64,
    staging_bytes: u64,
    node: Node,
    /// What the driver and its profiler read again later.
    files: Vec<std::path::PathBuf>,
    budget: budget::Budget,
    /// What telling of a command costs.
    stats_cost: u64,
    /// Where kernels may be taken off the GPU before they have ended: whether they can, and otherwise why not.
    preemption: Option<Result<Preemption, String>>,
}

/// What Linux says of the devices' machine, read before the worker is in its cell.
struct Node {
    /// How each device is joined to it.
    links: HashMap<CUdevice, PcieLink>,
    driver_release: String,
}

impl Warm {
    fn up(options: &Options) -> Result<Warm, String> {
        let driver: &'static Driver = Box::leak(Box::new(driver::load(&options.driver)?));
        let done = |what: &str, code: CUresult| match code {
            CUDA_SUCCESS => Ok(()),
            code => Err(format!("{what} answered {code} with driver {}", options.driver)),
        };
        // SAFETY: plain calls with valid out pointers.
        unsafe {
            done("cuInit", driver.cuInit(0))?;
            let mut count = 0;
            done("cuDeviceGetCount", driver.cuDeviceGetCount(&mut count))?;
            if count == 0 {
                return Err(format!("driver {} has no device", options.driver));
            }
            let mut devices = Vec::new();
            for ordinal in 0..count {
                let mut device = 0;
                done("cuDeviceGet", driver.cuDeviceGet(&mut device, ordinal))?;
                devices.push(device);
            }
            let vgpus = spread(&devices, options.vgpus.unwrap_or(devices.len()));
            fit(driver, &vgpus, options.memory_limit)?;
            let gpus = devices.iter().map(|device| driver::gpu(driver, *device)).collect();
            let mut context = std::ptr::null_mut();
            done("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&mut context, devices[0]))?;
            done("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))?;
            let is_software = driver::is_software(&options.driver);
            let link = |device: &CUdevice| (*device, driver::pcie_link(driver, is_software, *device));
            let links = devices.iter().map(link).collect();
            let node = Node { links, driver_release: driver::release(is_software) };
            let offer = offer(driver, &vgpus, &node, options.memory_limit);
            let memory = Memory::create(Layout { heap_bytes: options.heap_bytes })
                .map_err(|e| format!("creating session memory failed: {e}"))?;
            let staging = stage(driver, &memory, options.staging_bytes)?;
            let primary = HashMap::from([(0, context)]);
            let files = driver::load_late_libraries(&options.driver, &options.profiler());
            // After its compiler is there, and before the driver's memory is counted.
            let prove = || Preemption::proved(driver, &devices, is_software);
            let preemption = options.preempts.then(prove).transpose().map_err(|why| {
                format!("taking a kernel off the GPU and letting it go on failed: {why}; --preemption off does without")
            })?;
            let budget = budget::Budget::new(driver, &options.driver, &devices, options.host_memory_bytes)?;
            let stats_cost =
                Recorder::cost_picoseconds().map_err(|e| format!("making a page for statistics failed: {e}"))?;
            Ok(Warm {
                driver,
                devices,
                gpus,
                offer,
                vgpus,
                primary,
                node,
                memory,
                staging,
                staging_bytes: options.staging_bytes,
                files,
                budget,
                stats_cost,
                preemption,
            })
        }
    }
}

/// Maps the staging part of a session's heap and registers it with the driver.
fn stage(driver: &Driver, memory: &Memory, bytes: u64) -> Result<u64, String> {
    let heap_bytes = memory.layout().heap_bytes;
    let staging = memory.map_heap(None).map_err(|e| {
        format!(
            "mapping a host heap of {} MiB failed: {e}; where address space is limited (ulimit -v) ask for less with \
             --heap, of oriond serve or of orion-run",
            heap_bytes >> 20
        )
    })?;
    staging.make_huge(0, bytes);
    // SAFETY: a mapping that stays, and a context is current.
    match unsafe { driver.cuMemHostRegister_v2(staging.base().cast(), bytes as usize, CU_MEMHOSTREGISTER_PORTABLE) } {
        CUDA_SUCCESS => Ok(staging.base() as u64),
        code => Err(format!("cuMemHostRegister of staging memory answered {code}")),
    }
}

impl Warm {
    /// The session's memory is this, in place of what was made for it. It may be much smaller, and pinned memory is to
    /// have room beside what is staged.
    fn lies_in(&mut self, memory: Memory) -> Result<(), String> {
        // SAFETY: it was registered at the start, and nothing uses it.
        unsafe { self.driver.cuMemHostUnregister(self.staging as *mut c_void) };
        self.staging_bytes = self.staging_bytes.min(memory.layout().heap_bytes / 4) & !4095;
        self.staging = stage(self.driver, &memory, self.staging_bytes)?;
        let own = std::mem::replace(&mut self.memory, memory);
        // SAFETY: no ring end and no heap was made of it, and the driver does not use it any more.
        unsafe { own.unmap_all() };
        Ok(())
    }
}

// Leases.
impl Warm {
    /// Has the vGPUs of the session's lease, or those of the command line if it has none. Answers the memory that each
    /// is limited to.
    fn take_places(&mut self, leased: &[Leased], limit: Option<u64>) -> Result<Vec<Option<u64>>, String> {
        if leased.is_empty() {
            return Ok(vec![limit; self.vgpus.len()]);
        }
        let numbers = places(&self.gpus, leased)?;
        self.vgpus = on(&self.devices, &numbers);
        // Its driver has the first device's primary context by now. It is that vGPU's which comes first on the device.
        let context = self.primary.remove(&0);
        let first = self.vgpus.iter().position(|vgpu| vgpu.device == self.devices[0]);
        self.primary.extend(first.zip(context));
        Ok(leased.iter().map(|vgpu| Some(vgpu.memory_bytes)).collect())
    }
}

/// The GPU of each vGPU, if all of them fit.
fn places(gpus: &[Gpu], leased: &[Leased]) -> Result<Vec<usize>, String> {
    let mut taken = vec![0u64; gpus.len()];
    let mut numbers = Vec::new();
    for vgpu in leased {
        let number = gpus.iter().position(|gpu| gpu_name(&gpu.uuid) == vgpu.gpu);
        let number = number.ok_or_else(|| {
            format!(
                "the lease is for a vGPU on {}, which this node does not have; its agent has to report anew",
                vgpu.gpu
            )
        })?;
        taken[number] = taken[number].saturating_add(vgpu.memory_bytes);
        if taken[number] > gpus[number].memory_bytes {
            return Err(format!(
                "the lease's vGPUs have {} MiB on {}, which has {} MiB",
                taken[number] >> 20,
                vgpu.gpu,
                gpus[number].memory_bytes >> 20
            ));
        }
        numbers.push(number);
    }
    Ok(numbers)
}

fn describe(driver: &Driver, vgpu: &Vgpu, node: &Node) -> Device {
    let link = node.links.get(&vgpu.device).copied().unwrap_or_default();
    let described = driver::describe(driver, vgpu.device, vgpu.before, link);
    Device { driver_release: node.driver_release.clone(), ..described }
}

/// What a session without a lease would have. The first device's context is current.
fn offer(driver: &Driver, vgpus: &[Vgpu], node: &Node, memory_limit: Option<u64>) -> Offer {
    let vgpus = &vgpus[..vgpus.len().min(DEVICES_MAX)];
    let mut devices: Vec<Device> = vgpus.iter().map(|vgpu| describe(driver, vgpu, node)).collect();
    limit(&mut devices, &vec![memory_limit; vgpus.len()]);
    for device in &mut devices {
        device.attributes.retain(|(id, _)| ATTRIBUTES.contains(id));
        device.limits.clear();
    }
    let peer_access = driver::peer_access(driver, &vgpus.iter().map(|vgpu| vgpu.device).collect::<Vec<_>>());
    Offer { driver_version: driver::version(driver), devices, peer_access }
}

/// A vGPU's memory is what it may have.
fn limit(devices: &mut [Device], limits: &[Option<u64>]) {
    for (device, limit) in devices.iter_mut().zip(limits) {
        device.total_memory = limit.unwrap_or(u64::MAX).min(device.total_memory);
        device.is_limited = limit.is_some();
    }
}

/// Whether the vGPUs that share a GPU can have what each is promised.
fn fit(driver: &Driver, vgpus: &[Vgpu], limit: Option<u64>) -> Result<(), String> {
    for vgpu in vgpus.iter().filter(|vgpu| !vgpu.is_first()) {
        let mut total = 0usize;
        // SAFETY: a device of the driver's and a valid out pointer.
        unsafe { driver.cuDeviceTotalMem_v2(&mut total, vgpu.device) };
        let (number, total) = (u64::from(vgpu.before) + 1, total as u64);
        let Some(limit) = limit else {
            return Err(format!(
                "{} vGPUs are more than there are GPUs, so that some share one; give each its part of the memory by \
                 --memory-limit",
                vgpus.len()
            ));
        };
        if limit.saturating_mul(number) > total {
            return Err(format!(
                "{number} vGPUs of {} MiB do not fit on a GPU of {} MiB; lower --memory-limit or --vgpus",
                limit >> 20,
                total >> 20
            ));
        }
    }
    Ok(())
}

/// Warms up, waits for a tenant, serves it and exits.
pub fn main(control: OwnedFd, options: &Options) -> Result<(), String> {
    let warm = match Warm::up(options) {
        Ok(warm) => warm,
        Err(reason) => return fail(&control, reason),
    };
    // Nothing of a client's has been read so far, and from here on nothing needs to be opened.
    let sealed = crate::cell::seal(options.seal, control.as_fd(), &warm.files);
    if let Err(reason) = sealed {
        return fail(&control, reason);
    }
    let ready = Control::Ready { gpus: warm.gpus.clone(), offer: warm.offer.clone() };
    send_control(control.as_fd(), &ready, &[]).map_err(|e| format!("saying ready failed: {e}"))?;
    let assigned = recv_control(control.as_fd()).map_err(|e| format!("waiting for a session failed: {e}"))?;
    let Some((Control::Assign(assign), mut fds)) = assigned else {
        // oriond has gone away.
        return Ok(());
    };
    let socket = fds.pop().ok_or("the assignment came without a socket")?;
    let lent = assign.lent.map(|place| lent(place, &mut fds)).transpose()?;
    let seats = match assign.has_seats {
        true => Some(seats(&mut fds)?),
        false => None,
    };
    // The page stays mapped, and the descriptor is not kept.
    let meter = Meter::map(fds.pop().ok_or("the assignment came without a meter")?.as_fd())
        .map_err(|e| format!("mapping the meter failed: {e}"))?;
    let page = fds.pop().ok_or("the assignment came without a page for statistics")?;
    let map = || OwnPage::map(page.as_fd()).map_err(|e| format!("mapping the page for statistics failed: {e}"));
    let (stats, of_drift) = (map()?, map()?);
    drop(page);
    stats.set(of_session::COST, warm.stats_cost);
    let shown = Shown { meter: Arc::new(meter), stats: Recorder::new(stats, assign.session), of_drift };
    let mut warm = warm;
    let bell = match lent {
        None => None,
        Some((memory, bell)) => {
            warm.lies_in(memory)?;
            send_control(control.as_fd(), &Control::Settled, &[])
                .map_err(|e| format!("saying that a guest's memory was taken failed: {e}"))?;
            Some(bell)
        }
    };
    serve(warm, &assign, &control, Attachment::new(socket), shown, Given { seats, bell }, options)
}

/// Where the session has a share of its GPUs' time.
fn seats(fds: &mut Vec<OwnedFd>) -> Result<(Page, Bell), String> {
    let (bell, page) = (fds.pop(), fds.pop());
    let (bell, page) = bell.zip(page).ok_or("the assignment came without a page of seats")?;
    let page = Page::map(page.as_fd()).map_err(|e| format!("mapping the page of seats failed: {e}"))?;
    Ok((page, Bell::of(bell)))
}

/// The gate between the ring and the driver, where the session has a share.
fn gate(
    page: Page,
    bell: Bell,
    devices: &[CUdevice],
    preemption: Option<Result<Preemption, String>>,
    driver: &Driver,
) -> Result<Gate, String> {
    if let Some(Err(why)) = &preemption {
        lines::warn(&format!(
            "kernels of this session that go on after its turn are not taken off the GPU ({why}), and what it has had \
             too much is paid back; with --preemption off nothing is said of that"
        ));
    }
    let preemption = preemption.and_then(Result::ok);
    Gate::new(page, bell, devices, |device| preemption.map(|proved| proved.of(driver, device)))
        .map_err(|e| format!("starting a thread for turns failed: {e}"))
}

/// What comes with the assignment of some sessions only.
struct Given {
    seats: Option<(Page, Bell)>,
    /// What rings, where it does not come from the client.
    bell: Option<Vec<OwnedFd>>,
}

/// Where it is told what the session uses, and does.
struct Shown {
    meter: Arc<Meter>,
    stats: Recorder,
    /// The same page, for the thread that holds the ledger against the driver.
    of_drift: OwnPage,
}

fn fail(control: &OwnedFd, reason: String) -> Result<(), String> {
    let failed = Control::Failed { reason: reason.clone() };
    send_control(control.as_fd(), &failed, &[]).map_err(|e| format!("{reason}; and saying so failed: {e}"))?;
    Err(reason)
}

/// Greets the client, then executes its commands until it is gone.
fn serve(
    mut warm: Warm,
    assign: &Assign,
    control: &OwnedFd,
    attachment: Attachment,
    Shown { meter, stats, of_drift }: Shown,
    Given { seats, bell }: Given,
    options: &Options,
) -> Result<(), String> {
    let limits = match warm.take_places(&assign.vgpus, options.memory_limit) {
        Ok(limits) => limits,
        Err(reason) => return attachment.refuse(&reason).map_err(|e| format!("refusing the client failed: {e}")),
    };
    let mut devices = warm.vgpus.iter().map(|vgpu| describe(warm.driver, vgpu, &warm.node)).collect::<Vec<_>>();
    limit(&mut devices, &limits);
    meter.begin(&devices.iter().map(|device| device.total_memory).collect::<Vec<_>>());
    let is_software = driver::is_software(&options.driver);
    if is_software {
        show_work(&meter, &warm.vgpus);
    }
    let registered = registered(&warm, &devices);
    let ledger = ledger(&limits, &devices, &meter);
    let accounts =
        ledger.as_ref().map(|ledger| Accounts::new(ledger.clone(), driver::rounding(&options.driver), is_software));
    let welcome = Welcome {
        session: assign.session,
        worker_pid: assign.worker_pid,
        driver_version: driver::version(warm.driver),
        missing: generated::missing(warm.driver),
        peer_access: driver::peer_access(warm.driver, &warm.vgpus.iter().map(|vgpu| vgpu.device).collect::<Vec<_>>()),
        devices,
        memory_bytes: warm.memory.layout().memory_bytes(),
        heap_bytes: warm.memory.layout().heap_bytes,
        staging_bytes: warm.staging_bytes,
    };
    let (start, fds) =
        attachment.welcome(&welcome, warm.memory.fd()).map_err(|e| format!("greeting the client failed: {e}"))?;
    send_control(control.as_fd(), &Control::Started { vgpus: registered }, &[])
        .map_err(|e| format!("saying that the session starts failed: {e}"))?;
    let (memory, heap) = match share(warm.memory, &start, bell.unwrap_or(fds)) {
        Ok(shared) => shared,
        Err(reason) => return attachment.refuse(&reason).map_err(|e| format!("refusing the client failed: {e}")),
    };
    let ring = |e: std::io::Error| format!("mapping a ring failed: {e}");
    let commands = memory.consumer(Which::Command).map_err(ring)?;
    let replies = memory.producer(Which::Reply).map_err(ring)?;
    let (replies, arrivals) = answers(&start, replies);
    let events = replies::Events::new(memory.producer(Which::Event).map_err(ring)?);
    // From here on descriptors 1 and 2 are the session's.
    let output = output::Output::capture(events.clone()).map_err(|e| format!("capturing output failed: {e}"))?;
    attachment.started().map_err(|e| format!("starting the session failed: {e}"))?;
    let attachment = Arc::new(attachment);
    let ledger = ledger.filter(|_| is_software);
    let drift = ledger.map(|ledger| Drift::new(ledger, &warm.devices, &warm.vgpus, of_drift));
    watch(assign.session, Arc::clone(&attachment), warm.budget, drift)?;
    driver_log::listen(warm.driver);
    let devices = warm.vgpus.iter().map(|vgpu| vgpu.device).collect::<Vec<_>>();
    let gate = seats.map(|(page, bell)| gate(page, bell, &devices, warm.preemption, warm.driver)).transpose()?;
    let preemptors = gate.as_ref().map_or(Vec::new(), |gate| gate.preemptors.clone());
    let mut s = Session::new(Parts {
        driver: warm.driver,
        vgpus: warm.vgpus,
        primary: warm.primary,
        heap,
        memory,
        attachment,
        pages: start.pages,
        staging: warm.staging,
        staging_bytes: warm.staging_bytes,
        arrivals,
        replies,
        events,
        ahead: commands.lookahead(),
        output: Arc::clone(&output),
        profiler: options.profiler(),
        accounts,
        meter,
        gate,
        stats,
    });
    let ended = executor::run(&mut s, commands);
    // The driver waits for it when the process ends.
    preemptors.iter().flatten().for_each(|preemptor| preemptor.let_go_on());
    match ended {
        Ok(()) => Ok(()),
        Err(fault) => Err(format!("session {} ended: the client broke the protocol: {fault}", assign.session)),
    }
}

/// The software GPU says when it works; vGPUs that share a device work together.
fn show_work(meter: &Arc<Meter>, vgpus: &[Vgpu]) {
    let (meter, devices) = (Arc::clone(meter), vgpus.iter().map(|vgpu| vgpu.device as usize).collect::<Vec<_>>());
    meter.measures(now_ns());
    orion_soft::busy::observe(move |device, works| {
        let now_ns = now_ns();
        let its = devices.iter().enumerate().filter(|(_, its)| **its == device);
        its.for_each(|(vgpu, _)| meter.works(vgpu, works, now_ns));
    });
}

/// Who counts the session's memory, where it has a limit.
fn ledger(limits: &[Option<u64>], devices: &[Device], meter: &Arc<Meter>) -> Option<Arc<Mutex<Ledger>>> {
    limits.iter().any(Option::is_some).then(|| {
        let limits: Vec<u64> = devices.iter().map(|device| device.total_memory).collect();
        let mut ledger = Ledger::new(&limits);
        ledger.show(Arc::clone(meter));
        Arc::new(Mutex::new(ledger))
    })
}

/// The way of replies: behind what arrives of the host's memory, where bytes must be brought.
fn answers(start: &Start, replies: Producer) -> (replies::Replies, Option<arrivals::Shared>) {
    if !start.pages.must_bring() {
        return (replies::Replies::Alone(replies), None);
    }
    let arrivals = arrivals::Arrivals::new(replies);
    (replies::Replies::BehindArrivals(Arc::clone(&arrivals)), Some(arrivals))
}

/// Ends the worker when its client is gone, or has more of the host's memory than it may.
fn watch(
    session: u64,
    attachment: Arc<Attachment>,
    budget: budget::Budget,
    mut drift: Option<Drift>,
) -> Result<(), String> {
    // Its name says whose worker this is, to who looks from outside: orion-probe.
    let watcher = std::thread::Builder::new().name(format!("watch {session}"));
    let started = watcher.spawn(move || {
        let objection = attachment.wait_until_gone(|| {
            if let Some(line) = drift.as_mut().and_then(Drift::look) {
                lines::warn(&format!("session {session}: {line}"));
            }
            budget.look()
        });
        if let Some(why) = &objection {
            lines::warn(&format!("session {session} ended: {why}"));
        }
        // The driver frees everything the process had; there is nobody left to answer to.
        // SAFETY: ends the process without running anything else of it.
        unsafe { libc::_exit(objection.is_some().into()) };
    });
    started.map(drop).map_err(|e| format!("starting the watcher failed: {e}"))
}

/// What oriond hears of a session's vGPUs.
fn registered(warm: &Warm, devices: &[Device]) -> Vec<Registered> {
    let uuid_of =
        |device| warm.devices.iter().zip(&warm.gpus).find(|(its, _)| **its == device).map(|(_, gpu)| gpu.uuid);
    let one = |(vgpu, device): (&Vgpu, &Device)| Registered {
        vgpu: u64::from(vgpu.before),
        gpu: vgpu.device as u64,
        uuid: uuid_of(vgpu.device).expect("a vGPU lies on one of the devices"),
        memory_bytes: device.total_memory,
    };
    warm.vgpus.iter().zip(devices).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(number: u8) -> Gpu {
        Gpu { uuid: [number; 16], name: "GPU".into(), memory_bytes: 100 << 20 }
    }

    fn leased(number: u8, mib: u64) -> Leased {
        Leased { gpu: gpu_name(&[number; 16]), memory_bytes: mib << 20, ratio: 50 }
    }

    #[test]
    fn the_vgpus_of_a_lease_lie_where_it_says() {
        let gpus = [gpu(1), gpu(2)];
        assert_eq!(places(&gpus, &[leased(2, 60), leased(2, 40), leased(1, 100)]), Ok(vec![1, 1, 0]));
        let why = places(&gpus, &[leased(2, 60), leased(2, 41)]).expect_err("too much");
        assert!(why.contains("101 MiB") && why.contains("100 MiB"), "{why}");
        let why = places(&gpus, &[leased(3, 1)]).expect_err("no such GPU");
        assert!(why.contains(&gpu_name(&[3; 16])), "{why}");
    }
}
