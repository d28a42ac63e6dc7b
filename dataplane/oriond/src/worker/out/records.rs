//! Records on their way to the client.

use std::time::Duration;

use orion_ring::{Corrupt, Producer, Spin};
use orion_wire::Fault;
use orion_wire::record::{Header, RECORD_BYTES_MAX, op};

/// Pushes a record, waiting for room as long as it takes: the watcher of the client's socket ends this process
/// if the client is gone.
pub fn push(producer: &mut Producer, header: &Header, body: &[u8]) -> Result<(), Fault> {
    append(producer, header, body)?;
    producer.publish();
    Ok(())
}

/// As [`push`], but seen by the client only with the next record.
///
/// # Panics
/// If nobody would take a record of that size: it ends here, by its name, and not as a broken rule at the other end.
pub fn append(producer: &mut Producer, header: &Header, body: &[u8]) -> Result<(), Fault> {
    let size = header.size as usize;
    assert!(size <= RECORD_BYTES_MAX && size.is_multiple_of(8), "record of {size} bytes: {}", op::name(header.op));
    let parts: [&[u8]; 2] = [&header.encode(), body];
    let spin = Spin::adaptive(Duration::from_micros(100));
    loop {
        match producer.append(&parts) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                producer
                    .wait_room(header.size as usize, spin, Duration::from_millis(100))
                    .map_err(|Corrupt| Fault("ring positions are impossible"))?;
            }
            Err(Corrupt) => return Err(Fault("ring positions are impossible")),
        }
    }
}
