//! One column of a block as it was stored, and the Arrow array made of it.
//!
//! Everything is checked here, once, when a block is opened; afterwards reading a row or making an
//! array cannot fail. A body whose seal was good was written by us, so a fault means a bug or a
//! key in wrong hands; it is answered like damage, never by a panic.

#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)] // Arrow counts in i32, from 0 up

use std::sync::Arc;

use arrow_array::types::{BinaryType, ByteArrayType, Int8Type, Int64Type, Utf8Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, GenericByteArray, ListArray, PrimitiveArray,
    StringArray, StructArray, new_null_array,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::DataType;

use crate::body::{Encoding, Entry, Fault};
use crate::limits::BLOCK_BYTES_MAX;
use crate::record::Source;
use crate::schema::{pair_field, pair_fields};

/// A buffer as values of one width.
fn scalars<T: ArrowNativeType>(buffer: Buffer, count: usize) -> Result<ScalarBuffer<T>, Fault> {
    if buffer.len() != count * size_of::<T>() {
        return Err("a buffer has the wrong length");
    }
    Ok(buffer.into())
}

fn validity(buffer: Buffer, rows: usize) -> Result<NullBuffer, Fault> {
    if buffer.len() != rows.div_ceil(8) {
        return Err("a bitmap has the wrong length");
    }
    Ok(NullBuffer::new(BooleanBuffer::new(buffer, 0, rows)))
}

/// Whole numbers of one width.
#[derive(Debug, Clone)]
pub(crate) enum Numbers<T: ArrowNativeType> {
    Null,
    Constant(T),
    /// Rises by one per row.
    Sequence(T),
    Plain(ScalarBuffer<T>, Option<NullBuffer>),
}

impl<T: ArrowNativeType> Numbers<T> {
    pub(crate) fn parse(entry: &mut Entry, rows: usize) -> Result<Self, Fault> {
        match entry.encoding {
            Encoding::Constant => Ok(Self::Constant(scalars(entry.take(0)?, 1)?[0])),
            Encoding::Sequence => Ok(Self::Sequence(scalars(entry.take(0)?, 1)?[0])),
            Encoding::Plain => Ok(Self::Plain(scalars(entry.take(0)?, rows)?, None)),
            Encoding::Nullable => {
                let valid = validity(entry.take(0)?, rows)?;
                Ok(Self::Plain(scalars(entry.take(1)?, rows)?, Some(valid)))
            }
        }
    }
}

impl Numbers<i64> {
    pub(crate) fn get(&self, row: usize) -> Option<i64> {
        match self {
            Self::Null => None,
            Self::Constant(value) => Some(*value),
            Self::Sequence(first) => Some(first.wrapping_add(row as i64)),
            Self::Plain(values, valid) => {
                valid.as_ref().is_none_or(|valid| valid.is_valid(row)).then(|| values[row])
            }
        }
    }

    pub(crate) fn scalars(&self, rows: usize) -> ScalarBuffer<i64> {
        match self {
            Self::Null => vec![0; rows].into(),
            Self::Constant(value) => vec![*value; rows].into(),
            Self::Sequence(first) => {
                (0..rows as i64).map(|row| first.wrapping_add(row)).collect::<Vec<i64>>().into()
            }
            Self::Plain(values, _) => values.clone(),
        }
    }

    fn nulls(&self) -> Option<NullBuffer> {
        match self {
            Self::Plain(_, nulls) => nulls.clone(),
            Self::Null | Self::Constant(_) | Self::Sequence(_) => None,
        }
    }

    pub(crate) fn array(&self, rows: usize) -> ArrayRef {
        match self {
            Self::Null => new_null_array(&DataType::Int64, rows),
            _ => Arc::new(PrimitiveArray::<Int64Type>::new(self.scalars(rows), self.nulls())),
        }
    }

    /// The same numbers as another type of their width.
    pub(crate) fn array_of<K: ArrowPrimitiveType<Native = i64>>(
        &self,
        rows: usize,
    ) -> PrimitiveArray<K> {
        PrimitiveArray::new(self.scalars(rows), self.nulls())
    }

    /// Whether every row has a number.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Constant(_) | Self::Sequence(_) => true,
            Self::Plain(_, nulls) => nulls.as_ref().is_none_or(|nulls| nulls.null_count() == 0),
        }
    }
}

impl Numbers<i8> {
    pub(crate) fn get(&self, row: usize) -> i8 {
        match self {
            Self::Constant(value) => *value,
            Self::Plain(values, _) => values[row],
            // Refused by `check`.
            Self::Null | Self::Sequence(_) => 0,
        }
    }

