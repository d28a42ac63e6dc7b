//! What is stored in an etcd under which name, and in which order.

use std::collections::BTreeMap;

use orion_etcd::proto::RequestOp;
use orion_etcd::txn;
use orion_pool::pool::Change;

use super::{Failure, Kept, decoded, encoded};

/// What the names of all keys begin with.
pub const ROOT: &str = "orion/";
pub const NODES: &str = "orion/nodes/";
pub const ALLOCATIONS: &str = "orion/allocations/";
pub const QUOTAS: &str = "orion/quotas/";

/// etcd takes 128 operations in one transaction, and 1.5 MiB, if nobody has told it otherwise.
const OPERATIONS_MAX: usize = 120;
const BYTES_MAX: usize = 1 << 20;

/// What is to be stored, in transactions one after the other. A pool that is read between two of them is sound, as room
/// is given back before it is taken again, and a node is there before what lies on it.
pub fn transactions(changes: &[Change]) -> Result<Vec<Vec<RequestOp>>, Failure> {
    let (mut gone, mut nodes, mut rest) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for change in changes {
        match change {
            Change::AllocationGone(id) => {
                let key = format!("{ALLOCATIONS}{id}");
                rest.remove(&key);
                gone.insert(key, None);
            }
            Change::Allocation(a) => drop(rest.insert(format!("{ALLOCATIONS}{}", a.id), Some(encoded(a)?))),
            Change::Node(report, standing) => {
                nodes.insert(format!("{NODES}{}", report.name), Some(encoded(&(report, standing))?));
            }
            // It is empty by then.
            Change::NodeGone(name) => drop(nodes.insert(format!("{NODES}{name}"), None)),
            Change::Quota(tenant, quota) => drop(rest.insert(format!("{QUOTAS}{tenant}"), Some(encoded(quota)?))),
            Change::QuotaGone(tenant) => drop(rest.insert(format!("{QUOTAS}{tenant}"), None)),
        }
    }
    let mut transactions: Vec<Vec<RequestOp>> = Vec::new();
    let (mut bytes, mut names) = (0, Vec::new());
    for (key, value) in gone.into_iter().chain(nodes).chain(rest) {
        bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        // etcd takes a key once in a transaction.
        if names.is_empty() || names.len() == OPERATIONS_MAX || bytes > BYTES_MAX || names.contains(&key) {
            transactions.push(Vec::new());
            bytes = key.len() + value.as_ref().map_or(0, Vec::len);
            names.clear();
        }
        names.push(key.clone());
        transactions.last_mut().expect("just made").push(match value {
            Some(value) => txn::put(key, value, 0),
            None => txn::delete(key),
        });
    }
    Ok(transactions)
}

impl Kept {
    /// Takes in what stands under one of the names above.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let key = std::str::from_utf8(key)?;
        if key.starts_with(NODES) {
            self.nodes.push(decoded(value)?);
        } else if key.starts_with(ALLOCATIONS) {
            self.allocations.push(decoded(value)?);
        } else if let Some(tenant) = key.strip_prefix(QUOTAS) {
            self.quotas.push((tenant.to_owned(), decoded(value)?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use orion_etcd::proto::request_op::Request;
    use orion_pool::pool::{Answer, Pool, Settings};
    use orion_pool::{AllocationId, Ask, Gpu, MIB, NodeReport};

    use super::*;

    fn report(uuids: &[&str]) -> NodeReport {
        let gpu = |uuid: &&str| Gpu { uuid: (*uuid).into(), name: "GPU".into(), memory: 300 * MIB, reserve: 0 };
        let gpus = uuids.iter().map(gpu).collect();
        NodeReport {
            name: "a".into(),
            address: "a:1".into(),
            further: vec!["rdma:a:2".into()],
            gpus,
            split: 100,
            oriond: String::new(),
            kept: 0,
            certificate: String::new(),
        }
    }

    fn apply(store: &mut BTreeMap<Vec<u8>, Vec<u8>>, operations: &[RequestOp]) {
        for operation in operations {
            match operation.request.as_ref().expect("one") {
                Request::RequestPut(put) => drop(store.insert(put.key.clone(), put.value.clone())),
                Request::RequestDeleteRange(delete) => drop(store.remove(&delete.key)),
                Request::RequestRange(_) => unreachable!("nothing is read"),
            }
        }
    }

    /// A node comes back with other GPUs, and all its 300 vGPUs are given anew, under the same names.
    #[test]
    fn a_pool_that_is_read_between_two_transactions_is_sound() {
        let mut pool = Pool::new(Settings::default());
        pool.register(0, report(&["1", "2", "3"])).expect("a sound report");
        let ask = Ask { vgpus: 1, memory: Some(MIB), ratio: Some(1), ..Ask::default() };
        let fill = |pool: &mut Pool| {
            for id in 0..300 {
                assert!(matches!(pool.allocate(0, AllocationId(id), ask.clone()), Ok(Answer::Granted(_))));
            }
        };
        fill(&mut pool);
        let mut store = BTreeMap::new();
        transactions(&pool.take_changes()).expect("JSON").iter().for_each(|t| apply(&mut store, t));
        pool.register(0, report(&["4", "1", "5"])).expect("a sound report");
        let had: Vec<AllocationId> = pool.allocations().map(|a| a.id).collect();
        for id in had {
            pool.release(0, id, orion_pool::Why::Released);
        }
        fill(&mut pool);
        let all = transactions(&pool.take_changes()).expect("JSON");
        assert!(all.len() >= 5 && all.iter().all(|t| t.len() <= OPERATIONS_MAX));
        for transaction in &all {
            apply(&mut store, transaction);
            let mut kept = Kept::default();
            store.iter().for_each(|(key, value)| kept.take(key, value).expect("JSON"));
            kept.restore(Settings::default(), 0).expect("a sound pool");
        }
        assert_eq!(store.len(), 301);
    }
}
