//! Images that say more of themselves than there is.

use orion_cuda::sys::{CU_JIT_INPUT_FATBINARY, CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS};
use orion_wire::bundle;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::field::{Bytes, Existing, List, New};
use orion_wire::message::image::Payload;
use orion_wire::message::link::{LinkAddData, LinkCreate, LinkDestroy};
use orion_wire::message::module::ModuleLoadData;

use crate::harness::{Client, Oriond, Transport, body};

const MODULE: u64 = Handle::new(Kind::Module, 0, 0).0;
const LINK: u64 = Handle::new(Kind::LinkState, 0, 0).0;

/// The request for a link of this name.
fn link(name: u64) -> Vec<u8> {
    body(&LinkCreate { link: New(name), options: List::default() })
}

fn load(client: &mut Client, image: &[u8]) -> u32 {
    let image = Payload::Inline(Bytes::from(image));
    client
        .ask(
            ModuleLoadData::OP,
            &body(&ModuleLoadData { module: New(MODULE), image, options: List::default(), owner: c"".into() }),
        )
        .0
}

/// A fat binary of `bytes` bytes behind its header, as it says.
fn fat_binary(bytes: u64, rest: &[u8]) -> Vec<u8> {
    let mut image = 0xba55_ed50u32.to_le_bytes().to_vec();
    image.extend([1, 0, 16, 0]);
    image.extend(bytes.to_le_bytes());
    image.extend(rest);
    image
}

#[test]
fn an_image_whose_parts_lie_outside_it_is_refused_before_the_driver_has_it() {
    let server = Oriond::start(&["--driver", "soft", "--heap", "256 MiB"]);
    let mut binary = b"\x7fELF\x02\x01\x01\x33".to_vec();
    binary.resize(64, 0);
    (binary[16], binary[18], binary[20], binary[52]) = (2, 190, 1, 64);
    // A table of sections, far away.
    binary[40..48].copy_from_slice(&(1u64 << 40).to_le_bytes());
    (binary[58], binary[60]) = (64, 3);
    // An entry of PTX whose content is a gigabyte.
    let mut entry = vec![0; 64];
    (entry[0], entry[2], entry[3], entry[4], entry[28]) = (1, 1, 1, 64, 75);
    entry[8..16].copy_from_slice(&(1u64 << 30).to_le_bytes());
    let far = fat_binary(1 << 30, b"");
    let lying = [far.clone(), fat_binary(64, &entry), far[..15].to_vec(), binary, bundle::encode(&[&far, &far])];
    for &transport in Transport::ALL {
        let mut client = Client::attach(&server, transport);
        client.context = Handle::primary_context(0).0;
        for (i, image) in lying.iter().enumerate() {
            assert_eq!(load(&mut client, image), CUDA_ERROR_INVALID_IMAGE, "image {i}");
        }
        assert_eq!(client.ask(LinkCreate::OP, &link(LINK)).0, CUDA_SUCCESS);
        let data = Payload::Inline(Bytes::from(&far[..]));
        let (link, name, options) = (Existing(LINK), c"far".into(), List::default());
        let input = body(&LinkAddData { link, input_type: CU_JIT_INPUT_FATBINARY, data, name, options });
        assert_eq!(client.ask(LinkAddData::OP, &input).0, CUDA_ERROR_INVALID_IMAGE, "the linker's input");
        let good = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";
        assert_eq!(load(&mut client, good), CUDA_SUCCESS);
    }
}

/// Each link has a thread of the worker's.
#[test]
fn a_session_has_so_many_links_at_once_and_no_more() {
    const LINKS_MAX: u32 = 1024;
    let server = Oriond::start(&["--driver", "soft", "--heap", "256 MiB"]);
    let mut client = Client::attach(&server, Transport::Shm);
    client.context = Handle::primary_context(0).0;
    let name = |index| Handle::new(Kind::LinkState, 0, index);
    let made = (0..=LINKS_MAX).map(|index| client.ask(LinkCreate::OP, &link(name(index).0)).0).collect::<Vec<_>>();
    let (last, others) = made.split_last().expect("some were asked for");
    assert!(others.iter().all(|code| *code == CUDA_SUCCESS), "{others:?}");
    assert_eq!(*last, CUDA_ERROR_OUT_OF_MEMORY);
    client.post(LinkDestroy::OP, &body(&LinkDestroy { link: name(7).into() }));
    assert_eq!(client.ask(LinkCreate::OP, &link(name(LINKS_MAX).0)).0, CUDA_SUCCESS);
}