    /// Whether there is a value in every row, and each is good.
    pub(crate) fn check(&self, good: impl Fn(i8) -> bool) -> Result<(), Fault> {
        let fine = match self {
            Self::Constant(value) => good(*value),
            Self::Plain(values, None) => values.iter().all(|value| good(*value)),
            Self::Plain(_, Some(_)) | Self::Null | Self::Sequence(_) => false,
        };
        if fine { Ok(()) } else { Err("a code that means nothing") }
    }

    pub(crate) fn array(&self, rows: usize) -> ArrayRef {
        let values = match self {
            Self::Plain(values, _) => values.clone(),
            Self::Null | Self::Sequence(_) | Self::Constant(_) => vec![self.get(0); rows].into(),
        };
        Arc::new(PrimitiveArray::<Int8Type>::new(values, None))
    }

    /// The words that codes of sources stand for.
    pub(crate) fn source_array(&self, rows: usize) -> ArrayRef {
        let word = |code: i8| Source::from_code(code.cast_unsigned()).map_or("", Source::word);
        match self {
            Self::Plain(values, _) => {
                Arc::new(StringArray::from_iter_values(values.iter().map(|code| word(*code))))
            }
            Self::Null | Self::Sequence(_) | Self::Constant(_) => {
                repeated::<Utf8Type>(word(self.get(0)).as_bytes(), rows)
            }
        }
    }
}

/// A bit per row.
#[derive(Debug, Clone)]
pub(crate) enum Flags {
    Constant(bool),
    Plain(BooleanBuffer),
}

impl Flags {
    pub(crate) fn parse(entry: &mut Entry, rows: usize) -> Result<Self, Fault> {
        match entry.encoding {
            Encoding::Constant => Ok(Self::Constant(scalars::<i8>(entry.take(0)?, 1)?[0] != 0)),
            Encoding::Plain => Ok(Self::Plain(validity(entry.take(0)?, rows)?.into_inner())),
            Encoding::Nullable | Encoding::Sequence => Err("flags are never null"),
        }
    }

    pub(crate) fn get(&self, row: usize) -> bool {
        match self {
            Self::Constant(value) => *value,
            Self::Plain(bits) => bits.value(row),
        }
    }

    pub(crate) fn array(&self, rows: usize) -> ArrayRef {
        let bits = match self {
            Self::Constant(true) => BooleanBuffer::new_set(rows),
            Self::Constant(false) => BooleanBuffer::new_unset(rows),
            Self::Plain(bits) => bits.clone(),
        };
        Arc::new(BooleanArray::new(bits, None))
    }
}

/// Texts or bytes.
#[derive(Debug, Clone)]
pub(crate) enum Texts {
    Null,
    Constant(Buffer),
    Plain { ends: OffsetBuffer<i32>, bytes: Buffer, nulls: Option<NullBuffer> },
}

impl Texts {
    pub(crate) fn parse(entry: &mut Entry, rows: usize, is_text: bool) -> Result<Self, Fault> {
        let texts = match entry.encoding {
            Encoding::Constant => {
                let value = entry.take(0)?;
                // One row may be as large as a record; many copies of a value were a block once.
                if rows > 1 && value.len().saturating_mul(rows) > BLOCK_BYTES_MAX {
                    return Err("a repeated value would not fit a block");
                }
                Self::Constant(value)
            }
            Encoding::Plain => Self::plain(entry, 0, rows, None)?,
            Encoding::Nullable => {
                let nulls = validity(entry.take(0)?, rows)?;
                Self::plain(entry, 1, rows, Some(nulls))?
            }
            Encoding::Sequence => return Err("texts do not count up"),
        };
        if is_text { texts.check_text().map(|()| texts) } else { Ok(texts) }
    }

