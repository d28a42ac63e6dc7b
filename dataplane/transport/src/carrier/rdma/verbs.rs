//! Devices and queue pairs, by verbs' own nouns.

// UNSAFETY: libibverbs is C. Every object here is made by it, owned by one Rust object and destroyed once, in the
// order that it wants. Its calls may be made by several threads at a time.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use orion_ring::control::PLACED_BYTES;
use orion_ring::{Heap, Reach};
use rdma_mummy_sys as sys;

use super::areas::{Areas, may_know};
#[cfg(debug_assertions)]
use super::breaking::Listed;
use super::choice::{VerbsPort, mtu_bytes, mtu_number};
use super::ends::{End, RingEnd};
use super::limits::{
    ACKNOWLEDGED_WITHIN, BATCH_WORKS_MAX, LANDING_BYTES, PEER_RING_BYTES_MAX, READS_MAX, RECEIVES, RETRIES, RING_BYTES,
    STAGE_BYTES, WORKS_MAX,
};
use super::works::{Done, Outcome, Place, READ, Read, ReadTo, Registered, Slot, Use, Work};
use crate::proof::fresh_nonce;
use crate::stream::{SHOWN_BYTES_MAX, SHOWN_MAX};

/// What is written together with its work request, where the device takes so much.
const INLINE_BYTES: u32 = 220;
/// Of a network: how many routers a packet may pass.
const HOPS_MAX: u8 = 64;
/// To `ibv_advise_mr`: come back when the pages are there (IB_UVERBS_ADVISE_MR_FLAG_FLUSH, which the bindings lack).
const UNTIL_THERE: u32 = 1;
/// What to try where a device fails at finding pages.
const WITHOUT_PAGING: &str = "name the device with paging=off, as in ORION_IB_NAME=mlx5_0,paging=off";
/// How long a sender waits that has found no receive: 0.64 ms, as verbs number it. Receives are posted before there are
/// credits for them, so only a peer that keeps to no rules finds none, and a few tries are enough.
const NO_RECEIVE_WAIT: u8 = 12;
const NO_RECEIVE_RETRIES: u8 = 3;

/// A port of a device, open.
pub struct Device {
    context: NonNull<sys::ibv_context>,
    name: String,
    port: u8,
    lid: u16,
    gid: [u8; 16],
    gid_index: u8,
    mtu: u8,
    is_ethernet: bool,
    service_level: u8,
    pkey_index: u16,
    /// Reads that it answers, and has under way, at a time, of one connection.
    reads: u8,
    paging: Paging,
}

/// Whether a device finds pages by itself, when it needs them (on-demand paging).
#[derive(Debug, Clone, PartialEq, Eq)]
enum Paging {
    None,
    /// It would, and was asked not to.
    Off,
    /// It would, and what it brings is not what there is.
    Wrong(String),
    Used,
}

// SAFETY: libibverbs lets any thread use a context, several at a time.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

fn last_error() -> io::Error {
    io::Error::last_os_error()
}

/// The list of devices, until it is dropped.
struct List(*mut *mut sys::ibv_device, usize);

impl List {
    fn new() -> Result<List, String> {
        let mut count = 0;
        // SAFETY: a plain call with a local.
        let all = unsafe { sys::ibv_get_device_list(&mut count) };
        if !all.is_null() && count > 0 {
            return Ok(List(all, count as usize));
        }
        Err(match last_error().raw_os_error() {
            Some(libc::EOPNOTSUPP) if all.is_null() => {
                "libibverbs.so.1 is not on this machine; install Debian's libibverbs1 and ibverbs-providers".into()
            }
            _ => "this machine has no RDMA device (/sys/class/infiniband is empty); load its driver, or make one of a \
                  network interface: rdma link add rxe0 type rxe netdev eth0"
                .into(),
        })
    }

    fn all(&self) -> impl Iterator<Item = (*mut sys::ibv_device, String)> {
        (0..self.1).map(|i| {
            // SAFETY: the list has so many entries, each of which has a name.
            unsafe {
                let device = *self.0.add(i);
                (device, CStr::from_ptr(sys::ibv_get_device_name(device)).to_string_lossy().into_owned())
            }
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it came from `ibv_get_device_list`.
            unsafe { sys::ibv_free_device_list(self.0) };
        }
    }
}

impl Device {
    /// The port that is wanted, or why it cannot be had and what to do. Whether its paging is right was not tried.
    pub(super) fn open_untried(wanted: &VerbsPort) -> Result<Device, String> {
        let list = List::new()?;
        let names = || list.all().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
        let mut objections = Vec::new();
        for (device, name) in list.all() {
            if wanted.device.as_ref().is_some_and(|wanted| *wanted != name) {
                continue;
            }
            match Device::open_one(device, name, wanted) {
                Ok(device) => return Ok(device),
                Err(why) => objections.push(why),
            }
        }
        match objections.is_empty() {
            true => Err(format!("there is no RDMA device {wanted} here; there are {}", names())),
            false => Err(objections.join("; ")),
        }
    }

    /// What it finds by itself is wrong: it is told of each range.
    pub(super) fn leave_paging(&mut self, why: String) {
        self.paging = Paging::Wrong(why);
    }

