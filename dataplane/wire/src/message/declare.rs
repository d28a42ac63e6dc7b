//! How messages are declared.

/// Structs that are whole bodies, or parts of them. See [`super`].
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $direction:ident $name:ident $(<$l:lifetime>)? $(($op:expr))? {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty $(as $shape:expr)?),* $(,)?
        }
    )*) => {
        /// All messages of this subject.
        pub const ALL: &[$crate::message::layout::Description] = &[$(
            $crate::message::layout::Description {
                name: stringify!($name),
                direction: $crate::message::declare::direction!($direction),
                op: $crate::message::declare::op!($($op)?),
                fields: <$name as $crate::message::field::Message>::FIELDS,
                layout: <$name as $crate::message::field::Message>::LAYOUT,
                again: |body| {
                    let mut out = Vec::new();
                    $name::decode(&mut $crate::codec::Reader::new(body))?.encode(&mut out);
                    Ok(out)
                },
            }
        ),*];

        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq)]
            pub struct $name $(<$l>)? {
                $($(#[$field_doc])* pub $field: $ty,)*
            }

            impl<'a> $crate::message::field::Field<'a> for $name $(<$l>)? {
                const SHAPE: $crate::message::layout::Shape = $crate::message::layout::Shape::Part(
                    stringify!($name),
                    <$name as $crate::message::field::Message>::FIELDS,
                );

                #[inline]
                fn put(&self, _w: &mut impl $crate::codec::Writer) {
                    $($crate::message::field::Field::put(&self.$field, _w);)*
                }

                #[inline]
                fn get(_r: &mut $crate::codec::Reader<'a>) -> Result<Self, $crate::codec::Fault> {
                    Ok($name { $($field: $crate::message::field::Field::get(_r)?,)* })
                }
            }

            impl<'a> $crate::message::field::Message<'a> for $name $(<$l>)? {
                const NAME: &'static str = stringify!($name);
                const FIELDS: &'static [$crate::message::layout::Part] = &[$(
                    $crate::message::layout::Part {
                        name: stringify!($field),
                        shape: $crate::message::declare::shape!($ty $(, $shape)?),
                    }
                ),*];
                const LAYOUT: u64 = $crate::message::layout::message(
                    Self::NAME,
                    $crate::message::declare::direction!($direction),
                    $crate::message::declare::op!($($op)?),
                    Self::FIELDS,
                );
            }

            impl $(<$l>)? $name $(<$l>)? {
                $(pub const OP: u16 = $op;)?

                #[inline]
                pub fn encode(&self, w: &mut impl $crate::codec::Writer) {
                    $crate::message::field::Field::put(self, w);
                }

                /// From a whole body: what is left over is a fault.
                #[inline]
                pub fn decode(
                    r: &mut $crate::codec::Reader<$($l)?>,
                ) -> Result<Self, $crate::codec::Fault> {
                    let message = $crate::message::field::Field::get(r)?;
                    (*r).finish()?;
                    Ok(message)
                }
            }
        )*
    };
}

/// Enums of numbers.
#[allow(unused_macros, reason = "not every version of the table has some")]
macro_rules! choices {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$value_doc:meta])* $value:ident = $number:literal),* $(,)? }
    )*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$value_doc])* $value = $number,)*
        }

        impl $name {
            #[inline]
            pub const fn of(number: u64) -> Option<$name> {
                match number {
                    $($number => Some($name::$value),)*
                    _ => None,
                }
            }
        }

        impl<'a> $crate::message::field::Field<'a> for $name {
            const SHAPE: $crate::message::layout::Shape =
                $crate::message::layout::Shape::Choice(&[$((stringify!($value), $number)),*]);

            #[inline]
            fn put(&self, w: &mut impl $crate::codec::Writer) {
                w.word(*self as u64);
            }

            #[inline]
            fn get(r: &mut $crate::codec::Reader<'a>) -> Result<Self, $crate::codec::Fault> {
                $name::of(r.word()?).ok_or($crate::codec::Fault(concat!("no such ", stringify!($name))))
            }
        }
    )* };
}

/// Enums whose number says what follows.
#[allow(unused_macros, reason = "not every version of the table has some")]
macro_rules! variants {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$l:lifetime>)? { $($(#[$value_doc:meta])* $value:ident($ty:ty) = $number:literal),* $(,)? }
    )*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name $(<$l>)? {
            $($(#[$value_doc])* $value($ty),)*
        }

        impl<'a> $crate::message::field::Field<'a> for $name $(<$l>)? {
            const SHAPE: $crate::message::layout::Shape = $crate::message::layout::Shape::OneOf(
                stringify!($name),
                &[$((stringify!($value), $number, <$ty as $crate::message::field::Field>::SHAPE)),*],
            );

            fn put(&self, w: &mut impl $crate::codec::Writer) {
                match self {
                    $($name::$value(value) => {
                        w.word($number);
                        $crate::message::field::Field::put(value, w);
                    })*
                }
            }

            fn get(r: &mut $crate::codec::Reader<'a>) -> Result<Self, $crate::codec::Fault> {
                match r.word()? {
                    $($number => Ok($name::$value($crate::message::field::Field::get(r)?)),)*
                    _ => Err($crate::codec::Fault(concat!("no such ", stringify!($name)))),
                }
            }
        }
    )* };
}

macro_rules! direction {
    (command) => {
        $crate::message::layout::Direction::Command
    };
    (reply) => {
        $crate::message::layout::Direction::Reply
    };
    (event) => {
        $crate::message::layout::Direction::Event
    };
    (part) => {
        $crate::message::layout::Direction::Part
    };
}

/// A field's own, or what is told instead.
macro_rules! shape {
    ($ty:ty) => {
        <$ty as $crate::message::field::Field>::SHAPE
    };
    ($ty:ty, $shape:expr) => {
        $shape
    };
}

macro_rules! op {
    () => {
        None
    };
    ($op:expr) => {
        Some($op)
    };
}

#[allow(unused_imports, reason = "as above")]
pub(crate) use {choices, direction, messages, op, shape, variants};
