//! What transactions are made of.

use crate::proto::compare::{CompareTarget, TargetUnion};
use crate::proto::request_op::Request;
use crate::proto::response_op::Response;
use crate::proto::{Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, TxnResponse};

/// That a key was made at this revision; 0: that it is not there.
pub fn created_at(key: &str, revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Create.into(),
        key: key.into(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Default::default()
    }
}

/// That a key was written last at this revision.
pub fn written_at(key: &str, revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Mod.into(),
        key: key.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Default::default()
    }
}

/// `lease` is 0 if the key is to stay.
pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> RequestOp {
    RequestOp { request: Some(Request::RequestPut(PutRequest { key: key.into(), value: value.into(), lease })) }
}

pub fn delete(key: impl Into<Vec<u8>>) -> RequestOp {
    RequestOp { request: Some(Request::RequestDeleteRange(DeleteRangeRequest { key: key.into() })) }
}

pub fn get(key: &str) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(RangeRequest { key: key.into(), ..Default::default() })) }
}

/// What the operation with this number, a [`get`], has found.
#[must_use]
pub fn found(answer: &TxnResponse, number: usize) -> Option<&KeyValue> {
    match answer.responses.get(number)?.response.as_ref()? {
        Response::ResponseRange(range) => range.kvs.first(),
        _ => None,
    }
}

/// The revision at which it was carried out.
#[must_use]
pub fn revision(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}
