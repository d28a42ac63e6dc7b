//! In place of `verbs`, where this was built without them: there is no device, and whoever asks is told why.

// UNSAFETY: what verbs ask of their callers is asked here too; nothing is done with it.

use std::os::fd::RawFd;
use std::sync::Arc;

use orion_ring::{Heap, Reach};

use super::choice::VerbsPort;
use super::ends::End;
use super::works::{Done, Read, Registered, Slot, Use, Work};

/// There is none.
pub enum Device {}

impl Device {
    pub fn open(wanted: &VerbsPort) -> Result<Arc<Device>, String> {
        Err(format!(
            "this build of Orion has no RDMA, which {wanted} is wanted for; build it with `cargo build --release \
             --features rdma` (it takes cmake and libclang), or go over tcp"
        ))
    }

    pub fn finds_pages(&self) -> bool {
        match *self {}
    }

    pub fn words(&self) -> String {
        match *self {}
    }

    pub fn state(&self) -> String {
        match *self {}
    }
}

/// There is none.
pub enum Pair {}

impl Pair {
    pub fn new(device: Arc<Device>) -> Result<Pair, String> {
        match *device {}
    }

    /// # Safety
    /// There is nothing to be safe.
    pub unsafe fn offer(&self, _: Reach) -> Result<(), String> {
        match *self {}
    }

    /// # Safety
    /// There is nothing to be safe.
    pub unsafe fn find_pages_of(&self, _: Heap) {
        match *self {}
    }

    pub fn peer(&self) -> &End {
        match *self {}
    }

    pub fn peer_ring_bytes(&self) -> usize {
        match *self {}
    }

    pub fn own(&self) -> End {
        match *self {}
    }

    pub fn connect(&self, _: &End) -> Result<(), String> {
        match *self {}
    }

    pub fn state(&self) -> String {
        match *self {}
    }

    pub fn is_up(&self) -> bool {
        match *self {}
    }

    pub fn inbox(&self) -> *const u8 {
        match *self {}
    }

    pub fn outbox(&self) -> *mut u8 {
        match *self {}
    }

    pub fn post(&self, _: &[Work]) -> Result<(), String> {
        match *self {}
    }

    pub fn reads(&self) -> u8 {
        match *self {}
    }

    /// # Safety
    /// There is nothing to be safe.
    pub unsafe fn register(&self, _: *mut u8, _: usize, _: Use) -> Result<Registered, String> {
        match *self {}
    }

    pub fn let_go(&self, _: Slot) {
        match *self {}
    }

    pub fn landing(&self) -> *const u8 {
        match *self {}
    }

    pub fn read(&self, _: &Read) -> Result<(), String> {
        match *self {}
    }

    pub fn arm_sent(&self) -> Result<(), String> {
        match *self {}
    }

    pub fn post_receive(&self) -> Result<(), String> {
        match *self {}
    }

    pub fn poll_sent(&self) -> Result<Option<Done>, String> {
        match *self {}
    }

    pub fn poll_arrived(&self) -> Result<Option<Done>, String> {
        match *self {}
    }

    pub fn arm(&self) -> Result<(), String> {
        match *self {}
    }

    pub fn hear(&self) {
        match *self {}
    }

    pub fn bell(&self) -> RawFd {
        match *self {}
    }

    pub fn descriptors(&self) -> Vec<RawFd> {
        match *self {}
    }
}
