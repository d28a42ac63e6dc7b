//! Bad days of a pool, on machines of its own: whoever is killed or cut off, nobody has what is another's, what runs
//! goes on where it can, and what cannot be had is said.
//!
//! The machines are network namespaces, so this takes root and `ip`. `ORION_DAYS_KILLS` is how often somebody is
//! killed, with each kind of store, `ORION_DAYS_SEED` by which numbers; both are in the first line that the test
//! prints.

// UNSAFETY: unshare and setns.

mod chaos;
#[path = "../../../controller/tests/etcd/cluster.rs"]
mod cluster;
mod cuts;
mod field;
mod net;
mod remote;
#[allow(dead_code, reason = "what other tests need of it")]
#[path = "../pool/scene.rs"]
mod scene;
