//! Canonical JSON (RFC 8785) of the few shapes manifests and boot records have.
//!
//! Numbers are small; what needs 64 bits is text. The parser takes exactly the canonical form: a
//! manifest is signed as bytes, so there is one way to write it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Deeper documents are not ours.
const DEPTH_MAX: usize = 8;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Json {
    Bool(bool),
    Number(u32),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    pub(crate) fn text(text: impl std::fmt::Display) -> Self {
        Self::Text(text.to_string())
    }

    pub(crate) fn texts(values: &[u64]) -> Self {
        Self::List(values.iter().map(Self::text).collect())
    }

    pub(crate) fn object<const N: usize>(fields: [(&str, Json); N]) -> Self {
        Self::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// The one canonical form.
    pub(crate) fn encode(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Bool(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Number(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Text(text) => write_text(out, text),
            Self::List(values) => {
                out.push('[');
                for (position, value) in values.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    value.write(out);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (position, (key, value)) in fields.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    write_text(out, key);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// Parses the canonical form and nothing else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { rest: text };
        let value = parser.value(0)?;
        (parser.rest.is_empty() && value.encode() == text).then_some(value)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Json> {
        match self {
            Self::Object(fields) => fields.get(name),
            _ => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        self.as_text()?.parse().ok()
    }

    pub(crate) fn as_number(&self) -> Option<u32> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Json]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn as_u64s(&self) -> Option<Vec<u64>> {
        self.as_list()?.iter().map(Self::as_u64).collect()
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn eat(&mut self, literal: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(literal)?;
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.rest.as_bytes().first()? {
            b'"' => self.string().map(Json::Text),
            b't' => self.eat("true").map(|()| Json::Bool(true)),
            b'f' => self.eat("false").map(|()| Json::Bool(false)),
            b'[' => self.list(depth),
            b'{' => self.object(depth),
            _ => {
                let end = self.rest.find(|c: char| !c.is_ascii_digit());
                let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                self.rest = rest;
                digits.parse().ok().map(Json::Number)
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Json> {
        self.eat("[")?;
        let mut values = Vec::new();
        while self.eat("]").is_none() {
            if !values.is_empty() {
                self.eat(",")?;
            }
            values.push(self.value(depth + 1)?);
        }
        Some(Json::List(values))
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        self.eat("{")?;
        let mut fields = BTreeMap::new();
        while self.eat("}").is_none() {
            if !fields.is_empty() {
                self.eat(",")?;
            }
            let key = self.string()?;
            self.eat(":")?;
            fields.insert(key, self.value(depth + 1)?);
        }
        Some(Json::Object(fields))
    }

    fn string(&mut self) -> Option<String> {
        self.eat("\"")?;
        let mut text = String::new();
        loop {
            let mut characters = self.rest.chars();
            let next = characters.next()?;
            self.rest = characters.as_str();
            match next {
                '"' => return Some(text),
                '\\' => text.push(self.escaped()?),
                other => text.push(other),
            }
        }
    }

    fn escaped(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let kind = characters.next()?;
        self.rest = characters.as_str();
        Some(match kind {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let digits = self.rest.get(..4)?;
                self.rest = &self.rest[4..];
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            '"' | '\\' => kind,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_is_read() {
        let written = r#"{"a":["1",2,true],"b":{"c":"x\ny\u0001\""}}"#;
        let value = Json::parse(written).unwrap();
        assert_eq!(value.encode(), written);
        for other in [r#"{"b":1,"a":2}"#, r#"{ "a":1}"#, "[1,]", "01", r#""\u0041""#, "[[", ""] {
            assert_eq!(Json::parse(other), None, "{other}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        assert_eq!(Json::parse(&"[".repeat(100_000)), None);
    }
}
