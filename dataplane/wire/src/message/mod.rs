//! Messages: every request, reply and event that crosses between client and worker is a struct of these modules, named
//! by subject as the files of `api/rows` are. `calls` is generated, for the rows whose parameters say everything.
//!
//! To add a message:
//!
//! 1. Declare it in the file of its subject. One of a row has the function's name, without `cu` and the version:
//!    ```ignore
//!    messages! {
//!        command MemAllocPitch(ops::CU_MEM_ALLOC_PITCH_V2) {
//!            /// Of a row, in bytes.
//!            width: Size,
//!            rows: Size,
//!            element_bytes: u32,
//!        }
//!        reply MemAllocPitchReply(ops::CU_MEM_ALLOC_PITCH_V2) { address: u64, pitch: u64 }
//!    }
//!    ```
//!    `command`, `reply` and `event` are whole bodies; a `part` is a field of others. One `messages!` a file; it
//!    makes `ALL`, which `all.rs` lists. What borrows is declared `command Name<'a>(…)`. `choices!` makes an enum of
//!    numbers that are checked, `variants!` one whose number says what follows.
//! 2. The types of fields are in `field.rs` and `address.rs` and say what a number is: `Size` of memory, `Ordinal` of a
//!    device, `Existing<STREAM>` and `New<EVENT>` handles, `Bytes`, `Text`, `List<T, MAX>`, `Option<T>`, parts. What
//!    the client calls an address is a [`address::ClaimedDevice`], [`address::ClaimedHost`] and so on, never a `u64`.
//! 3. Write it: `call(MemAllocPitch::OP, |w| q.encode(w), MemAllocPitchReply::decode)` in the shim, and in the worker
//!    `MemAllocPitchReply { address, pitch }.encode(reply)`.
//! 4. Read it: `let q = MemAllocPitch::decode(&mut r)?;` comes first in a handler. It refuses what is too long, too
//!    short, or of a value that the type does not have. Addresses of `q` go to `Session::reach`, `Session::shared` and
//!    others of `worker/session/reach.rs`, which answer what a driver may be given.
//! 5. What the hostile client sends follows from the fields. What a type cannot say, such as numbers with which a
//!    kernel runs, goes into `attack/src/messages.rs`. Then `cargo api` and `cargo test -p orion-wire
//!    -p orion-api`: round trips, truncations, names and the hash need nothing written.

pub mod activity;
pub mod address;
pub mod all;
pub mod array;
pub mod callback;
pub mod calls;
pub mod capture;
pub mod carrier;
pub mod context;
pub mod copy;
mod declare;
pub mod event;
pub mod execution;
pub mod field;
pub mod graph;
pub mod graph_exec;
pub mod graph_node;
pub mod green_context;
pub mod host_memory;
pub mod image;
pub mod ipc;
pub mod layout;
pub mod library;
pub mod link;
pub mod log;
pub mod memory;
pub mod module;
pub mod occupancy;
pub mod pool;
pub mod stream;
pub mod tensor_map;
pub mod texture;
pub mod user_object;
pub mod virtual_memory;
