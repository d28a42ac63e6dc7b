//! The table with what it is checked against.

use crate::cbids::Cbids;
use crate::header::Header;
use crate::nvml;
use crate::rows::{self, Pending, Row};

/// The table with what it is checked against.
pub struct Api {
    pub header: Header,
    pub rows: Vec<Row>,
    pub pending: Pending,
    /// Symbols that the real `libcuda.so.1` exports.
    pub exports: Vec<String>,
    pub cbids: Cbids,
    pub nvml: Vec<nvml::Row>,
}

/// A generated file, relative to the repository's root.
pub struct Generated {
    pub path: &'static str,
    pub text: String,
}

impl Api {
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.name == name)
    }

    /// The id under which a row's work reaches the worker, following aliases.
    pub fn op(&self, row: &Row) -> Option<u16> {
        match &row.answered {
            rows::Answered::Alias(target) => self.row(target).and_then(|r| self.op(r)),
            _ => row.id,
        }
    }
}
