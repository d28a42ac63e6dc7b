//! Requests that no client of ours sends, of every call and every path: each gets a clear error, and the controller
//! stays up. Those of gRPC are made from the description of the service, so a new field is tried too.

mod process;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use prost::Message;
use prost::bytes::{Buf, BufMut};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use process::Controller;

/// Nothing takes as long unless something hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than anybody reads, and than a header carries.
const ERROR_BYTES_MAX: usize = 2048;
const HUGE: usize = 1 << 20;

impl Controller {
    fn start(name: &str) -> Controller {
        Controller::started(name, |config| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_orion-controller"));
            command.args(["start", "--config-file"]).arg(config).stderr(Stdio::piped());
            command
        })
    }

    /// What it answers to a request that asks it to close the connection behind it.
    fn says(&self, bytes: &[u8]) -> Vec<u8> {
        self.answers(bytes, false)
    }

    /// Sends these bytes and nothing more, and waits until the connection is closed.
    fn hears(&self, bytes: &[u8]) {
        self.answers(bytes, true);
    }

    fn answers(&self, bytes: &[u8], is_all: bool) -> Vec<u8> {
        let mut socket = TcpStream::connect(self.address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // It may answer, and close, before it has read all of it.
        let _ = socket.write_all(bytes);
        if is_all {
            let _ = socket.shutdown(Shutdown::Write);
        }
        let mut answer = Vec::new();
        match socket.read_to_end(&mut answer) {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer to {:?}", shown(bytes)),
            _ => answer,
        }
    }

    fn is_well(&mut self) {
        let answer = self.says(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(answer.ends_with(b"ok\n"), "{}", shown(&answer));
        assert!(self.child.try_wait().expect("our child").is_none(), "the controller has ended");
    }

    fn end(mut self) {
        self.is_well();
        let _ = self.child.kill();
        let mut said = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert!(!said.contains("panicked"), "{said}");
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned()
}

/// Bytes instead of messages.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let count = from.remaining();
        Ok(Some(from.copy_to_bytes(count).to_vec()))
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// A field, as it goes over the wire.
fn field(number: i32, kind: u64, value: &[u8]) -> Vec<u8> {
    let length = if kind == 2 { varint(value.len() as u64) } else { Vec::new() };
    [varint((number as u64) << 3 | kind), length, value.to_vec()].concat()
}

/// How a field of this type is written; the number of that is in the low bits of its tag.
fn kind(field: &FieldDescriptorProto) -> u64 {
    match field.r#type() {
        Type::String | Type::Bytes | Type::Message => 2,
        _ => 0,
    }
}

/// Something that a field may hold.
fn sound(file: &FileDescriptorProto, f: &FieldDescriptorProto) -> Vec<u8> {
    match f.r#type() {
        Type::Message => field(f.number(), 2, &whole(file, message(file, f.type_name()), None)),
        Type::String => field(f.number(), 2, b"0123456789abcdef0123456789abcdef"),
        _ => field(f.number(), 0, &[1]),
    }
}

fn message<'a>(file: &'a FileDescriptorProto, name: &str) -> &'a DescriptorProto {
    let name = name.rsplit('.').next().expect("a name");
    file.message_type.iter().find(|m| m.name() == name).expect("it is described")
}

/// A message with all of its fields but one.
fn whole(file: &FileDescriptorProto, m: &DescriptorProto, without: Option<i32>) -> Vec<u8> {
    m.field.iter().filter(|f| Some(f.number()) != without).flat_map(|f| sound(file, f)).collect()
}

/// What is wrong with a message, whether it cannot be read at all, and the message.
type Wrong = (String, bool, Vec<u8>);

