//! What the handler of a signal says for oriond's log before it ends the worker: made without allocating.

// UNSAFETY: system calls that a handler may make.

use std::os::fd::AsRawFd;

use crate::lines;

/// A `Control::Log`. Its text begins behind two words.
pub struct LastWords {
    bytes: [u8; 512],
    len: usize,
}

impl LastWords {
    pub fn new() -> LastWords {
        LastWords { bytes: [0; 512], len: 16 }
    }

    pub fn text(&mut self, text: &[u8]) {
        let end = (self.len + text.len()).min(self.bytes.len());
        self.bytes[self.len..end].copy_from_slice(&text[..end - self.len]);
        self.len = end;
    }

    pub fn number(&mut self, mut number: u32) {
        let mut digits = [0; 10];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text(&digits[at..]);
    }

    pub fn hexadecimal(&mut self, number: u64) {
        self.text(b"0x");
        let digits = (64 - (number | 1).leading_zeros()).div_ceil(4);
        (0..digits).rev().for_each(|digit| self.text(&[b"0123456789abcdef"[(number >> (4 * digit)) as usize & 15]]));
    }

    #[cfg(test)]
    pub fn said(&self) -> &[u8] {
        &self.bytes[16..self.len]
    }

    pub fn say(self) {
        self.send(lines::control().map_or(-1, |control| control.as_raw_fd()));
    }

    /// Says them, and ends the process.
    pub fn end(self, status: i32) -> ! {
        self.say();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(status) }
    }

    fn send(mut self, control: i32) {
        self.bytes[..8].copy_from_slice(&crate::attach::LOG.to_le_bytes());
        self.bytes[8..16].copy_from_slice(&(self.len as u64 - 16).to_le_bytes());
        let len = self.len.next_multiple_of(8);
        // SAFETY: bytes of a local.
        unsafe { libc::send(control, self.bytes.as_ptr().cast(), len, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::Control;

    #[test]
    fn the_handlers_message_is_a_line_for_the_log() {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        for (number, digits) in [(0, "0"), (7, "7"), (435, "435"), (u32::MAX, "4294967295")] {
            let mut message = LastWords::new();
            message.text(b"call ");
            message.number(number);
            message.send(ours.as_raw_fd());
            let mut packet = [0; 600];
            let len = theirs.recv(&mut packet).unwrap();
            let expected = Control::Log { text: format!("call {digits}") };
            assert_eq!(Control::decode(&packet[..len]), Ok(expected));
        }
        let mut long = LastWords::new();
        long.text(&[b'x'; 600]);
        long.send(ours.as_raw_fd());
        let mut packet = [0; 600];
        let len = theirs.recv(&mut packet).unwrap();
        assert!(Control::decode(&packet[..len]).is_ok());
    }
}