    fn open_one(device: *mut sys::ibv_device, name: String, wanted: &VerbsPort) -> Result<Device, String> {
        // SAFETY: the device is in a list that is not freed meanwhile.
        let context = NonNull::new(unsafe { sys::ibv_open_device(device) })
            .ok_or_else(|| format!("opening RDMA device {name} failed: {}; see /dev/infiniband", last_error()))?;
        // From here on it is closed whatever happens.
        let mut open = Device {
            context,
            name,
            port: 1,
            lid: 0,
            gid: [0; 16],
            gid_index: 0,
            mtu: 1,
            is_ethernet: false,
            service_level: wanted.service_level,
            pkey_index: wanted.pkey_index,
            reads: 0,
            paging: Paging::None,
        };
        // SAFETY: all-zero is valid for plain numbers; the call fills it.
        let mut device: sys::ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open.
        if unsafe { sys::ibv_query_device(context.as_ptr(), &mut device) } != 0 {
            return Err(format!("asking RDMA device {} what it is failed: {}", open.name, last_error()));
        }
        let reads = device.max_qp_rd_atom.min(device.max_qp_init_rd_atom).clamp(0, READS_MAX.into());
        open.reads = reads as u8;
        if open.can_find_pages() {
            open.paging = if wanted.paging { Paging::Used } else { Paging::Off };
        }
        let ports = match wanted.port {
            Some(port) => port..=port,
            None => 1..=device.phys_port_cnt,
        };
        let mut objections = Vec::new();
        for port in ports {
            open.port = port;
            match open.take_port(wanted) {
                Ok(()) => return Ok(open),
                Err(why) => objections.push(why),
            }
        }
        Err(objections.join("; "))
    }

    /// Whether reliable connections of it may read and write memory that is not locked. A provider that cannot be asked
    /// has none.
    fn can_find_pages(&self) -> bool {
        use sys::ibv_odp_transport_cap_bits as caps;
        // SAFETY: all-zero is valid for plain numbers; the context is open.
        unsafe {
            let mut all: sys::ibv_device_attr_ex = std::mem::zeroed();
            if sys::ibv_query_device_ex(self.context.as_ptr(), std::ptr::null(), &mut all) != 0 {
                return false;
            }
            let wanted = caps::IBV_ODP_SUPPORT_WRITE.0 | caps::IBV_ODP_SUPPORT_READ.0;
            all.odp_caps.per_transport_caps.rc_odp_caps & wanted == wanted
        }
    }

    fn attributes(&self) -> io::Result<sys::ibv_port_attr> {
        // SAFETY: all-zero is valid for plain numbers; the context is open.
        unsafe {
            let mut port: sys::ibv_port_attr = std::mem::zeroed();
            match sys::ibv_query_port(self.context.as_ptr(), self.port, &mut port) {
                0 => Ok(port),
                _ => Err(last_error()),
            }
        }
    }

    fn take_port(&mut self, wanted: &VerbsPort) -> Result<(), String> {
        let (name, number) = (&self.name, self.port);
        let port = self.attributes().map_err(|e| format!("RDMA device {name} has no port {number}: {e}"))?;
        if port.state != sys::ibv_port_state::IBV_PORT_ACTIVE {
            return Err(format!(
                "port {number} of RDMA device {name} is {}; set its network interface up (ip link set … up), or look \
                 for its cable, its switch and, on InfiniBand, a subnet manager",
                state_words(port.state)
            ));
        }
        self.lid = port.lid;
        self.is_ethernet = port.link_layer == LINK_ETHERNET;
        self.mtu = port.active_mtu as u8;
        if let Some(bytes) = wanted.mtu_bytes {
            let mtu = mtu_number(bytes).expect("the choice was parsed");
            if mtu > self.mtu {
                let most = mtu_bytes(self.mtu);
                return Err(format!("port {number} of RDMA device {name} has packets of {most} bytes, not of {bytes}"));
            }
            self.mtu = mtu;
        }
        if wanted.pkey_index >= port.pkey_tbl_len {
            let (index, has) = (wanted.pkey_index, port.pkey_tbl_len);
            return Err(format!("port {number} of RDMA device {name} has {has} partition keys, and none at {index}"));
        }
        let count = port.gid_tbl_len.clamp(0, 256) as usize;
        let index = match wanted.gid_index {
            Some(index) => Some(index),
            None if self.is_ethernet => (0..count).map(|i| i as u8).max_by_key(|i| self.rank(*i)),
            None => Some(0),
        };
        self.gid_index = index.filter(|i| usize::from(*i) < count).unwrap_or_default();
        self.gid = self.gid_at(self.gid_index).filter(|_| index == Some(self.gid_index)).unwrap_or_default();
        if self.gid == [0; 16] && (self.is_ethernet || wanted.gid_index.is_some()) {
            return Err(format!(
                "port {number} of RDMA device {name} has no address (GID) at index {}; give its network interface an \
                 IP address (ip addr add … dev …), or another index",
                index.unwrap_or_default()
            ));
        }
        Ok(())
    }

    fn gid_at(&self, index: u8) -> Option<[u8; 16]> {
        let mut gid = sys::ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open; every byte of the union is valid as one.
        unsafe {
            let rc = sys::ibv_query_gid(self.context.as_ptr(), self.port, index.into(), &mut gid);
            (rc == 0).then_some(gid.raw)
        }
    }

    /// How much sooner an address is taken than others: one that can be routed, and that people know.
    fn rank(&self, index: u8) -> u8 {
        let Some(gid) = self.gid_at(index).filter(|gid| *gid != [0; 16]) else { return 0 };
        let path = format!("/sys/class/infiniband/{}/ports/{}/gid_attrs/types/{index}", self.name, self.port);
        let is_v2 = std::fs::read_to_string(path).is_ok_and(|kind| kind.contains("v2"));
        let is_ipv4 = gid[..10] == [0; 10] && gid[10..12] == [0xff; 2];
        let is_link_local = gid[..2] == [0xfe, 0x80];
        1 + 4 * u8::from(is_v2) + 2 * u8::from(is_ipv4) + u8::from(!is_link_local)
    }

