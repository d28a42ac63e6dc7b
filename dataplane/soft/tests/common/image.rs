//! Fat binaries, as compilers write them.

pub const PTX: u16 = 1;
pub const CUBIN: u16 = 2;

/// A fat binary of programs, each a kind, a compute capability and its bytes.
pub fn fat_binary(programs: &[(u16, u32, &[u8])]) -> Vec<u8> {
    let mut entries = Vec::new();
    for (kind, sm, bytes) in programs {
        let mut head = [0u8; 64];
        let padded = bytes.len().next_multiple_of(8);
        head[0..2].copy_from_slice(&kind.to_le_bytes());
        head[4..8].copy_from_slice(&64u32.to_le_bytes());
        head[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        head[28..32].copy_from_slice(&sm.to_le_bytes());
        entries.extend(head);
        entries.extend(*bytes);
        entries.resize(entries.len() + padded - bytes.len(), 0);
    }
    let mut image = 0xba55_ed50u32.to_le_bytes().to_vec();
    image.extend([1, 0, 16, 0]);
    image.extend((entries.len() as u64).to_le_bytes());
    image.extend(entries);
    image
}
