//! XDR, the external data representation (RFC 4506): big-endian, in units of four bytes.

use bytes::{Buf, Bytes};

/// An error of decoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The message ends before the value.
    #[error("the message is truncated")]
    Truncated,
    /// A length exceeds the protocol's limit.
    #[error("a length of {len}, above the limit of {max}")]
    TooLong {
        /// The encoded length.
        len: u32,
        /// The protocol's limit.
        max: u32,
    },
    /// An undefined discriminant.
    #[error("{value} is not a valid {what}")]
    BadDiscriminant {
        /// The expected type.
        what: &'static str,
        /// The encoded value.
        value: u32,
    },
}

/// A value with an XDR encoding.
pub trait Xdr: Sized {
    /// Appends the encoded value.
    fn encode(&self, out: &mut Vec<u8>);
    /// Decodes the value at the front of `r`.
    fn decode(r: &mut Reader) -> Result<Self, Error>;

    /// The encoded value as a message.
    fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(128);
        self.encode(&mut out);
        Bytes::from(out)
    }
}

/// Decodes values from the front of a message.
#[derive(Clone, Debug)]
pub struct Reader(Bytes);

impl Reader {
    /// A reader at the start of `message`.
    pub fn new(message: Bytes) -> Reader {
        Reader(message)
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// All bytes not yet read.
    pub fn rest(self) -> Bytes {
        self.0
    }

    /// The next `n` bytes, without padding.
    pub fn fixed(&mut self, n: usize) -> Result<Bytes, Error> {
        if n > self.0.len() {
            return Err(Error::Truncated);
        }
        Ok(self.0.split_to(n))
    }

    /// A variable-length opaque of at most `max` bytes, with its padding.
    pub fn opaque(&mut self, max: u32) -> Result<Bytes, Error> {
        let len = u32::decode(self)?;
        if len > max {
            return Err(Error::TooLong { len, max });
        }
        let data = self.fixed(len as usize)?;
        let padding = padding(data.len());
        if padding > self.0.len() {
            return Err(Error::Truncated);
        }
        self.0.advance(padding);
        Ok(data)
    }

    /// A variable-length array of at most `max` elements.
    pub fn array<T: Xdr>(&mut self, max: u32) -> Result<Vec<T>, Error> {
        let len = u32::decode(self)?;
        if len > max {
            return Err(Error::TooLong { len, max });
        }
        // Every element takes at least four bytes, so the received bytes bound the capacity.
        let mut out = Vec::with_capacity((len as usize).min(self.remaining() / 4));
        for _ in 0..len {
            out.push(T::decode(self)?);
        }
        Ok(out)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        // Not through `fixed`, which would count a reference for each field.
        let out = *self.0.first_chunk::<N>().ok_or(Error::Truncated)?;
        self.0.advance(N);
        Ok(out)
    }
}

/// Zero bytes that pad `len` to a multiple of four.
const fn padding(len: usize) -> usize {
    (4 - len % 4) % 4
}

/// Appends a variable-length opaque with its padding.
pub(crate) fn put_opaque(out: &mut Vec<u8>, data: &[u8]) {
    (data.len() as u32).encode(out);
    out.extend_from_slice(data);
    out.resize(out.len() + padding(data.len()), 0);
}

/// Appends a variable-length array.
pub(crate) fn put_array<T: Xdr>(out: &mut Vec<u8>, items: &[T]) {
    (items.len() as u32).encode(out);
    items.iter().for_each(|i| i.encode(out));
}

/// Appends a linked list: a true before each item, a false at the end.
pub(crate) fn put_list<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&T, &mut Vec<u8>)) {
    for item in items {
        true.encode(out);
        put(item, out);
    }
    false.encode(out);
}

/// Decodes a linked list, whose length the received bytes bound.
pub(crate) fn get_list<T>(r: &mut Reader, get: impl Fn(&mut Reader) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    let mut items = Vec::new();
    while bool::decode(r)? {
        items.push(get(r)?);
    }
    Ok(items)
}