/// All that is wrong with one field of a message, beside its other fields.
fn wrongs(file: &FileDescriptorProto, m: &DescriptorProto, f: &FieldDescriptorProto) -> Vec<Wrong> {
    let (name, number) = (format!("{}.{}", m.name(), f.name()), f.number());
    let rest = whole(file, m, Some(number));
    let with = |bytes: Vec<u8>| [rest.clone(), bytes].concat();
    // Of the four that there are, those that are not this field's. A list of numbers may also be packed.
    let is_list = f.label() == Label::Repeated;
    let others = [(0, vec![1]), (1, vec![1; 8]), (2, vec![1]), (5, vec![1; 4])];
    let others = others.into_iter().filter(|(k, _)| *k != kind(f) && !(is_list && *k == 2));
    let mut all: Vec<Wrong> = vec![(format!("{name} is missing"), false, rest.clone())];
    all.extend(others.map(|(k, value)| (format!("{name} of kind {k}"), true, with(field(number, k, &value)))));
    match f.r#type() {
        Type::String => {
            all.push((format!("{name} is no UTF-8"), true, with(field(number, 2, &[0xff, 0xfe, 0x80]))));
            all.push((format!("{name} of control characters"), false, with(field(number, 2, b"a\n\0\x1b[2J"))));
            all.push((format!("{name} is huge"), false, with(field(number, 2, &vec![b'x'; HUGE]))));
            all.push((format!("{name} is empty"), false, with(field(number, 2, b""))));
            let short = [varint((number as u64) << 3 | 2), varint(99), b"x".to_vec()].concat();
            all.push((format!("{name} ends early"), true, with(short)));
        }
        Type::Message => {
            let inner = message(file, f.type_name());
            for f in &inner.field {
                let inside = wrongs(file, inner, f).into_iter();
                all.extend(inside.map(|(what, is_broken, m)| (what, is_broken, with(field(number, 2, &m)))));
            }
        }
        _ => {
            for huge in [u64::MAX, 1 << 63, 1 << 32, u64::from(u32::MAX), 0] {
                all.push((format!("{name} is {huge}"), false, with(field(number, 0, &varint(huge)))));
            }
            all.push((format!("{name} has no end"), true, with(field(number, 0, &[0xff; 11]))));
        }
    }
    if is_list {
        let many = sound(file, f).repeat(20_000);
        all.push((format!("{name} 20000 times"), false, with(many)));
    }
    all
}

/// What is wrong with a message, whichever it is.
fn broken(m: &DescriptorProto) -> Vec<Wrong> {
    let deep = |depth: usize| [vec![0x0b; depth], vec![0x0c; depth]].concat();
    vec![
        (format!("{} of nothing", m.name()), false, Vec::new()),
        (format!("{} of noise", m.name()), true, (0..=255).rev().collect()),
        (format!("{} with fields of another version", m.name()), false, field(999, 2, b"new")),
        (format!("{} that is deep", m.name()), true, deep(10_000)),
        (format!("{} of 5 MiB", m.name()), true, field(998, 2, &vec![0; 5 << 20])),
    ]
}

#[test]
fn every_call_answers_what_is_wrong_with_a_malformed_request_and_goes_on() {
    let set = FileDescriptorSet::decode(orion_proto::DESCRIPTORS).expect("it describes itself");
    let file = set.file.iter().find(|file| !file.service.is_empty()).expect("the one with the service");
    let mut controller = Controller::start("grpc");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let address = controller.address;
    let mut count = 0;
    runtime.block_on(async {
        let channel = Channel::from_shared(format!("http://{address}")).expect("an address");
        let channel = channel.connect().await.expect("it listens");
        let service = &file.service[0];
        for method in &service.method {
            let input = message(file, method.input_type());
            let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
            let fields = input.field.iter().flat_map(|f| wrongs(file, input, f));
            for (what, is_broken, bytes) in broken(input).into_iter().chain(fields) {
                let what = format!("{path}: {what}");
                let answer =
                    tokio::time::timeout(PATIENCE, call(channel.clone(), &path, bytes, method.server_streaming()));
                let answer = answer.await.unwrap_or_else(|_| panic!("{what}: no answer"));
                judge(&what, is_broken, answer);
                count += 1;
            }
        }
    });
    println!("{count} malformed requests");
    assert!(count > 300, "{count}: the description was not read");
    controller.is_well();
    controller.end();
}

async fn call(channel: Channel, path: &str, bytes: Vec<u8>, is_stream: bool) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let path: PathAndQuery = path.parse().expect("a path");
    match is_stream {
        // What happens from now on; nobody reads it.
        true => grpc.server_streaming(Request::new(bytes), path, Raw).await.map(drop),
        false => grpc.unary(Request::new(bytes), path, Raw).await.map(drop),
    }
}

/// Not everything that is odd is wrong. But what cannot be read is, and whoever is refused is told in words.
fn judge(what: &str, is_broken: bool, answer: Result<(), Status>) {
    let Err(status) = answer else {
        return assert!(!is_broken, "{what}: taken for a good one");
    };
    let text = status.message();
    assert!(!text.is_empty() && text.len() < ERROR_BYTES_MAX, "{what}: {} bytes: {text:.200}", text.len());
    let codes: &[Code] = match is_broken {
        true => &[Code::Internal, Code::InvalidArgument, Code::OutOfRange],
        // What is too long altogether is not read at all.
        false if text.contains("message length too large") => &[Code::OutOfRange],
        false => &[Code::InvalidArgument, Code::NotFound, Code::ResourceExhausted, Code::FailedPrecondition],
    };
    assert!(codes.contains(&status.code()), "{what}: {:?} {text}", status.code());
}

fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn plain(method: &str, path: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Bodies of `POST /allocations`, and of `POST /look`, in which something is wrong with each field.
fn bodies() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let values =
        ["null", "-1", "1e400", "1.5", "18446744073709551616", "99999999999", "true", "[]", "{}", "\"\\ud800\""];
    for name in ["allocation", "vgpus", "memory_mib", "ratio", "tenant", "group", "client", "wait_ms", "with_group"] {
        // An absent number is a good one where it may be absent.
        let is_good = |value: &str| value == "null" && matches!(name, "memory_mib" | "ratio");
        let is_flag = |value: &str| value == "true" && name == "with_group";
        let texts = values.iter().filter(|value| !is_good(value) && !is_flag(value));
        all.extend(texts.map(|value| format!("{{\"{name}\":{value}}}").into_bytes()));
        all.push([format!("{{\"{name}\":\"").as_bytes(), &[0xff, 0xfe], b"\"}"].concat());
        all.push(format!("{{\"{name}\":1,\"{name}\":1}}").into_bytes());
        all.push(format!("{{\"{name}\":\"{}\"}}", "x".repeat(20 << 10)).into_bytes());
    }
    all.extend(
        [&b""[..], b"{", b"null", b"[]", b"\"x\"", b"{\"vgpu\":1}", b"{}x", b"\xff", b"{\"a\":{}}"].map(<[u8]>::to_vec),
    );
    all.push("[".repeat(10_000).into_bytes());
    all.push("{\"a\":".repeat(2_000).into_bytes());
    all
}

#[test]
fn every_path_answers_what_is_wrong_with_a_malformed_request_and_goes_on() {
    let mut controller = Controller::start("http");
    let asked = |path: &'static str| bodies().into_iter().map(move |body| post(path, &body));
    let mut requests: Vec<Vec<u8>> = asked("/allocations").chain(asked("/look")).collect();
    let long = "x".repeat(8 << 10);
    for name in ["x", "%ff", "%00", "..%2f..", "0123456789abcdef0123456789abcdeg", &long] {
        requests.push(plain("DELETE", &format!("/allocations/{name}")));
        requests.push(post(&format!("/allocations/{name}/session"), b"1"));
    }
    requests.push(post("/allocations/00000000-0000-4000-8000-000000000001/session", b"1"));
    requests.push(plain("GET", "/devices?res=%ff"));
    requests.push(plain("GET", "/devices?res=mlu"));
    for path in ["/", "/nothing", "/allocations/a/b/c", "//", "/%00"] {
        requests.push(plain("GET", path));
    }
    for path in ["/info", "/devices", "/healthz", "/metrics", "/allocations/x", "/allocations/x/session", "/look"] {
        requests.push(plain("PATCH", path));
    }
    requests.push(plain("GET", "/allocations"));
    requests.push(plain("GET", "/look"));
    for request in &requests {
        let answer = controller.says(request);
        let (head, body) = answer.split_at(answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(answer.len()));
        let status: u16 = String::from_utf8_lossy(head).split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        let what = shown(request);
        assert!((400..500).contains(&status), "{what}\nis answered\n{}", shown(&answer));
        let text = body.strip_prefix(b"\r\n\r\n").expect("a body");
        assert!(!text.is_empty() && text.len() < ERROR_BYTES_MAX, "{what}\nis answered\n{}", shown(&answer));
        assert!(std::str::from_utf8(text).is_ok(), "{what}\nis answered\n{}", shown(&answer));
    }
    println!("{} malformed requests", requests.len());
    controller.is_well();
    // What is no HTTP gets whatever the library says, and nothing that hurts.
    for bytes in
        [&b"\x16\x03\x01\x02"[..], b"GET", b"GET / HTTP/9\r\n\r\n", b"\0\0\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxx"]
    {
        controller.hears(bytes);
    }
    let header = "a".repeat(HUGE);
    controller.hears(format!("GET /info HTTP/1.1\r\nHost: x\r\nX: {header}\r\n\r\n").as_bytes());
    controller.hears(b"POST /allocations HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}");
    controller.hears(b"POST /allocations HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n{}");
    controller.hears(b"POST /allocations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    controller.hears(b"POST /allocations HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{\"vgpus\"");
    controller.is_well();
    controller.end();
}
