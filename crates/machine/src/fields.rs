//! How numbers, texts and byte strings are written into a command's body.
//!
//! Numbers are LEB128 varints in their shortest form: one value has one spelling, so equal commands
//! are equal bytes. Texts and byte strings carry their length in front. Reading checks every length
//! against what is really there before anything is reserved, and answers with a `FieldError`; the
//! bytes come from the disk or from a peer and may be anything.

/// Why a field could not be read. `entry.rs` adds which command it stood in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The body ends inside the field.
    #[error("ends inside a field")]
    Truncated,
    /// A varint that is too long, too large for its type, or not in its shortest form.
    #[error("holds a malformed number")]
    Number,
    /// A text that is not UTF-8.
    #[error("holds a text that is not UTF-8")]
    Text,
    /// A flag, `QoS` or kind outside its range.
    #[error("holds a value outside its range")]
    Range,
    /// Bytes after the last field.
    #[error("has bytes after its last field")]
    Trailing,
}

/// Appends `value` as a varint.
pub(crate) fn write_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a byte string with its length in front.
pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a text with its length in front.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    write_bytes(out, text.as_bytes());
}

/// Reads fields from the front of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes not read yet.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, FieldError> {
        let (&first, rest) = self.rest.split_first().ok_or(FieldError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn number(&mut self) -> Result<u64, FieldError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(FieldError::Number);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // A last byte of zero adds nothing: the shortest form would have stopped earlier.
                return if byte == 0 && shift > 0 { Err(FieldError::Number) } else { Ok(value) };
            }
        }
        Err(FieldError::Number)
    }

    pub(crate) fn number_u32(&mut self) -> Result<u32, FieldError> {
        u32::try_from(self.number()?).map_err(|_| FieldError::Number)
    }

    pub(crate) fn number_u16(&mut self) -> Result<u16, FieldError> {
        u16::try_from(self.number()?).map_err(|_| FieldError::Number)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], FieldError> {
        let length = usize::try_from(self.number()?).map_err(|_| FieldError::Number)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(FieldError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, FieldError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| FieldError::Text)
    }

    /// A number that is present only when `flag` says so.
    pub(crate) fn number_u32_if(&mut self, flag: bool) -> Result<Option<u32>, FieldError> {
        flag.then(|| self.number_u32()).transpose()
    }

    /// Every field has been read; anything left is not ours.
    pub(crate) fn finish(self) -> Result<(), FieldError> {
        if self.rest.is_empty() { Ok(()) } else { Err(FieldError::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use super::{FieldError, FieldReader, write_number};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64) {
            let mut out = Vec::new();
            write_number(&mut out, value);
            let mut reader = FieldReader::new(&out);
            prop_assert_eq!(reader.number(), Ok(value));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn one_number_has_one_spelling(bytes in proptest::collection::vec(any::<u8>(), 1..12)) {
            let mut reader = FieldReader::new(&bytes);
            if let Ok(value) = reader.number() {
                let mut out = Vec::new();
                write_number(&mut out, value);
                prop_assert!(bytes.starts_with(&out));
            }
        }
    }

    #[test]
    fn numbers_beyond_sixty_four_bits_are_malformed() {
        let mut reader = FieldReader::new(&[0xff; 11]);
        assert_eq!(reader.number(), Err(FieldError::Number));
        let mut reader = FieldReader::new(&[0x80, 0x00]);
        assert_eq!(reader.number(), Err(FieldError::Number));
    }

    #[test]
    fn a_length_is_not_believed() {
        let mut reader = FieldReader::new(&[0xff, 0xff, 0xff, 0x7f, b'x']);
        assert_eq!(reader.bytes(), Err(FieldError::Truncated));
    }
}
