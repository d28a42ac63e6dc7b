//! The calls and their messages, from `etcd.proto`.

#![allow(clippy::all)]

tonic::include_proto!("etcdserverpb");