    /// Which device, port and address it is.
    pub fn words(&self) -> String {
        let Device { name, port, gid_index, .. } = self;
        let kind = if self.is_ethernet { "RoCE" } else { "InfiniBand" };
        let gid = std::net::Ipv6Addr::from(self.gid);
        let gid = gid.to_ipv4_mapped().map_or_else(|| gid.to_string(), |ip| ip.to_string());
        let paging = match &self.paging {
            Paging::None => "none".to_owned(),
            Paging::Off => "offered, off".to_owned(),
            Paging::Wrong(why) => format!("offered, and wrong, so not used ({why})"),
            Paging::Used => "used".to_owned(),
        };
        let mtu = mtu_bytes(self.mtu);
        let port = format!("{name} port {port} ({kind}), GID {gid_index} ({gid}), MTU {mtu}");
        format!("{port}, on-demand paging {paging}, GPUDirect not used")
    }

    /// Whether it finds pages of a heap by itself.
    pub fn finds_pages(&self) -> bool {
        self.paging == Paging::Used
    }

    /// How its port is doing now.
    pub fn state(&self) -> String {
        let state = self.attributes().map_or_else(|e| format!("unknown ({e})"), |port| state_words(port.state).into());
        format!("port {} of {} is {state}", self.port, self.name)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: nothing that was made with it is left: all that is holds the device.
        unsafe { sys::ibv_close_device(self.context.as_ptr()) };
    }
}

const LINK_ETHERNET: u8 = 2;

fn state_words(state: sys::ibv_port_state::Type) -> &'static str {
    use sys::ibv_port_state::*;
    match state {
        IBV_PORT_DOWN => "down",
        IBV_PORT_INIT => "not set up yet (INIT)",
        IBV_PORT_ARMED => "not in use yet (ARMED)",
        IBV_PORT_ACTIVE => "up",
        IBV_PORT_ACTIVE_DEFER => "deferred",
        _ => "in no state that there is",
    }
}

/// An inbox, an outbox, a stage behind it, and where what was read lands if it cannot be put where it belongs.
const REGION_BYTES: usize = 2 * RING_BYTES + STAGE_BYTES + LANDING_BYTES;
/// Writes, and reads.
const QUEUE_WORKS_MAX: u32 = WORKS_MAX + READS_MAX as u32;
/// Works that are handed over together.
const BATCH: usize = BATCH_WORKS_MAX as usize;
/// What is locked in memory for a session: that, the ring that the other side writes into, and ranges of the heap while
/// they are shown or read.
const LOCKED_BYTES_MAX: usize =
    REGION_BYTES + PEER_RING_BYTES_MAX + (SHOWN_MAX + READS_MAX as usize) * SHOWN_BYTES_MAX as usize;

/// Pages of the carrier's own that the device knows: an inbox, an outbox, and a stage and a landing behind it. Shared,
/// so that a child that the process forks makes no copies of them; and left out of children anyway.
struct Region(NonNull<u8>);

impl Region {
    fn new() -> io::Result<Region> {
        // SAFETY: a new mapping of whole pages.
        unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let at = libc::mmap(null_mut(), REGION_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(last_error());
            }
            let region = Region(NonNull::new(at.cast()).expect("nothing is mapped at zero"));
            if libc::madvise(at, REGION_BYTES, libc::MADV_DONTFORK) != 0 {
                return Err(last_error());
            }
            Ok(region)
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and the device has let go of it.
        unsafe { libc::munmap(self.0.as_ptr().cast(), REGION_BYTES) };
    }
}

/// Frees what libibverbs has made.
struct Owned<T>(NonNull<T>, unsafe extern "C" fn(*mut T) -> std::ffi::c_int);

impl<T> Owned<T> {
    fn new(
        made: *mut T,
        free: unsafe extern "C" fn(*mut T) -> std::ffi::c_int,
        what: &str,
        device: &Device,
    ) -> Result<Owned<T>, String> {
        let e = last_error();
        NonNull::new(made).map(|made| Owned(made, free)).ok_or_else(|| match e.raw_os_error() {
            Some(libc::ENOMEM) => format!(
                "making {what} of RDMA device {} failed: {e}; raise the limit on locked memory (ulimit -l, \
                 LimitMEMLOCK=) above {} KiB a session",
                device.name,
                LOCKED_BYTES_MAX >> 10
            ),
            _ => format!("making {what} of RDMA device {} failed: {e}", device.name),
        })
    }

    fn get(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by libibverbs, and freed once.
        unsafe { (self.1)(self.get()) };
    }
}

/// The ring that the other side writes into, and the words that say how far.
struct Offered {
    data: Owned<sys::ibv_mr>,
    placed: Owned<sys::ibv_mr>,
    reach: Reach,
}

/// Areas of a heap whose pages the device finds by itself, those of them registered that were used.
struct Paged {
    areas: Areas,
    known: Mutex<Vec<Option<Owned<sys::ibv_mr>>>>,
}

impl Paged {
    fn known(&self) -> MutexGuard<'_, Vec<Option<Owned<sys::ibv_mr>>>> {
        self.known.lock().expect("nothing panics under this lock")
    }
}

