//! What a field of a message may be.

use std::ffi::CString;

use crate::codec::{Fault, Reader, Writer};
use crate::handle::{Handle, Kind};
use crate::message::layout::{Part, Shape};
use crate::record::{HeapRange, RECORD_BYTES_MAX};

/// A type that a field of a message has.
pub trait Field<'a>: Sized {
    const SHAPE: Shape;

    fn put(&self, w: &mut impl Writer);
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault>;
}

/// A whole body.
pub trait Message<'a>: Field<'a> {
    const NAME: &'static str;
    const FIELDS: &'static [Part];
    /// The hash of its name and of its fields' names and types, in their order.
    const LAYOUT: u64;
}

macro_rules! numbers {
    ($($ty:ty, $bits:expr, $value:ident, $to:expr, $from:expr;)*) => { $(
        impl<'a> Field<'a> for $ty {
            const SHAPE: Shape = Shape::Number($bits);

            #[inline]
            fn put(&self, w: &mut impl Writer) {
                let $value = *self;
                w.word($to);
            }

            #[inline]
            fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
                let $value = r.word()?;
                if $bits < 64 && $value >> ($bits % 64) != 0 {
                    return Err(Fault("number out of its type's range"));
                }
                Ok($from)
            }
        }
    )* };
}

numbers! {
    u8, 8, v, u64::from(v), v as u8;
    u16, 16, v, u64::from(v), v as u16;
    u32, 32, v, u64::from(v), v as u32;
    u64, 64, v, v, v;
    // Signed numbers as the unsigned one of their width, so that the upper half is always zero.
    i32, 32, v, u64::from(v as u32), v as u32 as i32;
    f32, 32, v, u64::from(v.to_bits()), f32::from_bits(v as u32);
    f64, 64, v, v.to_bits(), f64::from_bits(v);
}

/// C's `size_t` counts memory, mostly.
impl<'a> Field<'a> for usize {
    const SHAPE: Shape = Shape::Size;

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        w.word(*self as u64);
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        usize::try_from(r.word()?).map_err(|_| Fault("number out of its type's range"))
    }
}

impl<'a> Field<'a> for bool {
    const SHAPE: Shape = Shape::Flag;

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        w.word(u64::from(*self));
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        match r.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault("a flag is neither 0 nor 1")),
        }
    }
}

/// Types that are one word, whatever its value.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident($ty:ty): $shape:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name(pub $ty);

        impl<'a> Field<'a> for $name {
            const SHAPE: Shape = $shape;

            #[inline]
            fn put(&self, w: &mut impl Writer) {
                self.0.put(w);
            }

            #[inline]
            fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
                Ok($name(Field::get(r)?))
            }
        }
    )* };
}

words! {
    /// How much memory: bytes, rows, elements.
    Size(u64): Shape::Size;
    /// How many elements the arrays of the message have.
    Count(u64): Shape::Count;
    /// A device, as the application counts them.
    Ordinal(i32): Shape::Ordinal;
    /// Which of the client's callback functions. The function itself never crosses, nor does what it is given.
    CallbackId(u64): Shape::Callback;
}

/// Two numbers in one word, the lower half first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Halves(pub u32, pub u32);

impl<'a> Field<'a> for Halves {
    const SHAPE: Shape = Shape::Halves;

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        w.word(u64::from(self.0) | u64::from(self.1) << 32);
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        let word = r.word()?;
        Ok(Halves(word as u32, (word >> 32) as u32))
    }
}

impl Size {
    pub fn of(bytes: usize) -> Size {
        Size(bytes as u64)
    }
}

macro_rules! kinds {
    ($($name:ident $kind:ident;)*) => { $(
        pub const $name: u8 = Kind::$kind as u8;
    )*

    const fn kind(number: u8) -> Kind {
        match number {
            $($name => Kind::$kind,)*
            _ => panic!("no kind of handle has this number"),
        }
    } };
}

