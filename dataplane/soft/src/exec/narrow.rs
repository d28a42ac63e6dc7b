//! Formats of eight bits: what their codes stand for. Every value is exact in single precision.

use super::float;

/// Four bits of exponent and three of fraction; no infinities, and one NaN of each sign.
pub fn e4m3_to(code: u8) -> f32 {
    let sign = u32::from(code & 0x80) << 24;
    let exponent = u32::from(code >> 3) & 15;
    let fraction = u32::from(code & 7);
    let magnitude = match (exponent, fraction) {
        (15, 7) => 0x7fff_ffff,
        // Steps of 2^-9.
        (0, _) => (fraction as f32 * f32::from_bits((127 - 9) << 23)).to_bits(),
        _ => ((exponent + 120) << 23) | (fraction << 20),
    };
    f32::from_bits(sign | magnitude)
}

/// Five bits of exponent and two of fraction: the upper half of half precision.
pub fn e5m2_to(code: u8) -> f32 {
    float::f16_to(u16::from(code) << 8)
}