/// A queue pair with a protection domain of its own, in which only its own inbox and outbox are registered, the
/// session's ring that the other side writes into and, for a moment each, ranges of the session's heap, or areas of it
/// for good where the device finds pages by itself: its keys lead nowhere else, and end with it.
// Fields are dropped in their order, which is the one that libibverbs wants.
pub struct Pair {
    #[cfg(debug_assertions)]
    listed: Option<Listed>,
    qp: Owned<sys::ibv_qp>,
    sent: Owned<sys::ibv_cq>,
    arrived: Owned<sys::ibv_cq>,
    channel: Owned<sys::ibv_comp_channel>,
    outbox: Owned<sys::ibv_mr>,
    inbox: Owned<sys::ibv_mr>,
    offered: OnceLock<Offered>,
    /// Ranges of the heap.
    ranges: Mutex<Vec<Option<Owned<sys::ibv_mr>>>>,
    paged: OnceLock<Paged>,
    domain: Owned<sys::ibv_pd>,
    region: Region,
    device: Arc<Device>,
    inline_bytes: usize,
    first_psn: u32,
    peer: OnceLock<End>,
}

// SAFETY: libibverbs lets any thread use its objects, several at a time.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

impl Pair {
    /// Ready to be connected, with its receives posted.
    pub fn new(device: Arc<Device>) -> Result<Pair, String> {
        #[cfg_attr(not(debug_assertions), expect(unused_mut, reason = "only tests break some"))]
        let mut pair = Pair::to_try(device)?;
        #[cfg(debug_assertions)]
        {
            pair.listed = Some(Listed::new(pair.qp.get()));
        }
        Ok(pair)
    }