    fn plain(
        entry: &mut Entry,
        place: usize,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<Self, Fault> {
        let ends = scalars::<i32>(entry.take(place)?, rows + 1)?;
        let bytes = entry.take(place + 1)?;
        let rising = ends.windows(2).all(|pair| pair[0] <= pair[1]);
        if !rising || ends[0] != 0 || ends[rows] as usize != bytes.len() {
            return Err("lengths do not add up");
        }
        Ok(Self::Plain { ends: OffsetBuffer::new(ends), bytes, nulls })
    }

    fn check_text(&self) -> Result<(), Fault> {
        let broken = "a text is not UTF-8";
        match self {
            Self::Null => Ok(()),
            Self::Constant(value) => std::str::from_utf8(value).map(|_| ()).map_err(|_| broken),
            Self::Plain { ends, bytes, .. } => {
                let text = std::str::from_utf8(bytes).map_err(|_| broken)?;
                let whole = ends.iter().all(|end| text.is_char_boundary(*end as usize));
                if whole { Ok(()) } else { Err(broken) }
            }
        }
    }

    pub(crate) fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Null => None,
            Self::Constant(value) => Some(value),
            Self::Plain { ends, bytes, nulls } => {
                let here = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                here.then(|| &bytes[ends[row] as usize..ends[row + 1] as usize])
            }
        }
    }

    /// The bytes of one row, sharing the block's memory.
    pub(crate) fn share(&self, row: usize) -> Buffer {
        match self {
            Self::Null => Buffer::default(),
            Self::Constant(value) => value.clone(),
            Self::Plain { ends, bytes, .. } => {
                let from = ends[row] as usize;
                bytes.slice_with_length(from, ends[row + 1] as usize - from)
            }
        }
    }

    pub(crate) fn text(&self, row: usize) -> Option<&str> {
        // Checked when the block was opened.
        self.get(row).map(|bytes| std::str::from_utf8(bytes).unwrap_or_default())
    }

    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Constant(_) => true,
            Self::Plain { nulls, .. } => nulls.as_ref().is_none_or(|nulls| nulls.null_count() == 0),
        }
    }

    pub(crate) fn text_array(&self, rows: usize) -> ArrayRef {
        self.array::<Utf8Type>(rows)
    }

    pub(crate) fn binary_array(&self, rows: usize) -> ArrayRef {
        self.array::<BinaryType>(rows)
    }

    fn array<T: ByteArrayType<Offset = i32>>(&self, rows: usize) -> ArrayRef {
        match self {
            Self::Null => new_null_array(&T::DATA_TYPE, rows),
            Self::Constant(value) if rows == 1 => {
                let ends = OffsetBuffer::from_repeated_length(value.len(), 1);
                Arc::new(GenericByteArray::<T>::new(ends, value.clone(), None))
            }
            Self::Constant(value) => repeated::<T>(value, rows),
            Self::Plain { ends, bytes, nulls } => {
                Arc::new(GenericByteArray::<T>::new(ends.clone(), bytes.clone(), nulls.clone()))
            }
        }
    }
}

/// An array of one value in every row.
pub(crate) fn repeated<T: ByteArrayType<Offset = i32>>(value: &[u8], rows: usize) -> ArrayRef {
    let ends = OffsetBuffer::from_repeated_length(value.len(), rows);
    let mut bytes = MutableBuffer::with_capacity(value.len() * rows);
    if !value.is_empty() {
        bytes.repeat_slice_n_times(value, rows);
    }
    Arc::new(GenericByteArray::<T>::new(ends, bytes.into(), None))
}

/// The user properties.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // one per block
pub(crate) enum Pairs {
    Null,
    Plain { ends: OffsetBuffer<i32>, keys: Texts, values: Texts, nulls: NullBuffer },
}

impl Pairs {
    pub(crate) fn parse(entry: &mut Entry, rows: usize) -> Result<Self, Fault> {
        if entry.encoding != Encoding::Nullable {
            return Err("user properties are stored in one way only");
        }
        let nulls = validity(entry.take(0)?, rows)?;
        let ends = scalars::<i32>(entry.take(1)?, rows + 1)?;
        if ends[0] != 0 || !ends.windows(2).all(|pair| pair[0] <= pair[1]) {
            return Err("user properties do not add up");
        }
        let count = ends[rows] as usize;
        let keys = Texts::plain(entry, 2, count, None)?;
        let values = Texts::plain(entry, 4, count, None)?;
        keys.check_text()?;
        values.check_text()?;
        Ok(Self::Plain { ends: OffsetBuffer::new(ends), keys, values, nulls })
    }

    pub(crate) fn get(&self, row: usize) -> impl Iterator<Item = (&str, &str)> {
        let plain = match self {
            Self::Null => None,
            Self::Plain { ends, keys, values, .. } => {
                Some((ends[row] as usize..ends[row + 1] as usize, keys, values))
            }
        };
        plain.into_iter().flat_map(|(range, keys, values)| {
            range.map(move |at| {
                (keys.text(at).unwrap_or_default(), values.text(at).unwrap_or_default())
            })
        })
    }

    pub(crate) fn array(&self, rows: usize) -> ArrayRef {
        match self {
            Self::Null => new_null_array(&DataType::List(pair_field()), rows),
            Self::Plain { ends, keys, values, nulls } => {
                let count = ends[rows] as usize;
                let columns = vec![keys.text_array(count), values.text_array(count)];
                let pairs = StructArray::new(pair_fields(), columns, None);
                let lists = ListArray::new(
                    pair_field(),
                    ends.clone(),
                    Arc::new(pairs),
                    Some(nulls.clone()),
                );
                debug_assert_eq!(lists.len(), rows);
                Arc::new(lists)
            }
        }
    }
}
