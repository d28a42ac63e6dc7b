//! The pool in one file, in which every change is a transaction that is on the disk before anybody is told.

use std::path::{Path, PathBuf};

use orion_pool::pool::Change;
use orion_transport::lease::MasterKey;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Campaign, FORM_NUMBER, Failed, Failure, Kept, Store, decoded, encoded};
use crate::key::KeyFile;

/// By name, in JSON.
const NODES: TableDefinition<&str, &[u8]> = TableDefinition::new("nodes");
const ALLOCATIONS: TableDefinition<u128, &[u8]> = TableDefinition::new("allocations");
const QUOTAS: TableDefinition<&str, &[u8]> = TableDefinition::new("quotas");
/// Of the form of what is stored.
const FORM: TableDefinition<&str, u64> = TableDefinition::new("form");

/// One process has the file, so it always leads.
pub struct Embedded {
    path: PathBuf,
    /// Nothing after a failure, until it could be opened again.
    database: Option<Database>,
    key: KeyFile,
}

impl Embedded {
    pub fn open(folder: &Path) -> Result<Embedded, String> {
        std::fs::create_dir_all(folder).map_err(|e| format!("creating {} failed: {e}", folder.display()))?;
        let path = folder.join("pool.redb");
        let mut store = Embedded { path, database: None, key: KeyFile::in_folder(folder) };
        let opened = store.open_again().map(drop).map_err(|e| match e.downcast_ref() {
            Some(redb::DatabaseError::DatabaseAlreadyOpen) => {
                "another controller runs with this database.data-dir; end it, or name another folder".to_owned()
            }
            _ => e.to_string(),
        });
        opened.map_err(|e| format!("opening the store {} failed: {e}", store.path.display()))?;
        Ok(store)
    }

    fn open_again(&mut self) -> Result<&Database, Failure> {
        if self.database.is_none() {
            let database = Database::create(&self.path)?;
            let transaction = database.begin_write()?;
            {
                transaction.open_table(NODES)?;
                transaction.open_table(ALLOCATIONS)?;
                transaction.open_table(QUOTAS)?;
                let mut form = transaction.open_table(FORM)?;
                let found = form.get("number")?.map(|n| n.value());
                match found {
                    None => drop(form.insert("number", FORM_NUMBER)?),
                    Some(FORM_NUMBER) => {}
                    Some(other) => {
                        let ours = FORM_NUMBER;
                        return Err(format!("it has form {other}, and this controller reads form {ours}").into());
                    }
                }
            }
            transaction.commit()?;
            self.database = Some(database);
        }
        Ok(self.database.as_ref().expect("just opened"))
    }

    fn kept(&mut self) -> Result<Kept, Failure> {
        let read = self.open_again()?.begin_read()?;
        let mut kept = Kept::default();
        for entry in read.open_table(NODES)?.iter()? {
            kept.nodes.push(decoded(entry?.1.value())?);
        }
        for entry in read.open_table(ALLOCATIONS)?.iter()? {
            kept.allocations.push(decoded(entry?.1.value())?);
        }
        for entry in read.open_table(QUOTAS)?.iter()? {
            let (tenant, quota) = entry?;
            kept.quotas.push((tenant.value().to_owned(), decoded(quota.value())?));
        }
        Ok(kept)
    }
}

impl Store for Embedded {
    fn master_key(&mut self) -> Result<MasterKey, Failed> {
        self.key.own().map_err(Failed::ForGood)
    }

    fn campaign(&mut self) -> Result<Campaign, String> {
        Ok(Campaign::Leads)
    }

    fn read(&mut self) -> Result<Kept, Failed> {
        let path = self.path.clone();
        self.kept().map_err(|e| Failed::Store(format!("reading the store {} failed: {e}", path.display())))
    }

    fn write(&mut self, changes: &[Change]) -> Result<(), Failed> {
        if changes.is_empty() {
            return Ok(());
        }
        let written = self.open_again().and_then(|database| commit(database, changes));
        written.map_err(|e| {
            // What a file looks like behind a failed write its library finds out when it opens it.
            self.database = None;
            Failed::Store(format!("writing the store {} failed: {e}", self.path.display()))
        })
    }

