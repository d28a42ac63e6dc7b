//! The sum by which cudart makes sure that the driver it talks to is the one it found.
//!
//! It covers the process, the thread, the addresses of the driver's own tables and the devices, so nobody can
//! compute it but the library that cudart called: this one. HMAC (RFC 2104) over MD2 (RFC 1319).

/// What a sum says about: all of it as this process's own functions would answer.
pub struct Statement<'a> {
    pub driver_version: u32,
    /// cudart's version plus 0, 1, 2, ...: the last digit chooses the kind of answer.
    pub version: u32,
    pub pid: u32,
    /// Low half of `pthread_self()`.
    pub thread: u32,
    /// CUDART_INTERFACE, INTEGRITY_CHECK, and the function in the latter that is asked.
    pub addresses: [u64; 3],
    pub unix_seconds: u64,
    /// UUID; PCI domain, bus and device. In ordinal order.
    pub devices: &'a [([u8; 16], [i32; 3])],
}

impl Statement<'_> {
    pub fn answer(&self) -> [u64; 2] {
        match self.version % 10 {
            0 => [0x3341_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
            1 => [0x1841_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
            _ => words(hmac(&KEY, &self.encode())),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [self.driver_version, self.version, self.pid, self.thread] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in self.addresses.into_iter().chain([self.unix_seconds]) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for (uuid, place) in self.devices {
            out.extend_from_slice(uuid);
            for number in place {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out
    }
}

/// The same in every driver since 11.6 and in three public implementations.
const KEY: [u8; BLOCK] =
    [0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f];

/// MD2's block and digest.
const BLOCK: usize = 16;

fn words(digest: [u8; BLOCK]) -> [u64; 2] {
    let (low, high) = digest.split_at(8);
    [low, high].map(|half| half.iter().rev().fold(0, |word, byte| word << 8 | *byte as u64))
}

fn hmac(key: &[u8; BLOCK], message: &[u8]) -> [u8; BLOCK] {
    let padded = |pad: u8, rest: &[u8]| md2(&[&key.map(|k| k ^ pad), rest].concat());
    padded(0x5c, &padded(0x36, message))
}

/// RFC 1319.
fn md2(message: &[u8]) -> [u8; BLOCK] {
    let padding = BLOCK - message.len() % BLOCK;
    let mut text = message.to_vec();
    text.resize(message.len() + padding, padding as u8);
    let mut checksum = [0u8; BLOCK];
    let mut last = 0;
    for block in text.chunks_exact(BLOCK) {
        for (sum, byte) in checksum.iter_mut().zip(block) {
            *sum ^= SUBSTITUTION[(byte ^ last) as usize];
            last = *sum;
        }
    }
    text.extend_from_slice(&checksum);
    let mut state = [0u8; 3 * BLOCK];
    for block in text.chunks_exact(BLOCK) {
        for (i, byte) in block.iter().enumerate() {
            state[BLOCK + i] = *byte;
            state[2 * BLOCK + i] = byte ^ state[i];
        }
        let mut t = 0u8;
        for round in 0..18 {
            for byte in &mut state {
                *byte ^= SUBSTITUTION[t as usize];
                t = *byte;
            }
            t = t.wrapping_add(round);
        }
    }
    let mut digest = [0; BLOCK];
    digest.copy_from_slice(&state[..BLOCK]);
    digest
}

/// A permutation made from the digits of pi.
#[rustfmt::skip]
const SUBSTITUTION: [u8; 256] = [
    41, 46, 67, 201, 162, 216, 124, 1, 61, 54, 84, 161, 236, 240, 6, 19,
    98, 167, 5, 243, 192, 199, 115, 140, 152, 147, 43, 217, 188, 76, 130, 202,
    30, 155, 87, 60, 253, 212, 224, 22, 103, 66, 111, 24, 138, 23, 229, 18,
    190, 78, 196, 214, 218, 158, 222, 73, 160, 251, 245, 142, 187, 47, 238, 122,
    169, 104, 121, 145, 21, 178, 7, 63, 148, 194, 16, 137, 11, 34, 95, 33,
    128, 127, 93, 154, 90, 144, 50, 39, 53, 62, 204, 231, 191, 247, 151, 3,
    255, 25, 48, 179, 72, 165, 181, 209, 215, 94, 146, 42, 172, 86, 170, 198,
    79, 184, 56, 210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4, 241,
    69, 157, 112, 89, 100, 113, 135, 32, 134, 91, 207, 101, 230, 45, 168, 2,
    27, 96, 37, 173, 174, 176, 185, 246, 28, 70, 97, 105, 52, 64, 126, 15,
    85, 71, 163, 35, 221, 81, 175, 58, 195, 92, 249, 206, 186, 197, 234, 38,
    44, 83, 13, 110, 133, 40, 132, 9, 211, 223, 205, 244, 65, 129, 77, 82,
    106, 220, 55, 200, 108, 193, 171, 250, 36, 225, 123, 8, 12, 189, 177, 74,
    120, 136, 149, 139, 227, 99, 232, 109, 233, 203, 213, 254, 59, 0, 29, 57,
    242, 239, 183, 14, 102, 88, 208, 228, 166, 119, 114, 248, 235, 117, 75, 10,
    49, 68, 80, 180, 143, 237, 31, 26, 219, 153, 141, 51, 159, 17, 131, 20,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: [u8; BLOCK]) -> String {
        digest.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn md2_of_rfc_1319() {
        for (text, digest) in [
            ("", "8350e5a3e24c153df2275c9f80692773"),
            ("a", "32ec01ec4a6dac72c0ab96fb34c0b5d1"),
            ("abc", "da853b0d3f88d99b30283a69e6ded6bb"),
            ("message digest", "ab4f496bfb2a530b219ff33031fe06b0"),
            ("abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b"),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "da33def2a42df13975352846c30338cd"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "d5976f79d83d3a0dc9806c3c66f3efd8",
            ),
        ] {
            assert_eq!(hex(md2(text.as_bytes())), digest, "of {text:?}");
        }
    }

    fn statement(version: u32, devices: &[([u8; 16], [i32; 3])]) -> Statement<'_> {
        Statement {
            driver_version: 13000,
            version,
            pid: 4321,
            thread: 0xdead_beef,
            addresses: [0x7f00_1111_2000, 0x7f00_1111_3000, 0x7f00_1111_4000],
            unix_seconds: 1_700_000_000,
            devices,
        }
    }

    #[test]
    fn the_last_digit_chooses() {
        // As an H200's driver 580 answered.
        assert_eq!(statement(13000, &[]).answer(), [0x3341181c03cb675c, 0x8ed383aa1f4cd1e8]);
        assert_eq!(statement(13001, &[]).answer(), [0x1841181c03cb675c, 0x8ed383aa1f4cd1e8]);
        assert_ne!(statement(13002, &[]).answer(), statement(13003, &[]).answer());
    }

    /// From an independent implementation, whose table was made from the digits of pi.
    #[test]
    fn sums_of_a_known_statement() {
        let devices = [([0x29; 16], [0, 0, 6]), ([0x2a; 16], [0, 0, 7])];
        let s = statement(13002, &devices);
        assert_eq!(s.encode().len(), 48 + 2 * 28);
        assert_eq!(s.answer(), [0x6fecdb46aff8fb82, 0x4dda7aaa2f40a2f6]);
        assert_eq!(hex(hmac(&KEY, b"")), "f66b07aba4a875ea140c2cc013a41c6a");
    }
}