/// Appends a result: 0 before a success; an error begins with its number, which is never 0.
pub(crate) fn put_result<O: Xdr, E: Xdr>(res: &Result<O, E>, out: &mut Vec<u8>) {
    match res {
        Ok(ok) => {
            0u32.encode(out);
            ok.encode(out);
        }
        Err(e) => e.encode(out),
    }
}

/// Decodes what [`put_result`] appends.
pub(crate) fn get_result<O: Xdr, E: Xdr>(r: &mut Reader) -> Result<Result<O, E>, Error> {
    let mut after = r.clone();
    if u32::decode(&mut after)? != 0 {
        return E::decode(r).map(Err);
    }
    *r = after;
    O::decode(r).map(Ok)
}

/// A member of an enumeration, or `other` for an undefined number.
pub(crate) fn known_or<E: Xdr>(r: &mut Reader, other: E) -> Result<E, Error> {
    match E::decode(r) {
        Err(Error::BadDiscriminant { .. }) => Ok(other),
        known => known,
    }
}

impl Xdr for u32 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
    fn decode(r: &mut Reader) -> Result<u32, Error> {
        r.take().map(u32::from_be_bytes)
    }
}

impl Xdr for u64 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
    fn decode(r: &mut Reader) -> Result<u64, Error> {
        r.take().map(u64::from_be_bytes)
    }
}

impl Xdr for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode(out);
    }
    fn decode(r: &mut Reader) -> Result<bool, Error> {
        match u32::decode(r)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Error::BadDiscriminant { what: "bool", value }),
        }
    }
}

impl Xdr for () {
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(_: &mut Reader) -> Result<(), Error> {
        Ok(())
    }
}

impl Xdr for [u8; 8] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(r: &mut Reader) -> Result<[u8; 8], Error> {
        r.take()
    }
}

/// Opaque data or a name, bounded by the message; the caller enforces narrower limits.
impl Xdr for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        put_opaque(out, self);
    }
    fn decode(r: &mut Reader) -> Result<Bytes, Error> {
        r.opaque(u32::MAX)
    }
}

impl<T: Xdr> Xdr for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(v) = self {
            v.encode(out);
        }
    }
    fn decode(r: &mut Reader) -> Result<Option<T>, Error> {
        Ok(if bool::decode(r)? { Some(T::decode(r)?) } else { None })
    }
}

/// A struct encoded as its fields in order.
macro_rules! xdr_struct {
    ($($(#[$m:meta])* pub struct $name:ident { $($(#[$fm:meta])* pub $f:ident: $t:ty,)* })*) => {$(
        $(#[$m])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[$fm])* pub $f: $t,)* }

        impl $crate::Xdr for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::Xdr::encode(&self.$f, out);)*
            }
            fn decode(r: &mut $crate::Reader) -> Result<Self, $crate::Error> {
                Ok($name { $($f: $crate::Xdr::decode(r)?,)* })
            }
        }
    )*};
}

/// `Proc`: a program's procedures by their RFC names, numbered from 0.
macro_rules! procedures {
    ($($name:ident),+ $(,)?) => {
        /// The procedures, by their RFC names and numbers.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[expect(missing_docs, reason = "the names are the RFC's")]
        #[repr(u32)]
        pub enum Proc {
            $($name),+
        }

        impl Proc {
            /// All procedures in numerical order.
            pub const ALL: [Proc; [$(Proc::$name),+].len()] = [$(Proc::$name),+];

            /// Procedure of this number.
            pub fn from_number(n: u32) -> Option<Proc> {
                Proc::ALL.get(n as usize).copied()
            }
        }
    };
}
pub(crate) use procedures;

/// The error of a procedure's results, which begins with a status.
pub(crate) trait ResultError<S> {
    /// The error of `status` without further information.
    fn of_status(status: S) -> Self;
    fn status(&self) -> S;
}