    /// The same, of no session.
    pub(super) fn to_try(device: Arc<Device>) -> Result<Pair, String> {
        let context = device.context.as_ptr();
        let region = Region::new().map_err(|e| format!("mapping {} KiB failed: {e}", REGION_BYTES >> 10))?;
        let at = region.0.as_ptr();
        let local = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as i32;
        let remote = local | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 as i32;
        let (receives, works) = (RECEIVES as i32, QUEUE_WORKS_MAX as i32);
        let d = &device;
        // SAFETY: each call has what the ones before it have made; the region is mapped, and outlives what knows it.
        unsafe {
            let domain = Owned::new(sys::ibv_alloc_pd(context), sys::ibv_dealloc_pd, "a protection domain", d)?;
            let inbox = sys::ibv_reg_mr(domain.get(), at.cast(), RING_BYTES, remote);
            let inbox = Owned::new(inbox, sys::ibv_dereg_mr, "a memory region", d)?;
            let outbox = sys::ibv_reg_mr(domain.get(), at.add(RING_BYTES).cast(), REGION_BYTES - RING_BYTES, local);
            let outbox = Owned::new(outbox, sys::ibv_dereg_mr, "a memory region", d)?;
            let channel = sys::ibv_create_comp_channel(context);
            let channel = Owned::new(channel, sys::ibv_destroy_comp_channel, "a completion channel", d)?;
            let fd = (*channel.get()).fd;
            if libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK) < 0 {
                return Err(format!(
                    "making a completion channel of RDMA device {} fit failed: {}",
                    d.name,
                    last_error()
                ));
            }
            let arrived = sys::ibv_create_cq(context, receives, null_mut(), channel.get(), 0);
            let arrived = Owned::new(arrived, sys::ibv_destroy_cq, "a completion queue", d)?;
            let sent = sys::ibv_create_cq(context, works, null_mut(), channel.get(), 0);
            let sent = Owned::new(sent, sys::ibv_destroy_cq, "a completion queue", d)?;
            let mut wanted: sys::ibv_qp_init_attr = std::mem::zeroed();
            wanted.send_cq = sent.get();
            wanted.recv_cq = arrived.get();
            wanted.qp_type = sys::ibv_qp_type::IBV_QPT_RC;
            let cap = |max_inline_data| sys::ibv_qp_cap {
                max_send_wr: QUEUE_WORKS_MAX,
                max_recv_wr: RECEIVES,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data,
            };
            wanted.cap = cap(INLINE_BYTES);
            let mut qp = sys::ibv_create_qp(domain.get(), &mut wanted);
            if qp.is_null() {
                // Not every device has room for data in its queue.
                wanted.cap = cap(0);
                qp = sys::ibv_create_qp(domain.get(), &mut wanted);
            }
            let inline_bytes = wanted.cap.max_inline_data as usize;
            let qp = Owned::new(qp, sys::ibv_destroy_qp, "a queue pair", d)?;
            let nonce = fresh_nonce().map_err(|e| format!("reading random bytes failed: {e}"))?;
            let first_psn = u32::from_le_bytes([nonce[0], nonce[1], nonce[2], 0]);
            let pair = Pair {
                #[cfg(debug_assertions)]
                listed: None,
                qp,
                sent,
                arrived,
                channel,
                outbox,
                inbox,
                offered: OnceLock::new(),
                ranges: Mutex::default(),
                paged: OnceLock::new(),
                domain,
                region,
                device,
                inline_bytes,
                first_psn,
                peer: OnceLock::new(),
            };
            pair.begin()?;
            Ok(pair)
        }
    }

    /// Lets the other side write into this ring, once and before it is told of.
    ///
    /// # Safety
    /// The ring stays mapped, and nothing else comes to lie there, for as long as the pair is here.
    pub unsafe fn offer(&self, reach: Reach) -> Result<(), String> {
        let access = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let register = |at: *mut u8, bytes| {
            // SAFETY: the domain is there, and the caller vouches for the pages.
            let made = unsafe { sys::ibv_reg_mr(self.domain.get(), at.cast(), bytes, access as i32) };
            Owned::new(made, sys::ibv_dereg_mr, "a memory region of a ring", &self.device)
        };
        let offered =
            Offered { data: register(reach.data, reach.bytes)?, placed: register(reach.placed, PLACED_BYTES)?, reach };
        self.offered.set(offered).map_err(|_| "a queue pair has one ring".to_owned())
    }

    /// Has the device find pages of this heap by itself, once, if it does such a thing.
    ///
    /// # Safety
    /// The heap stays mapped, and nothing else comes to lie there, for as long as the pair is here.
    pub unsafe fn find_pages_of(&self, heap: Heap) {
        if self.device.finds_pages() {
            // SAFETY: the caller vouches for it.
            unsafe { self.find_pages_in(Areas::new(heap.base() as u64, heap.bytes())) }
        }
    }

    /// # Safety
    /// As [`Self::find_pages_of`].
    pub unsafe fn find_pages_in(&self, areas: Areas) {
        assert!(self.paged.set(Paged { areas, known: Mutex::default() }).is_ok(), "a queue pair has one heap");
    }

    fn modify(
        &self,
        attributes: &mut sys::ibv_qp_attr,
        mask: &[sys::ibv_qp_attr_mask],
        to: &str,
    ) -> Result<(), String> {
        let mask = mask.iter().fold(0, |all, one| all | one.0);
        // SAFETY: the queue pair is there, and the attributes are a local of the caller's.
        match unsafe { sys::ibv_modify_qp(self.qp.get(), attributes, mask as i32) } {
            0 => Ok(()),
            e => Err(format!(
                "making a queue pair of RDMA device {} {to} failed: {}{}; {}",
                self.device.name,
                io::Error::from_raw_os_error(e),
                if self.is_in_error() { ", for the queue pair is in error" } else { "" },
                self.device.state()
            )),
        }
    }

    fn is_in_error(&self) -> bool {
        // SAFETY: all-zero is valid for plain numbers; the queue pair is there, and both are filled by the call.
        unsafe {
            let (mut attributes, mut made): (sys::ibv_qp_attr, sys::ibv_qp_init_attr) = std::mem::zeroed();
            let mask = sys::ibv_qp_attr_mask::IBV_QP_STATE.0 as i32;
            let done = sys::ibv_query_qp(self.qp.get(), &mut attributes, mask, &mut made);
            done == 0 && attributes.qp_state == sys::ibv_qp_state::IBV_QPS_ERR
        }
    }

    fn begin(&self) -> Result<(), String> {
        use sys::ibv_qp_attr_mask as mask;
        // SAFETY: all-zero is valid for plain numbers.
        let mut qp: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        qp.qp_state = sys::ibv_qp_state::IBV_QPS_INIT;
        qp.pkey_index = self.device.pkey_index;
        qp.port_num = self.device.port;
        // Each to what is registered for it.
        qp.qp_access_flags =
            sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 | sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
        let fields = [mask::IBV_QP_STATE, mask::IBV_QP_PKEY_INDEX, mask::IBV_QP_PORT, mask::IBV_QP_ACCESS_FLAGS];
        self.modify(&mut qp, &fields, "begin")?;
        (0..RECEIVES).try_for_each(|_| self.post_receive())?;
        self.arm()
    }

    /// What the other side has to know.
    pub fn own(&self) -> End {
        let Offered { data, placed, reach } = self.offered.get().expect("a ring is offered before it is told of");
        // SAFETY: all are there.
        let (qp_number, key) = unsafe { ((*self.qp.get()).qp_num, (*self.inbox.get()).rkey) };
        let (ring_key, placed_key) = unsafe { ((*data.get()).rkey, (*placed.get()).rkey) };
        End {
            qp_number,
            first_psn: self.first_psn,
            gid: self.device.gid,
            lid: self.device.lid,
            mtu: self.device.mtu,
            inbox: self.region.0.as_ptr() as u64,
            key,
            reads: self.device.reads,
            ring: RingEnd {
                data: reach.data as u64,
                bytes: reach.bytes as u64,
                key: ring_key,
                placed: reach.placed as u64,
                placed_key,
            },
        }
    }

    /// To the other side, once. Both can send from then on.
    pub fn connect(&self, peer: &End) -> Result<(), String> {
        use sys::ibv_qp_attr_mask as mask;
        let device = &self.device;
        if device.is_ethernet && peer.gid == [0; 16] {
            return Err("the other side's RDMA port is on InfiniBand, and this one's on Ethernet".into());
        }
        // SAFETY: all-zero is valid for plain numbers.
        let mut qp: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        qp.qp_state = sys::ibv_qp_state::IBV_QPS_RTR;
        qp.path_mtu = device.mtu.min(peer.mtu).into();
        qp.dest_qp_num = peer.qp_number;
        qp.rq_psn = peer.first_psn;
        qp.max_dest_rd_atomic = device.reads.min(peer.reads);
        qp.min_rnr_timer = NO_RECEIVE_WAIT;
        qp.ah_attr.port_num = device.port;
        qp.ah_attr.sl = device.service_level;
        qp.ah_attr.dlid = peer.lid;
        if device.gid != [0; 16] && peer.gid != [0; 16] {
            qp.ah_attr.is_global = 1;
            qp.ah_attr.grh.dgid.raw = peer.gid;
            qp.ah_attr.grh.sgid_index = device.gid_index;
            qp.ah_attr.grh.hop_limit = HOPS_MAX;
        }
        let fields = [
            mask::IBV_QP_STATE,
            mask::IBV_QP_AV,
            mask::IBV_QP_PATH_MTU,
            mask::IBV_QP_DEST_QPN,
            mask::IBV_QP_RQ_PSN,
            mask::IBV_QP_MAX_DEST_RD_ATOMIC,
            mask::IBV_QP_MIN_RNR_TIMER,
        ];
        self.modify(&mut qp, &fields, "ready to receive")?;
        // Set before anything can be sent.
        self.peer.set(*peer).map_err(|_| "a queue pair is connected once".to_owned())?;
        qp.qp_state = sys::ibv_qp_state::IBV_QPS_RTS;
        qp.timeout = ACKNOWLEDGED_WITHIN;
        qp.retry_cnt = RETRIES;
        qp.rnr_retry = NO_RECEIVE_RETRIES;
        qp.sq_psn = self.first_psn;
        qp.max_rd_atomic = device.reads.min(peer.reads);
        let fields = [
            mask::IBV_QP_STATE,
            mask::IBV_QP_TIMEOUT,
            mask::IBV_QP_RETRY_CNT,
            mask::IBV_QP_RNR_RETRY,
            mask::IBV_QP_SQ_PSN,
            mask::IBV_QP_MAX_QP_RD_ATOMIC,
        ];
        self.modify(&mut qp, &fields, "ready to send")
    }

    /// How the port is doing now.
    pub fn state(&self) -> String {
        self.device.state()
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.device.attributes().is_ok_and(|port| port.state == sys::ibv_port_state::IBV_PORT_ACTIVE)
    }

    /// What the other side writes to.
    pub fn inbox(&self) -> *const u8 {
        self.region.0.as_ptr()
    }

    /// What this side writes from: the outbox, and behind it the stage.
    pub fn outbox(&self) -> *mut u8 {
        // SAFETY: the region has both.
        unsafe { self.region.0.as_ptr().add(RING_BYTES) }
    }

    /// What the other side has said of its end.
    pub fn peer(&self) -> &End {
        self.peer.get().expect("it is connected before anything is sent")
    }

    /// The other side's ring, in bytes.
    pub fn peer_ring_bytes(&self) -> usize {
        self.peer().ring.bytes as usize
    }

    /// Reads that either end may have under way at a time. None where one of the devices cannot.
    pub fn reads(&self) -> u8 {
        self.device.reads.min(self.peer().reads)
    }

    fn ranges(&self) -> MutexGuard<'_, Vec<Option<Owned<sys::ibv_mr>>>> {
        self.ranges.lock().expect("nothing panics under this lock")
    }

    /// Has the device know a range, until [`Self::let_go`].
    ///
    /// # Safety
    /// The range stays mapped, and is nobody else's, until then.
    pub unsafe fn register(&self, at: *mut u8, bytes: usize, how: Use) -> Result<Registered, String> {
        #[cfg(debug_assertions)]
        super::breaking::may_register(how)?;
        if let Some(paged) = self.paged.get()
            && let Some(area) = paged.areas.of(at as u64, bytes as u64)
            && may_know(&paged.known(), area)
        {
            return self.find(paged, area, at, bytes, how);
        }
        let access = match how {
            Use::ShownToRead => sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ,
            Use::ReadInto => sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE,
        };
        // SAFETY: the domain is there, and the caller vouches for the pages.
        let made = unsafe { sys::ibv_reg_mr(self.domain.get(), at.cast(), bytes, access.0 as i32) };
        let made = Owned::new(made, sys::ibv_dereg_mr, "a memory region of a range", &self.device)?;
        // SAFETY: it is there.
        let key = unsafe { (*made.get()).rkey };
        let mut ranges = self.ranges();
        let slot = ranges.iter().position(Option::is_none).unwrap_or(ranges.len());
        match ranges.get_mut(slot) {
            Some(free) => *free = Some(made),
            None => ranges.push(Some(made)),
        }
        Ok(Registered { slot: Slot::Range(slot), key })
    }

    /// A range of an area, which is registered when something of it is used for the first time. The device is given the
    /// range's pages now: to find out that it lacks them while it writes takes it, or the other side, far longer.
    fn find(&self, paged: &Paged, area: usize, at: *mut u8, bytes: usize, how: Use) -> Result<Registered, String> {
        use sys::ib_uverbs_advise_mr_advice as advice;
        use sys::ibv_access_flags as access;
        let mut known = paged.known();
        if known.len() <= area {
            known.resize_with(area + 1, || None);
        }
        if known[area].is_none() {
            let (begin, size) = paged.areas.place(area);
            let flags = access::IBV_ACCESS_ON_DEMAND | access::IBV_ACCESS_REMOTE_READ | access::IBV_ACCESS_LOCAL_WRITE;
            // SAFETY: the domain is there, and whoever named the heap vouches for its pages.
            let made = unsafe { sys::ibv_reg_mr(self.domain.get(), begin as *mut _, size as usize, flags.0 as i32) };
            let made = Owned::new(made, sys::ibv_dereg_mr, "a memory region whose pages it finds itself", &self.device);
            known[area] = Some(made.map_err(|why| format!("{why}; {WITHOUT_PAGING}"))?);
        }
        let region = known[area].as_ref().expect("just made").get();
        let (what, to) = match how {
            Use::ShownToRead => (advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, "read"),
            Use::ReadInto => (advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE, "write to"),
        };
        // SAFETY: the region is there, and the one element a local that is read before the call returns.
        let (key, failed) = unsafe {
            let mut part = sys::ibv_sge { addr: at as u64, length: bytes as u32, lkey: (*region).lkey };
            ((*region).rkey, sys::ibv_advise_mr(self.domain.get(), what, UNTIL_THERE, &mut part, 1))
        };
        match failed {
            // Not every device that finds pages can be told to beforehand.
            0 | libc::EOPNOTSUPP => Ok(Registered { slot: Slot::Area(area), key }),
            e => Err(format!(
                "having RDMA device {} find the pages of {bytes} bytes that it is to {to} failed: {}; {WITHOUT_PAGING}",
                self.device.name,
                io::Error::from_raw_os_error(e)
            )),
        }
    }

    /// From here on no key leads to a range that was registered for itself. An area stays known.
    pub fn let_go(&self, slot: Slot) {
        let Slot::Range(slot) = slot else { return };
        let range = self.ranges()[slot].take();
        // With the lock given back: it is the system that lets go.
        drop(range.expect("a range is let go of once"));
    }

    /// How a read into what is known there begins.
    fn part_of(&self, slot: Slot, at: u64, bytes: usize) -> sys::ibv_sge {
        let of = |known: &[Option<Owned<sys::ibv_mr>>], i: usize| {
            // SAFETY: it is there for as long as it is in the list, whose lock is held.
            unsafe {
                let region = known[i].as_ref().expect("a read into what is registered").get();
                let (begin, end) = ((*region).addr as u64, (*region).addr as u64 + (*region).length as u64);
                assert!(begin <= at && at + bytes as u64 <= end, "a read beside what it is meant for");
                sys::ibv_sge { addr: at, length: bytes as u32, lkey: (*region).lkey }
            }
        };
        match slot {
            Slot::Range(i) => of(&self.ranges(), i),
            Slot::Area(i) => of(&self.paged.get().expect("it has areas").known(), i),
        }
    }

    /// Where [`ReadTo::Landing`] is.
    pub fn landing(&self) -> *const u8 {
        // SAFETY: the region has all of these.
        unsafe { self.outbox().add(RING_BYTES + STAGE_BYTES) }
    }

    /// Has the device read. [`READ`] comes back when all is there.
    pub fn read(&self, read: &Read) -> Result<(), String> {
        let mut part = match read.to {
            ReadTo::Known(slot, at) => self.part_of(slot, at, read.bytes),
            ReadTo::Landing => {
                assert!(read.bytes <= LANDING_BYTES, "a read beside the landing");
                // SAFETY: the region is there.
                let lkey = unsafe { (*self.outbox.get()).lkey };
                sys::ibv_sge { addr: self.landing() as u64, length: read.bytes as u32, lkey }
            }
        };
        // SAFETY: all-zero is valid for this struct of numbers and pointers.
        let mut request: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
        request.opcode = sys::ibv_wr_opcode::IBV_WR_RDMA_READ;
        request.send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        request.wr_id = READ;
        request.wr.rdma = sys::rdma_t { remote_addr: read.address, rkey: read.key };
        (request.sg_list, request.num_sge) = (&mut part, 1);
        let mut bad = null_mut();
        // SAFETY: the request and its one element are locals that are read before the call returns; where it leads
        // stays registered until the device has completed it, or the queue pair is gone.
        match unsafe { sys::ibv_post_send(self.qp.get(), &mut request, &mut bad) } {
            0 => Ok(()),
            e => Err(format!("handing a read to the RDMA device failed: {}", io::Error::from_raw_os_error(e))),
        }
    }

    /// For tests: writes where nothing is to be written.
    #[cfg(debug_assertions)]
    pub fn post_unchecked(&self, to: Place, bytes: usize) -> Result<(), String> {
        self.hand_over(&[Work { from: 0, to, bytes, notice: None, token: Some(1) }])
    }

    /// Hands writes to the device, which does them in this order.
    pub fn post(&self, works: &[Work]) -> Result<(), String> {
        for work in works {
            let (at, most) = match work.to {
                Place::Inbox(at) => (at, RING_BYTES),
                Place::Ring(at) => (at, self.peer_ring_bytes()),
                Place::Placed => (0, PLACED_BYTES),
            };
            assert!(at + work.bytes <= most, "a write beside what it is meant for");
        }
        self.hand_over(works)
    }

    /// All at once: telling the device is what costs.
    fn hand_over(&self, works: &[Work]) -> Result<(), String> {
        // SAFETY: all-zero is valid for these structs of numbers and pointers.
        let (mut requests, mut parts): ([sys::ibv_send_wr; BATCH], [sys::ibv_sge; BATCH]) =
            unsafe { std::mem::zeroed() };
        for (i, work) in works.iter().enumerate() {
            parts[i] = self.part(work);
            requests[i] = self.request(work, &mut parts[i]);
        }
        // They are where they stay.
        for i in 1..works.len() {
            requests[i - 1].next = &raw mut requests[i];
        }
        let mut bad = null_mut();
        // SAFETY: the requests and their one element each are locals that are read before the call returns; what they
        // name stays there until the device has completed it.
        match unsafe { sys::ibv_post_send(self.qp.get(), requests.as_mut_ptr(), &mut bad) } {
            0 => Ok(()),
            e => Err(format!("handing a write to the RDMA device failed: {}", io::Error::from_raw_os_error(e))),
        }
    }

    fn part(&self, work: &Work) -> sys::ibv_sge {
        assert!(work.from + work.bytes <= RING_BYTES + STAGE_BYTES, "a write from outside of what is to be written");
        // SAFETY: the offset is inside of the outbox and its stage; the regions and their keys are there.
        unsafe {
            sys::ibv_sge {
                addr: self.outbox().add(work.from) as u64,
                length: work.bytes as u32,
                lkey: (*self.outbox.get()).lkey,
            }
        }
    }

    fn request(&self, work: &Work, part: &mut sys::ibv_sge) -> sys::ibv_send_wr {
        use sys::{ibv_send_flags as flags, ibv_wr_opcode as opcode};
        let peer = self.peer();
        let (remote_addr, rkey) = match work.to {
            Place::Inbox(at) => (peer.inbox + at as u64, peer.key),
            Place::Ring(at) => (peer.ring.data + at as u64, peer.ring.key),
            Place::Placed => (peer.ring.placed, peer.ring.placed_key),
        };
        // SAFETY: all-zero is valid for this struct of numbers and pointers.
        let mut wr: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.opcode = match work.notice {
            Some(_) => opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            None => opcode::IBV_WR_RDMA_WRITE,
        };
        wr.imm_data_invalidated_rkey_union.imm_data = work.notice.unwrap_or_default().to_be();
        wr.wr.rdma = sys::rdma_t { remote_addr, rkey };
        if work.bytes > 0 {
            (wr.sg_list, wr.num_sge) = (part, 1);
        }
        if let Some(token) = work.token {
            wr.wr_id = token;
            wr.send_flags |= flags::IBV_SEND_SIGNALED.0;
        }
        if work.bytes > 0 && work.bytes <= self.inline_bytes {
            wr.send_flags |= flags::IBV_SEND_INLINE.0;
        }
        wr
    }

    /// Lets one more notice of the other side's come.
    pub fn post_receive(&self) -> Result<(), String> {
        let mut wr = sys::ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        let mut bad = null_mut();
        // SAFETY: a local that is read before the call returns.
        match unsafe { sys::ibv_post_recv(self.qp.get(), &mut wr, &mut bad) } {
            0 => Ok(()),
            e => Err(format!("handing a receive to the RDMA device failed: {}", io::Error::from_raw_os_error(e))),
        }
    }

    /// Something that was sent, or failed to be.
    pub fn poll_sent(&self) -> Result<Option<Done>, String> {
        poll(&self.sent)
    }

    /// A notice that has come.
    pub fn poll_arrived(&self) -> Result<Option<Done>, String> {
        poll(&self.arrived)
    }

    /// Has the next notice that comes ring the bell. One that came before this does not: it is looked for afterwards.
    pub fn arm(&self) -> Result<(), String> {
        ask_to_ring(&self.arrived)
    }

    /// Has the next thing that is done with what was handed over ring it too.
    pub fn arm_sent(&self) -> Result<(), String> {
        ask_to_ring(&self.sent)
    }

    /// Takes note of the bell's ringing.
    pub fn hear(&self) {
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: the channel is there and does not block; what has rung is acknowledged, or the queue could not be
        // destroyed.
        while unsafe { sys::ibv_get_cq_event(self.channel.get(), &mut cq, &mut context) } == 0 {
            unsafe { sys::ibv_ack_cq_events(cq, 1) };
        }
    }

    /// Readable when it has rung.
    pub fn bell(&self) -> RawFd {
        // SAFETY: the channel is there.
        unsafe { (*self.channel.get()).fd }
    }

    /// All that a forked child has of it.
    pub fn descriptors(&self) -> Vec<RawFd> {
        // SAFETY: the context is open as long as the device is here.
        let context = unsafe { self.device.context.as_ref() };
        vec![self.bell(), context.cmd_fd, context.async_fd]
    }

    /// Ranges that the device knows now.
    #[cfg(test)]
    pub fn registered(&self) -> usize {
        let areas = self.paged.get().map_or(0, |paged| paged.known().iter().flatten().count());
        self.ranges().iter().flatten().count() + areas
    }

    #[cfg(test)]
    pub fn break_on_purpose(&self) {
        // SAFETY: all-zero is valid for plain numbers.
        let mut qp: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
        qp.qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
        self.modify(&mut qp, &[sys::ibv_qp_attr_mask::IBV_QP_STATE], "end in error").expect("any state ends so");
    }
}

