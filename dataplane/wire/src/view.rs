//! What a server shows to who only asks: the vGPUs that a session would have, and which of the asking user's programs
//! use theirs for how much. No worker is taken for it.
//!
//! ```text
//! client                                       oriond
//!   Hello, Challenge as before a session
//!   Ask      (a Request, proof) --------------->  refuses in words, or
//!            <----------------------------- View
//! ```

use crate::codec::{Fault, Reader, Writer};
use crate::hello::{Device, get_device, put_device};
use crate::message::carrier::DEVICES_MAX;

/// Programs in one view. There are no more sessions on a server, as a rule.
pub const PROGRAMS_MAX: usize = 1024;
pub const PROGRAM_BYTES_MAX: usize = 255;

/// What a session would have. Of a device's attributes there are those of [`ATTRIBUTES`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offer {
    pub driver_version: u32,
    pub devices: Vec<Device>,
    /// `[i * n + j]`: how device i can access device j, of [`hello`](crate::hello)'s `PEER_*`.
    pub peer_access: Vec<u8>,
}

/// `CUdevice_attribute`s that tools ask for before there is a session: clock, multiprocessors, compute mode, ECC, place
/// on the bus, memory clock, bus width, compute capability, PCI ids.
pub const ATTRIBUTES: [u32; 13] = [13, 16, 20, 32, 33, 34, 36, 37, 50, 75, 76, 139, 140];

/// One vGPU of a running program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Which of the offered devices lies on the same GPU.
    pub device: u32,
    /// Bytes of memory that it may have, and has.
    pub total: u64,
    pub used: u64,
    /// Of the time lately in which it had work; [`UNKNOWN`] where nobody measures.
    pub busy_percent: u32,
}

pub const UNKNOWN: u32 = u32::MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// 0 where who asks could not find it: on another machine, or in another pid namespace.
    pub pid: u32,
    pub name: String,
    pub vgpus: Vec<Use>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    pub offer: Offer,
    pub programs: Vec<Program>,
}

impl Offer {
    pub fn put(&self, w: &mut Vec<u8>) {
        w.word(self.driver_version.into());
        w.word(self.devices.len() as u64);
        self.devices.iter().for_each(|device| put_device(w, device));
        w.bytes(&self.peer_access);
    }

    pub fn get(r: &mut Reader<'_>) -> Result<Offer, Fault> {
        let driver_version = r.word()? as u32;
        let devices = r.list(DEVICES_MAX, get_device)?;
        let peer_access = r.bytes()?.to_vec();
        if peer_access.len() != devices.len() * devices.len() {
            return Err(Fault("peer access matrix has the wrong size"));
        }
        Ok(Offer { driver_version, devices, peer_access })
    }
}

impl View {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        self.offer.put(&mut w);
        let programs = &self.programs[..self.programs.len().min(PROGRAMS_MAX)];
        w.word(programs.len() as u64);
        for program in programs {
            w.word(program.pid.into());
            w.bytes(program.name.as_bytes());
            w.word(program.vgpus.len() as u64);
            for vgpu in &program.vgpus {
                for word in [vgpu.device.into(), vgpu.total, vgpu.used, vgpu.busy_percent.into()] {
                    w.word(word);
                }
            }
        }
        w
    }

    pub fn decode(body: &[u8]) -> Result<View, Fault> {
        let mut r = Reader::new(body);
        let offer = Offer::get(&mut r)?;
        let programs = r.list(PROGRAMS_MAX, |r| {
            let pid = r.word()? as u32;
            let name = r.text()?.to_owned();
            if name.len() > PROGRAM_BYTES_MAX {
                return Err(Fault("a program's name is too long"));
            }
            let vgpus = r.list(DEVICES_MAX, |r| {
                let (device, total, used) = (r.word()? as u32, r.word()?, r.word()?);
                Ok(Use { device, total, used, busy_percent: r.word()? as u32 })
            })?;
            Ok(Program { pid, name, vgpus })
        })?;
        r.finish()?;
        Ok(View { offer, programs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_comes_back() {
        let device = Device { name: "GPU".into(), total_memory: 1 << 30, ..Device::default() };
        let offer = Offer { driver_version: 13000, devices: vec![device], peer_access: vec![1] };
        let vgpu = Use { device: 0, total: 1 << 30, used: 5, busy_percent: UNKNOWN };
        let program = Program { pid: 7, name: "python3".into(), vgpus: vec![vgpu] };
        let view = View { offer, programs: vec![program] };
        let body = view.encode();
        assert_eq!(View::decode(&body), Ok(view));
        assert!((0..body.len()).all(|cut| View::decode(&body[..cut]).is_err()));
    }
}
