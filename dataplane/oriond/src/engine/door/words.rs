//! What stands in a session's own log of how it began, in the original's words: its documents teach to look there for
//! the way that a session takes and for the vGPUs that it has.

use orion_wire::address::{Carrier, Leads};
use tracing::info;

use crate::attach::Registered;
use crate::log::OF_A_SESSION;

/// It has a worker. `has_choice` says whether this server has a shorter way for programs of its machine.
pub fn begun(session: u64, is_leased: bool, carrier: &Carrier, has_choice: bool) {
    if is_leased {
        info!(target: OF_A_SESSION, session, "Resource successfully confirmed with controller");
    }
    let mode = carrier.name.to_uppercase();
    match carrier.leads_to != Leads::ToHost || !has_choice {
        true => info!(target: OF_A_SESSION, session, "Client supports {mode} mode, then server runs in {mode} mode."),
        false => {
            info!(
                target: OF_A_SESSION, session,
                "Client supports {mode} mode, then server also falls back to {mode} mode."
            );
        }
    }
}

/// Its worker has said which vGPUs it has.
pub fn started(session: u64, vgpus: &[Registered]) {
    let list = list(vgpus);
    info!(
        target: OF_A_SESSION, session,
        "Final virtual gpu list <vID:pID:mbSize>: {list}, begin to initialize CUDA device manager"
    );
    for Registered { vgpu, gpu, .. } in vgpus {
        info!(target: OF_A_SESSION, session, "Registered v-GPU {vgpu} on p-GPU {gpu}.");
    }
    info!(target: OF_A_SESSION, session, "Architecture initialization is done. Resource is confirmed.");
}

fn list(vgpus: &[Registered]) -> String {
    let one = |v: &Registered| format!("{}:{}:{}", v.vgpu, v.gpu, v.memory_bytes >> 20);
    vgpus.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vgpus_are_listed_as_the_original_lists_them() {
        let of = |vgpu, gpu| Registered { vgpu, gpu, uuid: [0; 16], memory_bytes: 15500 << 20 };
        assert_eq!(list(&[of(0, 0), of(0, 1)]), "0:0:15500,0:1:15500");
    }
}