fn ask_to_ring(queue: &Owned<sys::ibv_cq>) -> Result<(), String> {
    // SAFETY: the queue is there.
    match unsafe { sys::ibv_req_notify_cq(queue.get(), 0) } {
        0 => Ok(()),
        e => Err(format!("asking the RDMA device to ring failed: {}", io::Error::from_raw_os_error(e))),
    }
}

fn poll(queue: &Owned<sys::ibv_cq>) -> Result<Option<Done>, String> {
    // SAFETY: all-zero is valid for plain numbers; the queue is there, and there is room for one completion.
    let (found, wc) = unsafe {
        let mut wc: sys::ibv_wc = std::mem::zeroed();
        (sys::ibv_poll_cq(queue.get(), 1, &mut wc), wc)
    };
    if found < 0 {
        return Err("looking into a completion queue failed".into());
    }
    let outcome = match wc.status {
        sys::ibv_wc_status::IBV_WC_SUCCESS => Outcome::Well,
        sys::ibv_wc_status::IBV_WC_WR_FLUSH_ERR => Outcome::Flushed,
        other => Outcome::Failed(other),
    };
    // SAFETY: any four bytes are a number; it means something where a notice came.
    let notice = u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data });
    Ok((found > 0).then_some(Done { outcome, token: wc.wr_id, notice }))
}