kinds! {
    CONTEXT Context;
    MODULE Module;
    LIBRARY Library;
    FUNCTION Function;
    STREAM Stream;
    EVENT Event;
    ARRAY Array;
    MIPMAPPED_ARRAY MipmappedArray;
    GRAPH Graph;
    GRAPH_NODE GraphNode;
    GRAPH_EXEC GraphExec;
    MEM_POOL MemPool;
    MEM_ALLOCATION MemAllocation;
    LINK_STATE LinkState;
    GREEN_CONTEXT GreenContext;
    USER_OBJECT UserObject;
    DEV_RESOURCE_DESC DevResourceDesc;
}

/// The client's name of something that exists, or 0. Whether it exists is the worker's to find out: an application may
/// pass anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Existing<const KIND: u8>(pub u64);

/// The name that the client has chosen for something that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct New<const KIND: u8>(pub u64);

impl<const KIND: u8> Existing<KIND> {
    pub const KIND: Kind = kind(KIND);
}

impl<const KIND: u8> New<KIND> {
    pub const KIND: Kind = kind(KIND);
}

impl<const KIND: u8> From<Handle> for Existing<KIND> {
    fn from(handle: Handle) -> Self {
        Existing(handle.0)
    }
}

impl<const KIND: u8> From<Handle> for New<KIND> {
    fn from(handle: Handle) -> Self {
        New(handle.0)
    }
}

macro_rules! names {
    ($($name:ident)*) => { $(
        impl<'a, const KIND: u8> Field<'a> for $name<KIND> {
            const SHAPE: Shape = Shape::$name(kind(KIND));

            #[inline]
            fn put(&self, w: &mut impl Writer) {
                w.word(self.0);
            }

            #[inline]
            fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
                Ok($name(r.word()?))
            }
        }
    )* };
}

names! { Existing New }

/// An address that only the device follows, as those in a kernel's parameters. It may be any: nobody decides on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FollowedByDevice(pub u64);

impl<'a> Field<'a> for FollowedByDevice {
    const SHAPE: Shape = Shape::DeviceAddress;

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        w.word(self.0);
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        Ok(FollowedByDevice(r.word()?))
    }
}

impl<'a, T: Field<'a> + Copy + Default, const COUNT: usize> Field<'a> for [T; COUNT] {
    const SHAPE: Shape = Shape::Several(&T::SHAPE, COUNT);

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        self.iter().for_each(|element| element.put(w));
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        let mut all = [T::default(); COUNT];
        for element in &mut all {
            *element = T::get(r)?;
        }
        Ok(all)
    }
}

/// More than a field has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// A byte string of at most `MAX` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bytes<'a, const MAX: usize = RECORD_BYTES_MAX>(&'a [u8]);

impl<'a, const MAX: usize> Bytes<'a, MAX> {
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Result<Self, TooLong> {
        if bytes.len() <= MAX { Ok(Bytes(bytes)) } else { Err(TooLong) }
    }

    #[inline]
    pub fn get(self) -> &'a [u8] {
        self.0
    }
}

/// No record has more, and one that would have is not sent.
impl<'a> From<&'a [u8]> for Bytes<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Bytes(bytes)
    }
}

impl<'a, const MAX: usize> Field<'a> for Bytes<'a, MAX> {
    const SHAPE: Shape = Shape::Bytes(MAX);

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        w.bytes(self.0);
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        Bytes::of(r.bytes()?).map_err(|TooLong| Fault("byte string longer than its limit"))
    }
}

impl<'a> Field<'a> for &'a [u8] {
    const SHAPE: Shape = Shape::Bytes(RECORD_BYTES_MAX);

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        w.bytes(self);
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        r.bytes()
    }
}

impl<'a> Field<'a> for Vec<u64> {
    const SHAPE: Shape = Shape::List(&Shape::Number(64), RECORD_BYTES_MAX / 8);