    fn probe(&mut self) -> Result<(), Failed> {
        let written = self.open_again().and_then(|database| {
            let transaction = database.begin_write()?;
            transaction.open_table(FORM)?.insert("number", FORM_NUMBER)?;
            Ok(transaction.commit()?)
        });
        written.map_err(|e| {
            self.database = None;
            Failed::Store(format!("writing the store {} failed: {e}", self.path.display()))
        })
    }
}

fn commit(database: &Database, changes: &[Change]) -> Result<(), Failure> {
    let transaction = database.begin_write()?;
    {
        let mut nodes = transaction.open_table(NODES)?;
        let mut allocations = transaction.open_table(ALLOCATIONS)?;
        let mut quotas = transaction.open_table(QUOTAS)?;
        for change in changes {
            match change {
                Change::Node(report, standing) => {
                    nodes.insert(report.name.as_str(), encoded(&(report, standing))?.as_slice())?;
                }
                Change::NodeGone(name) => drop(nodes.remove(name.as_str())?),
                Change::Allocation(a) => drop(allocations.insert(a.id.0, encoded(a)?.as_slice())?),
                Change::AllocationGone(id) => drop(allocations.remove(id.0)?),
                Change::Quota(tenant, quota) => {
                    quotas.insert(tenant.as_str(), encoded(quota)?.as_slice())?;
                }
                Change::QuotaGone(tenant) => drop(quotas.remove(tenant.as_str())?),
            }
        }
    }
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use orion_pool::pool::{Answer, Pool, Quota, Settings};
    use orion_pool::{Allocation, AllocationId, Ask, Gpu, MIB, NodeReport};

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("orion-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn pool(store: &mut Embedded) -> Pool {
        store.read().expect("reading").restore(Settings::default(), 0).expect("it is sound")
    }

    #[test]
    fn what_was_written_is_read_and_what_was_not_is_not() {
        let folder = folder("again");
        let mut store = Embedded::open(&folder).expect("opening");
        let mut pool = self::pool(&mut store);
        let gpu = Gpu { uuid: "GPU-1".into(), name: "GPU".into(), memory: 8 << 30, reserve: 0 };
        let report = NodeReport {
            name: "a".into(),
            address: "10.0.0.1:9960".into(),
            further: Vec::new(),
            gpus: vec![gpu],
            split: 5,
            oriond: String::new(),
            kept: 1,
            certificate: String::new(),
        };
        pool.register(0, report).expect("a sound report");
        let ask = Ask { vgpus: 2, memory: Some(1024 * MIB), ..Ask::default() };
        let Ok(Answer::Granted(granted)) = pool.allocate(0, AllocationId(7), ask.clone()) else { panic!() };
        pool.set_quota(0, "red", Some(Quota { vgpus: Some(3), ..Quota::default() })).expect("a good name");
        store.write(&pool.take_changes()).expect("writing");
        // Never written.
        pool.allocate(0, AllocationId(8), ask).expect("room");
        drop(store);
        let mut store = Embedded::open(&folder).expect("opening again");
        let pool = self::pool(&mut store);
        let found: Vec<&Allocation> = pool.allocations().collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].id, &found[0].places), (granted.id, &granted.places));
        assert_eq!(pool.quotas().count(), 1);
        std::fs::remove_dir_all(&folder).expect("removing");
    }

    #[test]
    fn a_store_that_somebody_else_uses_or_that_is_none_is_refused() {
        let folder = folder("used");
        let store = Embedded::open(&folder).expect("opening");
        let refused = Embedded::open(&folder).map(drop).expect_err("it is in use");
        assert!(refused.contains("pool.redb"), "{refused}");
        drop(store);
        std::fs::write(folder.join("pool.redb"), "somebody's file, and long enough to be looked at").expect("writing");
        let refused = Embedded::open(&folder).map(drop).expect_err("it is no store");
        assert!(refused.contains("pool.redb"), "{refused}");
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