/// `Call`: the procedures of a `Proc` with their arguments; those before the semicolon have none.
macro_rules! calls {
    ($($void:ident),+; $($name:ident($args:ty)),+ $(,)?) => {
        /// A call: a procedure and its arguments.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "each variant has the name of its procedure")]
        pub enum Call {
            $($void,)+
            $($name($args),)+
        }

        impl Call {
            /// Procedure of the call.
            pub fn proc(&self) -> Proc {
                match self {
                    $(Call::$void => Proc::$void,)+
                    $(Call::$name(_) => Proc::$name,)+
                }
            }

            /// Appends the arguments.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Call::$void => {})+
                    $(Call::$name(args) => $crate::Xdr::encode(args, out),)+
                }
            }

            /// Decodes the arguments of `proc`.
            pub fn decode(proc: Proc, r: &mut $crate::Reader) -> Result<Call, $crate::Error> {
                Ok(match proc {
                    $(Proc::$void => Call::$void,)+
                    $(Proc::$name => Call::$name($crate::Xdr::decode(r)?),)+
                })
            }
        }
    };
}
pub(crate) use calls;

/// `Reply`: the procedures of a `Proc` with their results; those before the semicolon have none, and
/// cannot fail.
macro_rules! replies {
    ($($void:ident),+; $($name:ident($results:ty)),+ $(,)?) => {
        /// A reply: a procedure and its results.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "each variant has the name of its procedure")]
        pub enum Reply {
            $($void,)+
            $($name($results),)+
        }

        impl Reply {
            /// Procedure of the reply.
            pub fn proc(&self) -> Proc {
                match self {
                    $(Reply::$void => Proc::$void,)+
                    $(Reply::$name(_) => Proc::$name,)+
                }
            }

            /// Appends the results.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Reply::$void => {})+
                    $(Reply::$name(results) => $crate::xdr::put_result(results, out),)+
                }
            }

            /// Decodes the results of `proc`.
            pub fn decode(proc: Proc, r: &mut $crate::Reader) -> Result<Reply, $crate::Error> {
                Ok(match proc {
                    $(Proc::$void => Reply::$void,)+
                    $(Proc::$name => Reply::$name($crate::xdr::get_result(r)?),)+
                })
            }

            /// Error; `None` on success.
            pub fn status(&self) -> Option<Status> {
                match self {
                    $(Reply::$void => None,)+
                    $(Reply::$name(results) => results.as_ref().err().map($crate::xdr::ResultError::status),)+
                }
            }

            /// The reply of `proc` with the error `status` and nothing else. Procedures without results cannot
            /// fail.
            pub fn failed(proc: Proc, status: Status) -> Reply {
                match proc {
                    $(Proc::$void => Reply::$void,)+
                    $(Proc::$name => Reply::$name(Err($crate::xdr::ResultError::of_status(status))),)+
                }
            }
        }
    };
}
pub(crate) use replies;

/// An enumeration encoded as its number.
macro_rules! xdr_enum {
    ($($(#[$m:meta])* pub enum $name:ident { $($(#[$vm:meta])* $v:ident = $n:literal,)* })*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        pub enum $name { $($(#[$vm])* $v = $n,)* }

        impl $crate::Xdr for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                (*self as u32).encode(out);
            }
            fn decode(r: &mut $crate::Reader) -> Result<Self, $crate::Error> {
                match u32::decode(r)? {
                    $($n => Ok($name::$v),)*
                    value => Err($crate::Error::BadDiscriminant { what: stringify!($name), value }),
                }
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_is_padded_to_four() {
        let bytes = Bytes::from_static(b"abcde").to_bytes();
        assert_eq!(&bytes[..], b"\0\0\0\x05abcde\0\0\0");
        let mut r = Reader::new(bytes);
        assert_eq!(Bytes::decode(&mut r).unwrap(), "abcde");
        assert_eq!(r.remaining(), 0);
    }

    #[test]
    fn false_length_is_refused() {
        let claim = |n: u32| Reader::new(n.to_bytes());
        assert_eq!(claim(9).opaque(8), Err(Error::TooLong { len: 9, max: 8 }));
        assert_eq!(claim(8).opaque(8), Err(Error::Truncated));
        assert_eq!(claim(u32::MAX).array::<u32>(u32::MAX), Err(Error::Truncated));
        assert_eq!(bool::decode(&mut claim(2)), Err(Error::BadDiscriminant { what: "bool", value: 2 }));
    }
}
