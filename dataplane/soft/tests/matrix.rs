//! Matrix instructions, each against plain loops over whole matrices.

use orion_soft::exec::narrow::{e4m3_to, e5m2_to};

/// A code of one sign bit, `exponent_bits` and fraction bits to fill `bits`, by the formula of binary formats.
fn by_formula(code: u32, bits: u32, exponent_bits: u32) -> f64 {
    let fraction_bits = bits - 1 - exponent_bits;
    let bias = (1 << (exponent_bits - 1)) - 1;
    let exponent = (code >> fraction_bits & ((1 << exponent_bits) - 1)) as i32;
    let fraction = f64::from(code & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
    let magnitude =
        if exponent == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(exponent - bias) };
    if code >> (bits - 1) & 1 == 1 { -magnitude } else { magnitude }
}

#[test]
fn every_code_of_eight_bits_has_its_value() {
    for code in 0..=255u8 {
        let (x, y) = (f64::from(e4m3_to(code)), f64::from(e5m2_to(code)));
        if code & 0x7f == 0x7f {
            assert!(x.is_nan());
        } else {
            assert_eq!(x.to_bits(), by_formula(code.into(), 8, 4).to_bits(), "e4m3 {code:#x}");
        }
        match code & 0x7f {
            0x7c => assert_eq!(y, if code >> 7 == 1 { f64::NEG_INFINITY } else { f64::INFINITY }),
            0x7d.. => assert!(y.is_nan()),
            _ => assert_eq!(y.to_bits(), by_formula(code.into(), 8, 5).to_bits(), "e5m2 {code:#x}"),
        }
    }
}