    fn put(&self, w: &mut impl Writer) {
        w.word(self.len() as u64);
        self.iter().for_each(|word| w.word(*word));
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        let count = r.word()?;
        // Checked before anything is allocated: the words have to be there.
        if count > r.rest().len() as u64 / 8 {
            return Err(Fault("more handles than the record holds"));
        }
        (0..count).map(|_| r.word()).collect()
    }
}

/// A byte string without a zero byte, which becomes C's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Text<'a, const MAX: usize = RECORD_BYTES_MAX>(&'a [u8]);

impl<'a, const MAX: usize> Text<'a, MAX> {
    pub fn get(self) -> &'a [u8] {
        self.0
    }

    pub fn to_c(self) -> CString {
        CString::new(self.0).expect("a text has no zero byte")
    }
}

impl<'a> From<&'a std::ffi::CStr> for Text<'a> {
    fn from(text: &'a std::ffi::CStr) -> Self {
        Text(text.to_bytes())
    }
}

impl<'a, const MAX: usize> Field<'a> for Text<'a, MAX> {
    const SHAPE: Shape = Shape::Text(MAX);

    fn put(&self, w: &mut impl Writer) {
        w.bytes(self.0);
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        let text = r.bytes()?;
        if text.len() > MAX {
            return Err(Fault("text longer than its limit"));
        }
        if text.contains(&0) {
            return Err(Fault("a string with a NUL inside"));
        }
        Ok(Text(text))
    }
}

/// A byte string of `BYTES` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exactly<const BYTES: usize>(pub [u8; BYTES]);

impl<'a, const BYTES: usize> Field<'a> for Exactly<BYTES> {
    const SHAPE: Shape = Shape::Exactly(BYTES);

    fn put(&self, w: &mut impl Writer) {
        w.bytes(&self.0);
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        r.bytes()?.try_into().map(Exactly).map_err(|_| Fault("a value has another size than its type"))
    }
}

/// All bytes to the end of the record: the last field of a message. A multiple of 8, as records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rest<'a>(pub &'a [u8]);

impl<'a> Field<'a> for Rest<'a> {
    const SHAPE: Shape = Shape::Rest;

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        w.put(self.0);
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        Ok(Rest(r.take_rest()))
    }
}

/// A count of at most `MAX`, and the elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T, const MAX: usize = { RECORD_BYTES_MAX / 8 }>(Vec<T>);

impl<T, const MAX: usize> List<T, MAX> {
    pub const MAX: usize = MAX;

    pub fn of(elements: Vec<T>) -> Result<Self, TooLong> {
        if elements.len() <= MAX { Ok(List(elements)) } else { Err(TooLong) }
    }

    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

/// No record has more, and one that would have is not sent.
impl<T> From<Vec<T>> for List<T> {
    fn from(elements: Vec<T>) -> Self {
        List(elements)
    }
}

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<T, const MAX: usize> std::ops::Deref for List<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T: Field<'a>, const MAX: usize> Field<'a> for List<T, MAX> {
    const SHAPE: Shape = Shape::List(&T::SHAPE, MAX);

    fn put(&self, w: &mut impl Writer) {
        w.word(self.0.len() as u64);
        self.0.iter().for_each(|element| element.put(w));
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        let count = r.word()?;
        if count > MAX as u64 {
            return Err(Fault("list longer than its limit"));
        }
        (0..count).map(|_| T::get(r)).collect::<Result<_, _>>().map(List)
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    const SHAPE: Shape = Shape::Maybe(&T::SHAPE);

    fn put(&self, w: &mut impl Writer) {
        w.word(u64::from(self.is_some()));
        if let Some(value) = self {
            value.put(w);
        }
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        Ok(if bool::get(r)? { Some(T::get(r)?) } else { None })
    }
}

/// A range of the heap that the worker names. What a client names is an [`super::address::ClaimedRange`].
impl<'a> Field<'a> for HeapRange {
    const SHAPE: Shape = Shape::Range;

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        w.word(self.offset);
        w.word(self.bytes);
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        Ok(HeapRange { offset: r.word()?, bytes: r.word()? })
    }
}
