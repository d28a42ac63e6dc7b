//! Private tables.

/// The undocumented tables that NVIDIA's libraries need.
#[local]
#[since(3000)]
fn cuGetExportTable(ppExportTable: *mut *const c_void, pExportTableId: *const CUuuid);
